"""Remote files: what is fetched, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bundle import BundleDamagedError, BundleError, RemoteError, remote
from bundle.references import Reference

DIGEST = 64 * "a"


@pytest.fixture
def serve() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def run(handler: Any) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield run
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def answering(content: Iterator[bytes], status: int = 200, **headers: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for chunk in content:
                try:
                    self.wfile.write(chunk)
                except OSError:
                    return

        def log_message(self, *_: Any) -> None: ...

    return Handler


def folder_of(path: Path) -> Any:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(path))

        def log_message(self, *_: Any) -> None: ...

    return Handler


@pytest.mark.parametrize(
    "text", ["var/bundles", "s3://models/digits/3", "models:/fraud@champion", "a@sha256", "memory://"]
)
def test_an_address_without_a_digest_stays_as_it_is(text: str) -> None:
    assert Reference.parse(text) == Reference(text)
    assert Reference.parse(f"{text}@sha256:{DIGEST}") == Reference(text, DIGEST)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3://models@sha256:12", "not a valid digest"),
        ("https://someone:secret@host/models", "contains a password"),
        ("zip://model.onnx::s3://bucket/a.zip", "several file systems"),
    ],
)
def test_references_that_cannot_be_read_are_named(text: str, told: str) -> None:
    with pytest.raises(BundleError, match=told) as refused:
        Reference.parse(text)
    assert "secret" not in str(refused.value)


def test_files_of_a_web_server_a_folder_and_memory_are_the_same(serve: Any, memory: Any, tmp_path: Path) -> None:
    (tmp_path / "from" / "b ü").mkdir(parents=True)
    (tmp_path / "from" / "a.bin").write_bytes(content := bytes(range(256)) * 9000)
    memory.pipe({"/m/from/a.bin": content, "/m/from/b ü/c": b""})
    for place, url in enumerate([serve(folder_of(tmp_path)), f"file://{tmp_path}", "memory://m"]):
        base = f"{url}/from"
        assert remote.names(base) == ["a.bin", "b ü"]
        sizes: list[int] = []
        target = tmp_path / str(place)
        digest = remote.fetch(f"{base}/a.bin", target, limit=len(content), step=sizes.append)
        assert (digest, target.read_bytes()) == (hashlib.sha256(content).hexdigest(), content)
        assert sizes[-1] == len(content)
        with pytest.raises(BundleDamagedError, match="too large"):
            remote.read(f"{base}/a.bin", limit=len(content) - 1)
        with pytest.raises(BundleDamagedError, match="no such file"):
            remote.read(f"{base}/missing", limit=1)
        with pytest.raises(RemoteError):
            remote.names(f"{base}/missing")


def test_names_lead_nowhere_else(serve: Any) -> None:
    links = [
        "../up",
        "/etc/passwd",
        "http://elsewhere/x",
        "a/../../b",
        "..",
        ".",
        "%2e%2e/x",
        "..%2fpasswd",
        "good",
        "fine/",
    ]
    page = "".join(f'<a href="{link}">x</a>' for link in links).encode()
    names = remote.names(serve(answering(iter([page]))) + "/models")
    assert names == ["fine", "good"]


def test_endless_answers_end(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (f'<a href="{number}">x</a>'.encode() * 500 for number in itertools.count())
    with pytest.raises(RemoteError, match="too large"):
        remote.names(serve(answering(endless)))
    with pytest.raises(BundleDamagedError, match="too large"):
        remote.read(serve(answering(itertools.repeat(bytes(2**16)))) + "/x", limit=2**20)
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *_, **__: (f"/m/{number}" for number in itertools.count()))
    with pytest.raises(RemoteError, match="too many entries"):
        remote.names("memory://m")


def test_one_that_never_answers_is_given_up(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE_S", 0.05)
    stop = threading.Event()
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *_, **__: stop.wait())
    with pytest.raises(RemoteError, match="does not answer"):
        remote.names("memory://m")
    stop.set()


def test_a_compressed_answer_is_not_unpacked(serve: Any) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    url = serve(answering(iter([bomb]), **{"Content-Encoding": "gzip"}))
    assert remote.read(f"{url}/x", limit=100_000) == bomb


def test_other_statuses_and_addresses_are_named(serve: Any) -> None:
    with pytest.raises(RemoteError, match="status 403"):
        remote.read(serve(answering(iter([b""]), 403)) + "/x?signature=secret", limit=1)
    with pytest.raises(RemoteError, match="cannot be reached") as refused:
        remote.read("http://127.0.0.1:9/x?signature=secret", limit=1)
    assert "secret" not in str(refused.value)


def test_a_missing_package_is_named() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(RemoteError, match=r"pip install s3fs"):
        remote.names("s3://bucket/models")
