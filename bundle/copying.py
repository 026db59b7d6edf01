"""Copies of bundles that lie elsewhere: exactly the files that the manifest names, each with its digest."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bundle import mlflow_registry, remote
from bundle.errors import BundleDamagedError, RemoteError
from bundle.manifest import MANIFEST_FILE, SIGNATURES_FILE, SIGSTORE_FILE, Manifest, load
from bundle.reader import MAX_FILES, limit_of
from bundle.references import MLFLOW, OCI
from bundle.registry import Artifact
from bundle.signatures import MAX_BYTES as MAX_SIGNATURES

MAX_BYTES = 2**32
"""Maximum size of a copied bundle."""

_SIGNATURES = (SIGNATURES_FILE, SIGSTORE_FILE)
_MAX_MANIFEST = limit_of(MANIFEST_FILE)


def pinned(url: str) -> str:
    """Return the address of a remote bundle: with the digest or version that its tag or alias in a registry names now.

    Raises:
        BundleFormatError: The artifact is not one of files.
        RemoteError: It does not exist, or cannot be reached.
    """
    if url.startswith(MLFLOW):
        return mlflow_registry.resolved(url)
    if not url.startswith(OCI):
        return url
    try:
        return Artifact(url).address
    except BundleDamagedError as error:
        raise RemoteError(f"{url} cannot be found: {error}") from error


def remote_manifest(url: str) -> tuple[Manifest, bytes]:
    """Return the manifest of a remote bundle, and its bytes.

    Raises:
        BundleDamagedError: It is missing or altered.
        BundleFormatError: It has another schema.
        RemoteError: It cannot be reached.
    """
    if url.startswith(OCI):
        data = _artifact_s(url)
    elif url.startswith(MLFLOW):
        data = mlflow_registry.read(url, MANIFEST_FILE, limit=_MAX_MANIFEST)
    else:
        data = remote.read(f"{url}/{MANIFEST_FILE}", limit=_MAX_MANIFEST)
    return load(data), data


def copy(url: str, manifest: Manifest, manifest_bytes: bytes, target: Path) -> None:
    """Write a remote bundle, with its signatures, into a new folder. Other files there are not read.

    Args:
        url: The bundle's folder, an artifact in a registry, or a version in MLflow's.
        manifest: Its manifest; its schema allows no other file names than those of bundles.
        manifest_bytes: The bytes of the manifest.
        target: Folder to create; incomplete after an error.

    Raises:
        BundleDamagedError: A file is missing, too large, or differs from the manifest.
        RemoteError: A file cannot be reached.
    """
    if len(manifest.files) >= MAX_FILES:
        raise BundleDamagedError("the bundle has too many files", found=str(len(manifest.files)))
    if url.startswith((OCI, MLFLOW)):
        with TemporaryDirectory(dir=target) as folder:
            whole = Path(folder)
            files = mlflow_registry.download(url, whole) if url.startswith(MLFLOW) else _pulled(url, whole)
            for name, expected in manifest.files.items():
                _take(files / name, target / name, expected, name)
            for name in _SIGNATURES:
                signatures = files / name
                if signatures.is_file() and signatures.stat().st_size <= MAX_SIGNATURES:
                    signatures.rename(target / name)
    else:
        left = MAX_BYTES
        for name, expected in manifest.files.items():
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            _check(name, remote.fetch(f"{url}/{name}", file, limit=min(left, limit_of(name))), expected)
            left -= file.stat().st_size
        for name in _SIGNATURES:
            with suppress(BundleDamagedError):  # not signed
                (target / name).write_bytes(remote.read(f"{url}/{name}", limit=MAX_SIGNATURES))
    (target / MANIFEST_FILE).write_bytes(manifest_bytes)


def _pulled(url: str, folder: Path) -> Path:
    return Artifact(url).pull(folder, limit=MAX_BYTES)


def _take(source: Path, target: Path, expected: str, name: str) -> None:
    if not source.is_file():
        raise BundleDamagedError("no such file", file=name)
    if source.stat().st_size > limit_of(name):
        raise BundleDamagedError("too large", file=name, expected=f"at most {limit_of(name)} bytes")
    with source.open("rb") as stream:
        _check(name, hashlib.file_digest(stream, "sha256").hexdigest(), expected)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _check(name: str, found: str, expected: str) -> None:
    if found != expected:
        raise BundleDamagedError(
            "differs from the manifest", file=name, found=f"sha256 {found}", expected=f"sha256 {expected}"
        )


@lru_cache(maxsize=16)
def _artifact_s(address: str) -> bytes:
    """Return the manifest of a bundle by the digest of its artifact; of a tar file, this fetches all of it."""
    return Artifact(address).read(MANIFEST_FILE, limit=_MAX_MANIFEST)
