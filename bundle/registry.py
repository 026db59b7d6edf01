"""Artifacts of OCI registries: files that `oras push` uploaded, or the folder `/models` of an image, as KServe has it.

A reference names a tag or the digest of a manifest; a manifest names its layers by digest. So everything that is read
is what the digest says. Only GET requests are made.

Source: OCI Distribution Specification 1.1 (pull), OCI Image Specification 1.1 (manifest, index, annotations).
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from bundle.errors import BundleDamagedError, BundleFormatError
from bundle.layers import place, safe_path, unpack
from bundle.references import OCI, oci_parts
from bundle.registry_login import authorization, is_local, refused
from bundle.remote import bounded, web_answer, web_chunks, web_client

MAX_LAYERS = 1024
"""Maximum layers of an artifact."""

_MAX_MANIFEST = 2**22
_TITLE = "org.opencontainers.image.title"
_UNPACK = "io.deis.oras.content.unpack"
_INDEXES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
}
_MANIFESTS = {"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"}
_CONFIGS = {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
_TAR = re.compile(r"application/vnd\.(oci\.image\.layer\.v1\.tar|docker\.image\.rootfs\.diff\.tar)([.+](gzip|zstd))?")
"""Types of a tar file; the uncompressed one is also what oras gives to any file, with a title."""
_PACKED = (".tar", ".tar.gz", ".tgz")
_EMPTY = "application/vnd.oci.empty.v1+json"
_IMAGE_FOLDER = "models"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class _Layer:
    sha256: str
    size: int
    name: PurePosixPath | None
    packed: bool


class Artifact:
    """An artifact as its manifest describes it.

    Args:
        address: `oci://HOST/REPOSITORY:TAG` or `oci://HOST/REPOSITORY@sha256:DIGEST`. A registry on this machine is
            reached without encryption, every other one with.

    Attributes:
        address: The address with the digest that its tag has now.

    Raises:
        BundleDamagedError: It does not exist, or differs from its digest.
        BundleFormatError: It is not an artifact of files.
        RemoteError: The registry cannot be reached, or requires a login.
    """

    def __init__(self, address: str) -> None:
        self._host, self._repository, tag, sha256 = oci_parts(address)
        scheme = "http" if is_local(httpx.URL(f"//{self._host}").host) else "https"
        self._base = f"{scheme}://{self._host}/v2/{self._repository}"
        self._client = web_client()
        self._authorization: str | None = None
        weakref.finalize(self, self._client.close)
        manifest, found = self._manifest(f"sha256:{sha256}" if sha256 else tag or "")
        self.address = f"{OCI}{self._host}/{self._repository}@sha256:{found}"
        try:
            if "manifests" in manifest:
                manifest, _ = self._manifest(f"sha256:{_one_of(manifest['manifests'])}")
            self._image = manifest["config"]["mediaType"] in _CONFIGS
            layers = [_layer(each, image=self._image) for each in manifest["layers"][: MAX_LAYERS + 1]]
        except (AttributeError, LookupError, TypeError) as error:
            raise BundleFormatError("the manifest is not valid", file=self.address, found=repr(error)[:200]) from error
        if len(layers) > MAX_LAYERS:
            raise BundleFormatError("the artifact has too many layers", expected=f"at most {MAX_LAYERS}")
        self._layers = [layer for layer in layers if layer is not None]

    def read(self, name: str, *, limit: int) -> bytes:
        """Return one file of at most `limit` bytes.

        Raises:
            BundleDamagedError: It does not exist, is too large, or differs from its digest.
            RemoteError: The registry cannot be reached.
        """
        if not any(layer.packed for layer in self._layers):
            named = {layer.name: layer for layer in self._layers if layer.name is not None}
            tops = {path.parts[0] for path in named}
            inside = len(tops) == 1 and all(len(path.parts) > 1 for path in named)
            layer = named.get(PurePosixPath(*tops, name) if inside else PurePosixPath(name))
            if layer is None:
                raise BundleDamagedError("no such file", file=f"{self.address}/{name}")
            return b"".join(self._blob(layer, limit))
        with TemporaryDirectory(prefix="candor-artifact-") as folder:
            path = self.pull(Path(folder)) / name
            if not path.is_file():
                raise BundleDamagedError("no such file", file=f"{self.address}/{name}")
            if path.stat().st_size > limit:
                raise BundleDamagedError("too large", file=name, expected=f"at most {limit} bytes")
            return path.read_bytes()

    def pull(self, folder: Path, *, limit: int = 2**32, step: Callable[[int], object] = lambda _: None) -> Path:
        """Write all files to a folder.

        Args:
            folder: Empty folder; incomplete after an error.
            limit: Maximum size of all layers, and of the content of each, in bytes.
            step: Called with the number of bytes so far.

        Returns:
            Where the files are: the folder, or the only folder in it.

        Raises:
            BundleDamagedError: A layer exceeds a limit, differs from its digest, or cannot be unpacked safely.
            RemoteError: The registry cannot be reached.
        """
        if sum(layer.size for layer in self._layers) > limit:
            raise BundleDamagedError("too large", file=self.address, expected=f"at most {limit} bytes")
        done = 0
        with TemporaryDirectory(dir=folder) as unfinished:
            packed, files = Path(unfinished) / "layer", Path(unfinished) / "files"
            files.mkdir()
            for layer in self._layers:
                target = packed if layer.name is None or layer.packed else place(files, layer.name)
                with target.open("wb") as stream:
                    for chunk in self._blob(layer, limit):
                        stream.write(chunk)
                        done += len(chunk)
                        step(done)
                if layer.packed:
                    unpack(packed, files, below=_IMAGE_FOLDER if self._image else "", limit=limit)
            for entry in list(files.iterdir()):
                entry.rename(folder / entry.name)
        found = list(folder.iterdir())
        return found[0] if len(found) == 1 and found[0].is_dir() else folder

    def _manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        accepted = ", ".join(sorted(_INDEXES | _MANIFESTS))
        content = b"".join(self._get(f"manifests/{reference}", _MAX_MANIFEST, {"Accept": accepted}))
        found = hashlib.sha256(content).hexdigest()
        if reference.startswith("sha256:") and reference != f"sha256:{found}":
            raise BundleDamagedError(
                "the manifest differs from its digest", found=f"sha256:{found}", expected=reference
            )
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BundleFormatError("the manifest is not valid JSON", file=self._base) from error
        if not isinstance(document, dict) or document.get("mediaType", min(_MANIFESTS)) not in _INDEXES | _MANIFESTS:
            raise BundleFormatError("not an artifact of files", file=self._base, expected="an OCI manifest")
        return document, found

    def _blob(self, layer: _Layer, limit: int) -> Iterator[bytes]:
        sha256 = hashlib.sha256()
        for chunk in self._get(f"blobs/sha256:{layer.sha256}", min(limit, layer.size), {}):
            sha256.update(chunk)
            yield chunk
        if sha256.hexdigest() != layer.sha256:
            raise BundleDamagedError(
                "a layer differs from its digest",
                file=None if layer.name is None else str(layer.name),
                found=f"sha256 {sha256.hexdigest()}",
                expected=f"sha256 {layer.sha256}",
            )

    def _get(self, path: str, limit: int, headers: dict[str, str]) -> Iterator[bytes]:
        url = f"{self._base}/{path}"
        answer = web_answer(self._client, url, self._with_login(headers))
        if answer.status_code == httpx.codes.UNAUTHORIZED and self._authorization is None:
            answer.close()
            challenge = answer.headers.get("www-authenticate", "")
            self._authorization = authorization(self._client, self._host, challenge)
            answer = web_answer(self._client, url, self._with_login(headers))
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise refused(self._host, "a login that it refuses")
        yield from bounded(web_chunks(answer, url), url, limit)

    def _with_login(self, headers: dict[str, str]) -> dict[str, str]:
        return headers if self._authorization is None else headers | {"Authorization": self._authorization}


def _layer(described: Any, *, image: bool) -> _Layer | None:
    """Return a layer of a manifest; None if it holds no files."""
    media_type, notes = described.get("mediaType"), described.get("annotations") or {}
    if media_type == _EMPTY:
        return None
    digest, size, title = described.get("digest"), described.get("size"), str(notes.get(_TITLE, ""))
    found = _DIGEST.fullmatch(str(digest))
    if found is None or type(size) is not int or size < 0:
        raise BundleFormatError("a layer has no valid digest or size", found=str(digest)[:100], expected="sha256:…")
    tar = _TAR.fullmatch(str(media_type))
    packed = (
        image
        or notes.get(_UNPACK) == "true"
        or title.endswith(_PACKED)
        or (tar is not None and (tar[2] is not None or not title))
    )
    if not packed and not title:
        raise BundleFormatError("a layer has no name", found=str(media_type)[:100], expected=_TITLE)
    return _Layer(found[1], size, safe_path(title) if title else None, packed)


def _one_of(manifests: Any) -> str:
    """Return the digest of the manifest for this processor, else of the first that is an image."""
    images = [
        (each["digest"], (each.get("platform") or {}).get("architecture"))
        for each in manifests
        if (each.get("platform") or {}).get("os") != "unknown"  # attestations
    ]
    own = _PROCESSORS.get(platform.machine(), platform.machine())
    chosen = next((digest for digest, processor in images if processor == own), images[0][0] if images else "")
    found = _DIGEST.fullmatch(chosen)
    if found is None:
        raise BundleFormatError("the index names no image", expected="a manifest with a sha256 digest")
    return found[1]
