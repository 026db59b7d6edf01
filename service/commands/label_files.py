"""Files of true labels: the rows that POST …/feedback reads, and where a refused one stands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from service.client import ApiError
from service.errors import InputError, UnsupportedMediaTypeError
from service.rest.lines import CSV_TYPE, NDJSON_TYPE, Record, read_lines

FIELDS: Final = ("prediction_id", "reference", "label", "source", "labelled_at")
"""What a label may say; its rows are checked by the service."""

_MEDIA_TYPES: Final = {".csv": CSV_TYPE, ".ndjson": NDJSON_TYPE, ".jsonl": NDJSON_TYPE}


def read_labels(path: Path) -> list[Record]:
    """Read a file of labels by its ending.

    Args:
        path: `.csv` with a header of some of `FIELDS`, or `.ndjson` or `.jsonl` with one object a line.

    Returns:
        At least one record.

    Raises:
        InputError: It is another file, or no such one; `where` names it, line and column.
        OSError: It cannot be read.
    """
    media_type = _MEDIA_TYPES.get(path.suffix.lower())
    if media_type is None:
        raise UnsupportedMediaTypeError(
            "Labels come from a CSV or NDJSON file.", where=str(path), expected=list(_MEDIA_TYPES)
        )
    try:
        return read_lines(path.read_bytes(), media_type, columns=FIELDS, at_most=sys.maxsize)
    except InputError as error:
        error.where = f"{path}, {error.where}"
        raise


@contextmanager
def named_by_line(path: Path | None, records: Sequence[Record]) -> Iterator[None]:
    """Have a refusal of one of the items that are sent name the line of the file that it came from.

    Args:
        path: The file; None where there is none.
        records: Those that are sent, in order.
    """
    try:
        yield
    except ApiError as error:
        item = re.fullmatch(r"/items/(\d+)(?:/(\w+))?", error.where or "")
        if path is None or item is None:
            raise
        problem = {**error.problem, "where": f"{path}, {records[int(item[1])].place(item[2])}"}
        raise type(error)(error.status, problem, retry_after_s=error.retry_after_s) from error
