"""Files as streams of lines: hashed as stored, decompressed, decoded as UTF-8."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from importing.errors import RowsError

COMPRESSED: Final = (".gz", ".bz2")
_BUFFER = 1 << 20
MAX_LINE: Final = 64 << 20
"""Maximum bytes of a line."""


class Hashed(io.RawIOBase):
    """A file whose bytes are hashed as they are read, from the first to the last."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read and hash."""
        size = self._file.readinto(buffer) or 0
        self._hash.update(memoryview(buffer)[:size])
        return size

    def sha256(self) -> str:
        """Read what is left; return the digest of the whole file in hex."""
        while chunk := self._file.read(_BUFFER):
            self._hash.update(chunk)
        return self._hash.hexdigest()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the system and decompressors raise about a file into RowsError."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of gzip and bz2
            raise _damaged(path, error) from error
        raise RowsError(f"The file cannot be read: {error.strerror}.", where=str(path)) from error
    except (EOFError, zlib.error) as error:
        raise _damaged(path, error) from error


def lines_of(path: Path, file: io.RawIOBase | io.BytesIO, first: int = 1) -> Iterator[str]:
    """Yield the lines of a text file with their ends; a byte order mark is skipped.

    Args:
        path: The file; its ending says how it is compressed.
        file: The same file, opened.
        first: Number of the first line.

    Raises:
        RowsError: A line is not UTF-8 or too long.
    """
    stream: BinaryIO = io.BufferedReader(file, _BUFFER)
    match path.suffix.lower():
        case ".gz":
            stream = io.BufferedReader(gzip.GzipFile(fileobj=stream), _BUFFER)
        case ".bz2":
            stream = io.BufferedReader(bz2.BZ2File(stream), _BUFFER)
    number = first - 1
    while line := stream.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            raise RowsError(
                "The line is too long.", where=f"{path}, line {number}", expected=f"at most {MAX_LINE} bytes"
            )
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise RowsError(
                "The file is not UTF-8.",
                where=f"{path}, line {number}",
                found=f"byte 0x{line[error.start]:02x}",
                remedy="Save it as UTF-8.",
            ) from None


def _damaged(path: Path, error: Exception) -> RowsError:
    return RowsError(f"The compressed file is damaged: {str(error).rstrip('.')}.", where=str(path))
