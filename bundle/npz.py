"""Reading and writing `.npz` archives without pickle and within limits.

`numpy.load` allocates the size in a header before it reads the data, and accepts any member name. This reader accepts
only the expected members, up to a limit.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bundle.errors import BundleFormatError

MAX_BYTES = 2**30
_MAX_HEADER = 4096
_EPOCH = (1980, 1, 1, 0, 0, 0)


def dump(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the arrays as one compressed archive; equal arrays give equal bytes.

    Args:
        arrays: Arrays by name, of numbers, booleans or fixed-width bytes or text, not objects.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            npy.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue())
    return buffer.getvalue()


def load(
    data: bytes,
    names: frozenset[str],
    *,
    file: str,
    optional: frozenset[str] = frozenset(),
    max_bytes: int = MAX_BYTES,
) -> dict[str, NDArray[Any]]:
    """Read an archive that contains exactly `names`, and perhaps some of `optional`.

    Args:
        data: The archive's bytes.
        names: Names of the required arrays; others are refused.
        optional: Names of arrays that may be absent.
        file: Name of the archive for error messages.
        max_bytes: Maximum sum of the arrays' unpacked sizes.

    Returns:
        The arrays by name, read-only.

    Raises:
        BundleFormatError: The archive has other members, object arrays, too large a size, or damaged data.
    """
    with _broken_as_ours(file), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        found = sorted(member.filename for member in members)
        expected = sorted(f"{name}.npy" for name in names)
        extra = {f"{name}.npy" for name in optional}
        if sorted(name for name in found if name not in extra) != expected or len(set(found)) < len(found):
            raise BundleFormatError(
                "the archive contains other arrays",
                file=file,
                found=", ".join(found)[:300],
                expected=", ".join(expected),
            )
        total = sum(member.file_size for member in members)
        if total > max_bytes:
            raise BundleFormatError(
                "the archive is too large unpacked", file=file, found=f"{total} bytes", expected=f"at most {max_bytes}"
            )
        return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}


@contextmanager
def _broken_as_ours(file: str) -> Iterator[None]:
    """Turn everything that zipfile and NumPy raise into a BundleFormatError."""
    try:
        yield
    except (BundleFormatError, MemoryError):
        raise
    except Exception as error:  # their parsers raise nearly anything on hostile bytes
        raise BundleFormatError(f"the archive cannot be read: {error}", file=file) from error


def _array(member: bytes) -> NDArray[Any]:
    stream = io.BytesIO(member)
    version = npy.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"npy format version {version}, expected (1, 0)")
    shape, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
    if dtype.kind not in "buifSU" or fortran:
        raise ValueError(f"an array of type {dtype.str}, expected row-major numbers, booleans or fixed-width text")
    body = member[stream.tell() :]
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError(f"{len(body)} bytes do not make an array {shape} of {dtype.str}")
    return np.frombuffer(body, dtype).reshape(shape)
