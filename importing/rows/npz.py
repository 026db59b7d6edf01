"""`.npz`: an array for each input under its name, and the label."""

from __future__ import annotations

import functools
import io
import math
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from importing.errors import RowsError
from importing.rows.block import Block, Values
from importing.rows.roles import Roles

_MAX_BYTES = 16 << 30
_MAX_HEADER = 4096
_LENGTHS = 26  # offset of the lengths of name and extra field in a member's local header


def arrays(path: Path, file: io.FileIO, roles: Roles) -> tuple[dict[str, NDArray[Any]], Block]:
    """Map the inputs (N, …) as stored, and the columns with a role (N,), into memory, as far as they are read.

    Args:
        path: The file.
        file: The same file, opened.
        roles: What the arrays are.

    Raises:
        RowsError: The archive is damaged, an array is pickled or too large, or arrays differ in length.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            roles.check([member.filename.removesuffix(".npy") for member in archive.infolist()], str(path))
            inputs, others = roles.inputs(tuple(members)), roles.others()
            used = {name: members[name] for name in {*inputs, *others}}
            _check_size(path, used.values())
            found = {name: _array(path, name, file, archive, member) for name, member in used.items()}
    except (RowsError, MemoryError):
        raise
    except Exception as error:  # zipfile and NumPy raise nearly anything on hostile bytes
        raise RowsError(f"The file is not a valid .npz file: {error}.", where=str(path)) from error
    first = roles.label or roles.marks[0]
    label = found[first]
    for name in (first, *found):
        array, flat = found[name], name in others
        if array.ndim < 1 or (flat and array.ndim != 1) or len(array) != len(label) or 0 in array.shape[1:]:
            shape = f"({len(label) if label.ndim else 'N'}{',' if flat else ', …'})"
            raise RowsError(
                "The array has the wrong shape.",
                where=f"{path}, array {name}",
                found=str(array.shape),
                expected=f"{shape}, one entry for each label, no axis of size 0",
            )
    columns: dict[str, Values] = {name: found[name] for name in others}
    return {name: found[name] for name in inputs}, Block(columns, np.arange(1, len(label) + 1))


def _check_size(path: Path, members: Collection[zipfile.ZipInfo]) -> None:
    total = sum(member.file_size for member in members)
    if total > _MAX_BYTES:
        expected = f"at most {_MAX_BYTES}"
        raise RowsError("The arrays are too large.", where=str(path), found=f"{total} bytes", expected=expected)
    folder = tempfile.gettempdir()
    packed = sum(member.file_size for member in members if member.compress_type != zipfile.ZIP_STORED)
    if packed > (room := shutil.disk_usage(folder).free // 2):
        raise RowsError(
            "The compressed arrays are too large to unpack.",
            where=str(path),
            found=f"{packed} bytes",
            expected=f"at most {room}, half of what is free in {folder}",
            remedy="Save them without compression (numpy.savez), or set TMPDIR to a folder with more room.",
        )


def _array(path: Path, name: str, file: io.FileIO, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    where = f"{path}, array {name}"
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise RowsError(
                "The array has an unknown format.", where=where, found=f"npy version {version}", expected="1.0 or 2.0"
            )
        shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
        begin = stream.tell()
        _check(where, shape, dtype, member.file_size - begin)
        if not math.prod(shape):
            return np.empty(shape, dtype)
        mapped: Callable[..., NDArray[Any]] = functools.partial(
            np.memmap, dtype=dtype, mode="r", shape=shape, order="F" if fortran else "C"
        )
        if member.compress_type == zipfile.ZIP_STORED:
            file.seek(member.header_offset + _LENGTHS)
            lengths = struct.unpack("<HH", file.read(4))
            array = mapped(file, offset=file.tell() + sum(lengths) + begin)
        else:
            with tempfile.TemporaryFile() as unpacked:
                shutil.copyfileobj(stream, unpacked)
                unpacked.flush()
                array = mapped(unpacked)
    return np.char.decode(array, "utf-8") if dtype.kind == "S" else array


def _check(where: str, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    if dtype.hasobject:
        raise RowsError(
            "The array is pickled, and unpickling can run code.",
            where=where,
            expected="numbers or fixed-width strings",
            remedy="Save it with astype(str) or a number type.",
        )
    if dtype.kind not in "biufUS" or not dtype.itemsize:  # texts of no characters: a header could claim any number
        raise RowsError("The array has an unknown type.", where=where, found=str(dtype), expected="numbers or strings")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != size:
        raise RowsError("The array is damaged.", where=where, found=f"{size} bytes", expected=f"{shape} of {dtype}")
