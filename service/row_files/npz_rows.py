"""Read rows of NumPy `.npz` archives in batches, without pickle, within a size limit."""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from service.errors import BodyTooLargeError, CandorError, InputShapeError, InputTypeError, MalformedBodyError
from service.row_files.layout import LABEL, OPTIONAL, Batch

_MAX_HEADER: Final = 4096
_MOST_MEMBERS: Final = 10_000
_BYTES_PER_BATCH: Final = 4 << 20
_LARGEST_ROW: Final = 64 << 20
_NUMBERS: Final = "biuf"


@dataclass(frozen=True, slots=True)
class _Member:
    """An array with rows still to be read.

    Attributes:
        name: Name of the array.
        stream: Stream after its header.
        rows: Length of its first axis.
        dtype: Type of an entry.
        shape: Shape of a row.
    """

    name: str
    stream: IO[bytes]
    rows: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def read(self, rows: int) -> npt.NDArray[Any]:
        data = self.stream.read(rows * self.row_bytes)
        if len(data) != rows * self.row_bytes:
            raise ValueError(f"the array {self.name!r} ends too early")
        found = np.frombuffer(data, self.dtype).reshape(rows, *self.shape)
        return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def read_npz(path: Path | IO[bytes], *, limit: int, batch_rows: int | None = None) -> Iterator[Batch]:
    """Yield the rows of an archive of arrays with one entry per row.

    Args:
        path: The file, or its opened content.
        limit: Maximum bytes of all arrays together.
        batch_rows: Maximum rows per batch; None for as many as fit into some megabytes.

    Raises:
        MalformedBodyError: The file is damaged or not an npz archive.
        BodyTooLargeError: The arrays exceed `limit`.
        InputTypeError: An array contains other types than numbers, texts and times.
        InputShapeError: The arrays differ in length.
    """
    with ExitStack() as stack:
        with _broken_as_ours():
            members = _open(stack.enter_context(zipfile.ZipFile(path)), stack, limit)
        size = max(1, _BYTES_PER_BATCH // max(1, sum(member.row_bytes for member in members)))
        size = size if batch_rows is None else min(size, batch_rows)
        rows = members[0].rows if members else 0
        for first in range(0, rows, size):
            count = min(size, rows - first)
            with _broken_as_ours():
                columns = {member.name: _values(member, count) for member in members}
            yield Batch(count, columns, _Places(first))


@contextmanager
def _broken_as_ours() -> Iterator[None]:
    """Turn errors of zipfile and NumPy into MalformedBodyError."""
    try:
        yield
    except (CandorError, MemoryError):
        raise
    except Exception as error:  # zipfile and NumPy's parser raise nearly anything on hostile bytes
        raise MalformedBodyError(
            f"The archive cannot be read: {error}.",
            found=str(error)[:200],
            expected="an archive written by numpy.savez: one array of numbers or texts per column, no objects",
        ) from error


@dataclass(frozen=True, slots=True)
class _Places:
    first: int

    def __call__(self, row: int, name: str | None) -> str:
        return f"row {self.first + row + 1}" + ("" if name is None else f", {name}")


def _open(archive: zipfile.ZipFile, stack: ExitStack, limit: int) -> list[_Member]:
    infos = archive.infolist()
    names = [info.filename.removesuffix(".npy") for info in infos]
    if len(set(names)) != len(names) or len(names) > _MOST_MEMBERS:
        raise ValueError("its members are not distinct" if len(names) <= _MOST_MEMBERS else "it has too many members")
    total = sum(info.file_size for info in infos)
    if total > limit:
        raise BodyTooLargeError(
            "The unpacked archive is too large.",
            found=f"{total} bytes",
            expected=f"at most {limit} bytes",
            remedy="Upload fewer rows, or raise CANDOR_MAX_UPLOAD_BYTES.",
        )
    members = [
        _member(name, stack.enter_context(archive.open(info)), info.file_size, stack)
        for name, info in zip(names, infos, strict=True)
    ]
    lengths = {member.name: member.rows for member in members}
    if len(set(lengths.values())) > 1:
        raise InputShapeError("The arrays differ in length.", found=lengths, expected="one entry per row")
    return members


def _member(name: str, stream: IO[bytes], size: int, stack: ExitStack) -> _Member:
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"the array {name!r} is in npy format {version}; only 1.0 and 2.0 are supported")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
    if dtype.hasobject or dtype.kind not in _NUMBERS + "USM":
        raise InputTypeError(
            f"The array {name!r} contains objects.",
            where=name,
            found=str(dtype),
            expected="numbers, texts of a fixed width, or times",
            remedy="Make it with dtype=str where it holds texts; nothing is unpickled here.",
        )
    if not shape or any(type(side) is not int or side < 0 for side in shape):
        raise InputShapeError(
            f"The array {name!r} has no rows.", where=name, found=list(shape), expected="one entry per row"
        )
    found = _Member(name, stream, shape[0], dtype, tuple(shape[1:]))
    if found.rows * found.row_bytes != size - stream.tell():
        raise ValueError(f"the length of the array {name!r} does not match its header")
    if not found.row_bytes:  # a header alone could claim any number of them
        raise InputShapeError(
            "A row has no values.", where=name, found=f"{dtype} {list(shape)}", expected="at least one value per row"
        )
    if found.row_bytes > _LARGEST_ROW:
        raise InputShapeError(
            "A row is too large.", where=name, found=f"{found.row_bytes} bytes", expected=f"at most {_LARGEST_ROW}"
        )
    if name in (LABEL, *OPTIONAL) and found.shape:
        raise InputShapeError(
            f"The array {name!r} has several entries per row.", where=name, found=list(shape), expected=["rows"]
        )
    return replace(found, stream=_by_row(found, stack)) if fortran and found.shape and found.rows else found


def _by_row(member: _Member, stack: ExitStack) -> IO[bytes]:
    """Return the rows of an array that is stored column by column (in Fortran order), from a temporary file."""
    with tempfile.TemporaryFile() as stored:
        shutil.copyfileobj(member.stream, stored)
        stored.flush()
        array = np.memmap(stored, member.dtype, "r", shape=(member.rows, *member.shape), order="F")
        rows = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 — the stack closes it
        step = max(1, _BYTES_PER_BATCH // member.row_bytes)
        for first in range(0, member.rows, step):
            rows.write(array[first : first + step].tobytes())
    rows.seek(0)
    return rows


def _values(member: _Member, rows: int) -> npt.NDArray[Any] | list[Any]:
    """Return rows as an array of numbers or times, texts as a list."""
    found = member.read(rows)
    if found.dtype.kind == "S":
        return [text.decode() for text in found.tolist()]
    return found.tolist() if found.dtype.kind == "U" else found
