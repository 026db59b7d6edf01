"""Model files before a library reads them: regular files, and none that runs code when it is read."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bundle.muted import muted
from importing.errors import UnsafeFileError, UnsupportedModelError
from importing.limits import MAX_BYTES

_HEAD = 64
_PLACE = re.compile(r"\[[\d:]+\] \S+:\d+: ")  # time and line of source code, as XGBoost begins its messages
_PICKLES = (".pkl", ".pickle", ".joblib")
_PROTOCOLS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_COMPRESSED = (  # as joblib writes pickles: zlib, gzip, bzip2, xz, lzma, lz4
    *(b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
    *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00", b"\x04\x22\x4d\x18"),
)


def read_model(
    path: Path,
    library: str,
    load: Callable[[Path], Any],
    errors: type[Exception],
    *,
    begins: bytes,
    expected: str,
    remedy: str,
) -> Any:
    """Return a model that a library reads from its own file.

    Args:
        path: The file.
        library: Name of the library, for messages.
        load: Reads the file.
        errors: What the library raises, besides ValueError.
        begins: How a file of the library begins, after white space.
        expected: The same for people.
        remedy: How to write such a file.

    Raises:
        UnsupportedModelError: The path is not a file of the library, or the library cannot read it.
        UnsafeFileError: The file is a pickle.
    """
    head = readable(path, library)
    if not head.lstrip().startswith(begins):
        raise UnsupportedModelError(
            f"not a model of {library}", where=str(path), found=repr(head[:40]), expected=expected, remedy=remedy
        )
    try:
        with muted():
            return load(path)
    except (errors, ValueError) as error:
        said = _PLACE.sub("", str(error).partition("Stack trace:")[0]).strip()
        raise UnsupportedModelError(f"{library} cannot read the model", where=str(path), found=said[:300]) from error


def readable(path: Path, library: str) -> bytes:
    """Return the first bytes of a model file.

    Args:
        path: The file.
        library: Library that wrote it, for the message.

    Raises:
        UnsupportedModelError: The path is not a file, or the file exceeds `MAX_BYTES`.
        UnsafeFileError: The file is a pickle, whatever its name says.
    """
    if not path.is_file():
        raise UnsupportedModelError("no such file", where=str(path), expected=f"a model of {library}")
    if (size := path.stat().st_size) > MAX_BYTES:
        raise UnsupportedModelError(
            "the model's file is too large", where=str(path), found=f"{size:,} bytes", expected=f"at most {MAX_BYTES:,}"
        )
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if pickled := _pickled(path, head):
        raise UnsafeFileError(
            "reading a pickle runs the code in it",
            where=str(path),
            found=pickled,
            expected=f"a model in the format of {library} itself",
            remedy="In the process that has the model, call candor.import_model(model, X, y, name=…, out=…).",
        )
    return head


def _pickled(path: Path, head: bytes) -> str | None:
    if head.startswith(_PROTOCOLS):
        return "a pickle, as joblib writes too"
    if head.startswith(_COMPRESSED):
        return "a compressed file, as joblib writes"
    if head.startswith(b"PK") and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.endswith(_PICKLES)]
        return f"a zip file with a pickle in it ({inside[0]})" if inside else None
    return "a pickle by its name" if path.suffix.lower() in _PICKLES else None
