"""The child process of an upload: read the file, check every row, write the rows in stored form.

Run as `python -m service.row_files.check` it reads one JSON document on standard input and answers with one. It has
a low priority and takes memory for some rows at a time; where a hostile file makes it take more, the kernel refuses.
"""

from __future__ import annotations

import errno
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from bundle import Bundle
from service.errors import BodyTooLargeError, CandorError, InputShapeError, error_document
from service.row_files.layout import Batch, Layout
from service.row_files.line_rows import read_line_rows
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE
from service.row_files.npz_rows import read_npz
from service.row_files.parquet_rows import PARQUET_TYPE, read_parquet_rows
from service.row_files.rows import Checker
from service.row_files.spool import cannot_write
from service.serving.child import limit_memory
from service.serving.verification import verified
from service.state.inputs import type_name
from service.state.labelled_sets import COLUMN_TYPES, Content

NPZ_TYPES: Final = ("application/x-npz", "application/zip")
MEDIA_TYPES: Final = (*NPZ_TYPES, PARQUET_TYPE, CSV_TYPE, NDJSON_TYPE)
"""Content types of labelled sets."""

_MEMORY_BYTES: Final = 1 << 30
_VALUES_PER_BATCH: Final = 1 << 18
_MOST_ROWS_PER_BATCH: Final = 4_096


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Task of the child process.

    Attributes:
        body: The file.
        media_type: One of `MEDIA_TYPES`.
        bundle: Folder of the active bundle.
        folder: Folder for the columns, each in a file `<name>.column`.
        secret: Secret of the database, in hex.
        now_us: Current time in microseconds since the epoch.
        limit: Maximum bytes of the rows, in the file and in stored form.
        max_pixels: Maximum pixels of the images of a batch.
    """

    body: str
    media_type: str
    bundle: str
    folder: str
    secret: str
    now_us: int
    limit: int
    max_pixels: int


def check(task: CheckTask, bundle: Bundle) -> Content:
    """Check a file for the model of a bundle and write its columns.

    Raises:
        InputError: The file or a row cannot be used; `where` names it.
        UnknownLabelError: The model does not have some of the labels.
    """
    checker: Checker | None = None
    written = 0
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for batch in _batches(task, bundle):
            if not batch.rows:
                continue
            if checker is None:
                layout = Layout.of(batch.columns, bundle)
                checker = Checker(
                    bundle, layout, secret=bytes.fromhex(task.secret), now_us=task.now_us, max_pixels=task.max_pixels
                )
            columns = checker.check(batch)
            for name, column in columns.items():
                if name not in files:
                    files[name] = stack.enter_context((Path(task.folder) / f"{name}.column").open("wb"))
                files[name].write(column.tobytes())
                written += column.nbytes
            if written > task.limit:
                raise BodyTooLargeError(
                    "The rows are too large when stored.",
                    found=f"more than {task.limit} bytes after {checker.rows} rows",
                    expected=f"at most {task.limit} bytes",
                    remedy="Upload fewer rows, or raise CANDOR_MAX_UPLOAD_BYTES.",
                )
    if checker is None:
        raise InputShapeError("The file has no rows.", found=0, expected="at least 1 row")
    checker.end()
    values = columns["values"]
    return Content(
        kind=layout.kind,
        rows=checker.rows,
        labels=checker.labels,
        segments=checker.segments,
        dtype=type_name(values.dtype),
        shape=list(values.shape[1:]),
        columns=[name for name in COLUMN_TYPES if name in files],
    )


def too_much_memory() -> BodyTooLargeError:
    """Return the error of a file that needs more memory than a check may take."""
    return BodyTooLargeError(
        "Part of the file needs too much memory.",
        found=f"more than {_MEMORY_BYTES} bytes",
        expected="rows, or row groups, that fit into memory one by one",
    )


def main() -> None:
    """Check one file as a child process."""
    task = CheckTask(**orjson.loads(sys.stdin.buffer.readline()))
    answer: dict[str, Any]
    try:
        bundle = verified(Path(task.bundle))
        limit_memory(_MEMORY_BYTES)
        answer = {"content": asdict(check(task, bundle))}
    except CandorError as error:
        answer = {"error": error_document(error)}
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        answer = {"error": error_document(cannot_write(Path(task.folder).parent, error))}
    except MemoryError:
        answer = {"error": error_document(too_much_memory())}
    sys.stdout.buffer.write(orjson.dumps(answer, default=str) + b"\n")
    sys.stdout.buffer.flush()


def _batches(task: CheckTask, bundle: Bundle) -> Iterator[Batch]:
    body = Path(task.body)
    if task.media_type in NPZ_TYPES:
        return read_npz(body, limit=task.limit)
    if task.media_type == PARQUET_TYPE:
        return read_parquet_rows(body)
    spec = bundle.manifest.input
    values = sum(math.prod(tensor.shape) for tensor in spec.tensors) or math.prod(spec.shape)
    size = max(len(bundle.manifest.labels), values)
    rows = max(1, min(_MOST_ROWS_PER_BATCH, _VALUES_PER_BATCH // size))
    return read_line_rows(body, task.media_type, bundle, rows_per_batch=rows)


if __name__ == "__main__":
    main()
