"""Files that lie elsewhere: web servers through httpx, all other places through fsspec; bounded in size and time.

What a remote says is not trusted: a name is one part of a path, a file has a maximum size, and a bundle's files have
digests.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin

import httpx

from bundle import time_limit
from bundle.errors import BundleDamagedError, BundleError, RemoteError
from bundle.references import shown

MAX_ENTRIES = 10_000
"""Maximum entries of a folder."""

PATIENCE_S = 60.0
"""Maximum time in seconds without an answer."""

SLOWEST = 2**18
"""Minimum speed of a whole file in bytes per second, after `PATIENCE_S`."""

_CHUNK = 2**20
_INDEX = 2**22
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "az": "adlfs",
    "abfs": "adlfs",
}
_T = TypeVar("_T")


def names(url: str) -> list[str]:
    """List a folder: the last parts of its entries' names, sorted.

    Args:
        url: The folder. A web server must answer with an index of links.

    Raises:
        RemoteError: It cannot be reached, does not exist, or has more than `MAX_ENTRIES` entries.
    """
    base = url.rstrip("/") + "/"
    found = _links(base) if _is_web(url) else _entries(url)
    listed = sorted({name for name in islice(found, MAX_ENTRIES + 1) if name and "/" not in name and name != ".."})
    if len(listed) > MAX_ENTRIES:
        raise RemoteError(f"{shown(url)} has too many entries", found=f"over {MAX_ENTRIES}")
    return listed


def fetch(url: str, target: Path, *, limit: int, step: Callable[[int], object] = lambda _: None) -> str:
    """Write a remote file to `target`.

    Args:
        url: The file.
        target: New file; incomplete after an error.
        limit: Maximum size in bytes.
        step: Called with the number of bytes so far.

    Returns:
        sha256 of what was written, hex.

    Raises:
        BundleDamagedError: The file does not exist or exceeds the limit.
        RemoteError: It cannot be reached, or is too slow.
    """
    sha256, size = hashlib.sha256(), 0
    with target.open("xb") as stream:
        for chunk in _bounded(url, limit):
            stream.write(chunk)
            sha256.update(chunk)
            size += len(chunk)
            step(size)
    return sha256.hexdigest()


def read(url: str, *, limit: int) -> bytes:
    """Return a remote file of at most `limit` bytes; raises as `fetch`."""
    return b"".join(_bounded(url, limit))


def _bounded(url: str, limit: int) -> Iterator[bytes]:
    return bounded(_web_chunks(url) if _is_web(url) else _chunks(url), url, limit)


def bounded(chunks: Iterator[bytes], url: str, limit: int) -> Iterator[bytes]:
    """Yield the chunks of a remote file; raises as `fetch` where they are too many, or come too slowly."""
    size, started = 0, time.monotonic()
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise BundleDamagedError("too large", file=shown(url), expected=f"at most {limit} bytes")
        if time.monotonic() - started > PATIENCE_S + size / SLOWEST:
            raise RemoteError(
                f"{shown(url)} is too slow", found=f"{size} bytes", expected=f"{SLOWEST} bytes per second"
            )
        yield chunk


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def web_client() -> httpx.Client:
    """Return a client that follows a few redirects."""
    return httpx.Client(verify=_certificates(), timeout=PATIENCE_S, follow_redirects=True, max_redirects=5)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # takes longer than many a request


def web_answer(client: httpx.Client, url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Return the answer to GET, its body not yet read.

    It is asked for without compression, which would hide its size. No redirect leads from https to http.

    Raises:
        BundleDamagedError: The status is 404.
        RemoteError: The server cannot be reached, or its status is neither 200 nor 401.
    """

    def send() -> httpx.Response:
        try:
            request = client.build_request("GET", url, headers={**(headers or {}), "Accept-Encoding": "identity"})
            return client.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RemoteError(f"{shown(url)} cannot be reached: {type(error).__name__}") from error

    response = within(url, send)
    try:
        if response.status_code == httpx.codes.NOT_FOUND:
            raise BundleDamagedError("no such file", file=shown(url))
        if response.status_code not in (httpx.codes.OK, httpx.codes.UNAUTHORIZED):
            raise RemoteError(f"{shown(url)} cannot be read", found=f"status {response.status_code}")
        if url.startswith("https:") and {each.url.scheme for each in (*response.history, response)} != {"https"}:
            raise RemoteError(f"{shown(url)} redirects to an unencrypted address")
    except BundleError:
        response.close()
        raise
    return response


def web_chunks(response: httpx.Response, url: str) -> Iterator[bytes]:
    """Yield the body of an answer as it was sent; raises RemoteError."""
    if response.status_code != httpx.codes.OK:
        raise RemoteError(f"{shown(url)} cannot be read", found=f"status {response.status_code}")
    parts = response.iter_raw(_CHUNK)
    while chunk := within(url, lambda: next(parts, b"")):
        yield chunk


def _web_chunks(url: str) -> Iterator[bytes]:
    with web_client() as client:
        yield from web_chunks(web_answer(client, url), url)


def _links(base: str) -> Iterator[str]:
    """Yield the names that the index of a folder links to."""
    try:
        page = read(base, limit=_INDEX).decode(errors="replace")
    except BundleDamagedError as error:
        raise RemoteError(f"{shown(base)} cannot be listed: {error.message}") from error
    parser = _Links()
    parser.feed(page)
    for link in parser.found:
        target = urljoin(base, link)
        if target.startswith(base):
            yield unquote(shown(target).removeprefix(base).rstrip("/"))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _entries(url: str) -> Iterator[str]:
    files, path = file_system(url)

    def listed() -> list[str]:
        files.invalidate_cache()
        found: Iterable[str] = files.ls(path, detail=False)
        return list(islice(found, MAX_ENTRIES + 1))

    for entry in within(url, listed):
        yield entry.rstrip("/").rpartition("/")[2]


def _chunks(url: str) -> Iterator[bytes]:
    files, path = file_system(url)
    try:
        stream = within(url, lambda: files.open(path, "rb"))
    except RemoteError as error:
        if isinstance(error.__cause__, FileNotFoundError | IsADirectoryError):
            raise BundleDamagedError("no such file", file=shown(url)) from error
        raise
    with stream:
        while chunk := within(url, lambda: stream.read(_CHUNK)):
            yield chunk


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path there.

    Raises:
        RemoteError: fsspec or the package of the place is not installed, or the URL cannot be opened.
    """
    scheme = url.partition("://")[0]
    try:
        import fsspec
    except ImportError as error:
        raise RemoteError(
            f"{scheme}:// requires the package fsspec", expected="the extra: python requirements/install.py remote"
        ) from error
    try:
        files, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        expected = f"pip install {package}" if package else str(error)
        raise RemoteError(f"{scheme}:// requires another package", found=str(error), expected=expected) from error
    except Exception as error:  # each file system has exceptions of its own
        raise RemoteError(f"{shown(url)} cannot be opened: {error}") from error
    return files, path


def within(url: str, call: Callable[[], _T]) -> _T:
    """Return what a call to a remote gives within `PATIENCE_S`, whatever the remote does; raises RemoteError."""
    try:
        return time_limit.within(PATIENCE_S, call, lambda: None)
    except time_limit.TooLongError:
        raise RemoteError(f"{shown(url)} does not answer", expected=f"an answer within {PATIENCE_S:g} s") from None
    except BundleError:
        raise
    except Exception as error:  # each file system has exceptions of its own
        raise RemoteError(f"{shown(url)} cannot be read: {type(error).__name__}: {error}") from error
