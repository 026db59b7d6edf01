"""Parquet, read in batches with arro3 (extra `parquet`)."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bundle.muted import muted
from importing.errors import RowsError
from importing.rows.block import Block, Values
from importing.rows.roles import Roles

_BLOCK = 65_536
_READ = """
import sys
from arro3.io import read_parquet
for path in sys.stdin.read().split(chr(0)):
    print(path, flush=True)
    try:
        for _ in read_parquet(path):
            pass
    except BaseException:
        pass
"""


def refuse_crashing(paths: Sequence[Path]) -> None:
    """Read files once in a process of their own: some damages end the process that reads them, without an exception.

    Raises:
        RowsError: A file ends its process. Other damages raise nothing here.
    """
    done = subprocess.run(  # noqa: S603 — this interpreter, and the code above
        [sys.executable, "-P", "-c", _READ],
        input="\0".join(map(str, paths)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise RowsError(
            "The file is not a valid Parquet file: it crashes its reader.",
            where=done.stdout.splitlines()[-1],
            found=signal.Signals(-done.returncode).name,
            remedy="Write it anew.",
        )


def blocks(path: Path, file: io.FileIO, roles: Roles) -> Iterator[Block]:
    """Yield the rows in blocks of float64, datetime64[us], or str and None.

    Args:
        path: The file.
        file: The same file, opened.
        roles: What the columns are.

    Raises:
        RowsError: The extra `parquet` is missing, the file is damaged, or a column has another
            type than numbers, times and texts.
    """
    try:
        from arro3.io import read_parquet
    except ImportError as error:
        raise RowsError(
            "Parquet requires the extra `parquet`.",
            where=str(path),
            remedy="In a checkout of Candor, run: python requirements/install.py parquet",
        ) from error
    _check_frame(path, file)
    batches = _attempted(path, lambda: read_parquet(file, batch_size=_BLOCK))
    names = list(batches.schema.names)
    roles.check(names, str(path))
    used = {names.index(name): name for name in (*roles.inputs(names), *roles.others())}
    first = 1
    while (batch := _attempted(path, lambda: next(batches, None))) is not None:
        yield Block(_attempted(path, partial(_columns, batch, used, path)), np.arange(first, first + batch.num_rows))
        first += batch.num_rows


def _check_frame(path: Path, file: io.FileIO) -> None:
    """Refuse other files before arro3 panics over them."""
    begins = file.read(4)
    file.seek(-min(file.seek(0, io.SEEK_END), 4), io.SEEK_END)
    ends = file.read(4)
    file.seek(0)
    if not begins == ends == b"PAR1":
        raise RowsError(
            "The file is not a valid Parquet file.",
            where=str(path),
            found=f"{begins!r} at its start, {ends!r} at its end",
            expected="b'PAR1' at both",
        )


def _columns(batch: Any, used: dict[int, str], path: Path) -> dict[str, Values]:
    return {name: _values(batch.column(place), f"{path}, column {name}") for place, name in used.items()}


def _attempted(path: Path, read: Callable[[], Any]) -> Any:
    """Call the reader of the file. Its errors become RowsError."""
    try:
        with muted():  # a panic is printed before it is raised
            return read()
    except (RowsError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        said = str(error).splitlines()[0][:300].rstrip(".") if str(error) else type(error).__name__
        raise RowsError(f"The file is not a valid Parquet file: {said}.", where=str(path)) from error


def _values(column: Any, where: str) -> Values:
    """Return times, and numbers without nulls, as an array; other plain values as a list."""
    from arro3.core import DataType

    if DataType.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if DataType.is_timestamp(kind) or DataType.is_date(kind):
        times = column.cast(DataType.timestamp("us")).cast(DataType.int64()).to_pylist()
        return np.array(["NaT" if time is None else time for time in times], "<M8[us]")
    if DataType.is_decimal(kind):
        column = column.cast(DataType.float64())
    elif not (DataType.is_numeric(kind) or DataType.is_boolean(kind) or DataType.is_null(kind) or _is_text(kind)):
        raise RowsError(
            "The column cannot be read.",
            where=where,
            found=str(kind).removeprefix("arro3.core.DataType").strip("<>\n"),
            expected="numbers, true or false, times, or texts",
            remedy="Drop it, or write tensors into an .npz file.",
        )
    if column.null_count == 0 and DataType.is_numeric(column.type):
        return np.asarray(column.to_numpy())
    values: list[Any] = column.to_pylist()
    return values


def _is_text(kind: Any) -> bool:
    from arro3.core import DataType

    return bool(DataType.is_string(kind) or DataType.is_large_string(kind) or DataType.is_string_view(kind))
