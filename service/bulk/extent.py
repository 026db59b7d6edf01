"""How many rows a run has: as its files state it, otherwise estimated from what was read so far."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Final

from numpy.lib import format as npy

_MAGIC: Final = b"PAR1"
_NUM_ROWS: Final = 3  # the field of Parquet's FileMetaData


class Extent:
    """Counts the rows of a run while its files are read.

    Args:
        sizes: Bytes of each file as it is stored; None where the place does not say.
    """

    def __init__(self, sizes: Iterable[int | None]) -> None:
        known = list(sizes)
        self._bytes = None if None in known else sum(size or 0 for size in known)
        self._before = self._now = (0, 0)

    def saw(self, rows: int, size: int) -> None:
        """Note how many rows are in the bytes of the current file that were read."""
        self._now = rows, size

    def next_file(self) -> None:
        """Note that the current file has ended."""
        self._before = self._before[0] + self._now[0], self._before[1] + self._now[1]
        self._now = 0, 0

    @property
    def rows(self) -> int | None:
        """Rows of all files together, if those to come are like those that were seen; None while that is unknown."""
        rows, size = (before + now for before, now in zip(self._before, self._now, strict=True))
        if self._bytes is None or not size:
            return None
        return round(rows * max(1.0, self._bytes / size))


def rows_of_npz(stream: IO[bytes]) -> int | None:
    """Return the rows of an npz archive by the header of its first array; None if it is damaged."""
    with (
        suppress(OSError, ValueError, LookupError, zipfile.BadZipFile),
        zipfile.ZipFile(stream) as archive,
        archive.open(archive.namelist()[0]) as member,
    ):
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(member)]
        return int(read(member)[0][0])
    return None


def rows_of_parquet(stream: IO[bytes]) -> int | None:
    """Return the rows of a Parquet file by its footer; None if it is damaged or encrypted."""
    with suppress(OSError, ValueError, LookupError, struct.error, RecursionError):
        stream.seek(-8, 2)
        length, magic = struct.unpack("<I4s", stream.read(8))
        if magic == _MAGIC:
            stream.seek(-8 - length, 2)
            return _Thrift(stream.read(length)).integer_field(_NUM_ROWS)
    return None


class _Thrift:
    """Reads integers of a struct in Thrift's compact protocol."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def integer_field(self, wanted: int) -> int | None:
        """Return an integer field of the struct that begins here."""
        number = 0
        while (kind := self._byte()) != 0:
            number = number + (kind >> 4) if kind >> 4 else self._zigzag()
            if number == wanted:
                return self._zigzag()
            self._skip(kind & 15)
        return None

    def _byte(self, count: int = 1) -> int:
        """Move on by some bytes and return the last of them; raise IndexError beyond the end."""
        self._at += count
        return self._content[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | (byte << shift)

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, *, element: bool = False) -> None:
        if kind in (1, 2):
            self._byte(int(element))  # as a field, its kind is its value
        elif kind in (4, 5, 6):
            self._varint()
        elif kind in (3, 7):
            self._byte(1 if kind == 3 else 8)
        elif kind == 8:
            self._byte(self._varint())
        elif kind in (9, 10):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._skip(head & 15, element=True)
        elif kind == 12:
            self.integer_field(-1)
        else:
            raise ValueError(f"kind {kind}")
