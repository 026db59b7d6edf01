"""Unpacking layers of an artifact: tar files, also compressed ones, whose author may mean harm."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import IO, cast

from bundle.errors import BundleDamagedError

MAX_FILES = 10_000
"""Maximum entries of a layer."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LONGEST = 2**16
_EXTENSIONS = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME}
_CHUNK = 2**20


def unpack(layer: Path, folder: Path, *, below: str, limit: int) -> None:
    """Write the files in a layer to a folder; those of a later layer replace those of an earlier one.

    Args:
        layer: A tar file, as it is or compressed with gzip.
        folder: The folder.
        below: Folder in the layer whose files are written without it, such as `models`; the rest is ignored. Empty for
            all files.
        limit: Maximum size of the layer's content in bytes.

    Raises:
        BundleDamagedError: It is not a valid tar file, exceeds a limit, or has a link, a device, or a name that leads
            elsewhere.
    """
    with layer.open("rb") as packed:
        start = packed.read(4)
        packed.seek(0)
        if start == _ZSTD:
            raise BundleDamagedError(
                "a layer is compressed with zstd",
                expected="gzip, or no compression: skopeo copy --dest-compress-format gzip",
            )
        stream = gzip.GzipFile(fileobj=packed) if start.startswith(_GZIP) else packed
        try:
            with tarfile.open(fileobj=_Limited(stream, limit), mode="r|", tarinfo=_Entry) as archive:  # type: ignore[call-overload]
                _extract(archive, folder, below)
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError) as error:
            raise BundleDamagedError(f"a layer is not a valid tar file: {error}") from error


def safe_path(name: str) -> PurePosixPath:
    """Return a name as a relative path; raises BundleDamagedError if it leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        raise BundleDamagedError("a name in the artifact leads elsewhere", found=repr(name)[:200])
    return path


def place(folder: Path, path: PurePosixPath) -> Path:
    """Return a new file below a folder, its own folders made; raises BundleDamagedError where a file is in its way."""
    target = folder / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise BundleDamagedError("a file and a folder have one name", file=str(path)[:200]) from error
    return target


def _extract(archive: tarfile.TarFile, folder: Path, below: str) -> None:
    for number, entry in enumerate(archive, 1):
        if number > MAX_FILES:
            raise BundleDamagedError("a layer has too many entries", expected=f"at most {MAX_FILES}")
        path = PurePosixPath(entry.name)
        if below:
            if path.parts[:1] != (below,):
                continue
            path = path.relative_to(below)
        path = safe_path(str(path))
        if entry.isdir():
            continue
        if not entry.isreg() or entry.issparse() or path.name.startswith(".wh."):
            raise BundleDamagedError(
                "a layer has an entry that is not a file or a folder",
                file=str(path)[:200],
                found="the removal of a file" if path.name.startswith(".wh.") else "a link, a device, or a sparse file",
            )
        content = cast("IO[bytes]", archive.extractfile(entry))
        with place(folder, path).open("xb") as file:
            copyfileobj(content, file, _CHUNK)


class _Entry(tarfile.TarInfo):
    """An entry whose extended header is small: tarfile reads it as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_SPARSE or (
            found.type in {*_EXTENSIONS, tarfile.GNUTYPE_LONGLINK} and found.size > _LONGEST
        ):
            raise tarfile.ReadError(f"an extended header of {found.size} bytes")
        return found


class _Limited:
    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        self._left -= len(found)
        if self._left < 0:
            raise BundleDamagedError("a layer is too large unpacked")
        return found
