"""A file of rows, opened by its ending and read block by block."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from importing.errors import RowsError
from importing.rows import csv_file, ndjson, parquet
from importing.rows.block import Block
from importing.rows.roles import Roles
from importing.rows.stream import COMPRESSED, Hashed, readable

SPELLED: Final = (".csv", ".tsv")
_LINES: Final = (*SPELLED, ".ndjson", ".jsonl")
ENDINGS: Final = (*_LINES, ".parquet")


@dataclass(frozen=True)
class Opened:
    """An open file.

    Attributes:
        blocks: Its rows, to be read once.
        sha256: Returns the sha256 of the file; called after the blocks were read.
        unit: What the blocks' line numbers count: "line" or "row".
        spelled: Whether numbers are written as text.
    """

    blocks: Iterator[Block]
    sha256: Callable[[], str]
    unit: str
    spelled: bool


@contextmanager
def opened(path: Path, roles: Roles) -> Iterator[Opened]:
    """Open a CSV, TSV, NDJSON or Parquet file; its errors are RowsError.

    Args:
        path: The file; its ending is one of `ENDINGS`, all but that of Parquet also with .gz or .bz2.
        roles: What its columns are.

    Raises:
        RowsError: The file has another ending or is empty, or it cannot be read; `where` names file and line.
    """
    ending = ending_of(path)
    if ending not in ENDINGS:
        raise RowsError("The file has an unknown ending.", where=str(path), expected=", ".join(ENDINGS))
    with readable(path), path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            raise RowsError("The file is empty.", where=str(path))
        if ending == ".parquet":
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            yield Opened(parquet.blocks(path, file, roles), lambda: digest, "row", spelled=False)
            return
        hashed = Hashed(file)
        read = csv_file.blocks if ending in SPELLED else ndjson.blocks
        yield Opened(read(path, hashed, roles.check), hashed.sha256, "line", spelled=ending in SPELLED)


def ending_of(path: Path) -> str:
    """Return the ending of a file that says its format, in lower case; "" if another one is compressed.

    >>> ending_of(Path("rows.CSV.gz")), ending_of(Path("rows.jsonl")), ending_of(Path("rows.parquet.gz"))
    ('.csv', '.ndjson', '')
    """
    *others, ending = "", *(suffix.lower() for suffix in path.suffixes)
    if ending in COMPRESSED:
        ending = others[-1] if others[-1] in _LINES else ""
    return ".ndjson" if ending == ".jsonl" else ending
