"""`.npz`: an array for each input under its name, and the label."""

from __future__ import annotations

import io
import math
import zipfile
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


def arrays(path: Path, file: io.FileIO, roles: Roles) -> tuple[dict[str, NDArray[Any]], Block]:
    """Read the inputs (N, …) as stored, and the columns with a role (N,).

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
            _check_size(path, sum(member.file_size for member in members.values()))
            inputs, others = roles.inputs(tuple(members)), roles.others()
            found = {name: _array(path, name, archive.read(members[name])) for name in {*inputs, *others}}
    except (RowsError, MemoryError):
        raise
    except Exception as error:  # zipfile and NumPy raise nearly anything on hostile bytes
        raise RowsError(f"The file is not a valid .npz file: {error}.", where=str(path)) from error
    label = found[roles.label]
    for name in (roles.label, *found):
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


def _check_size(path: Path, total: int) -> None:
    if total > _MAX_BYTES:
        expected = f"at most {_MAX_BYTES}"
        raise RowsError("The arrays are too large.", where=str(path), found=f"{total} bytes", expected=expected)


def _array(path: Path, name: str, member: bytes) -> NDArray[Any]:
    where = f"{path}, array {name}"
    stream = io.BytesIO(member)
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise RowsError(
            "The array has an unknown format.", where=where, found=f"npy version {version}", expected="1.0 or 2.0"
        )
    shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
    if dtype.hasobject:
        raise RowsError(
            "The array is pickled, and unpickling can run code.",
            where=where,
            expected="numbers or fixed-width strings",
            remedy="Save it with astype(str) or a number type.",
        )
    if dtype.kind not in "biufUS":
        raise RowsError("The array has an unknown type.", where=where, found=str(dtype), expected="numbers or strings")
    body = memoryview(member)[stream.tell() :]
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(body):
        raise RowsError(
            "The array is damaged.", where=where, found=f"{len(body)} bytes", expected=f"{shape} of {dtype}"
        )
    array: NDArray[Any] = np.frombuffer(body, dtype) if dtype.itemsize else np.zeros(math.prod(shape), dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return np.char.decode(array, "utf-8") if dtype.kind == "S" else array
