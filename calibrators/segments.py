"""Names of segments: checked, numbered, written to documents and read back."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Labels
from calibrators.documents import Document
from calibrators.errors import CalibrationDataError, shown

Segment: TypeAlias = str | int


def number_segments(values: ArrayLike, rows: int, name: str = "segments") -> tuple[list[Segment], Labels]:
    """Numbers the segments, or the groups, of rows from zero.

    Args:
        values: (N,) strings or integers; both may occur together in a list or an array of objects.
        rows: N.
        name: What to call them in an error.

    Returns:
        The distinct segments, integers before strings and each in order, and (N,) int64 that index them.

    Raises:
        CalibrationDataError: Another shape, or an entry that is neither a string nor an integer.
    """
    # Numpy would turn the integers of a mixed list into strings.
    given = values if isinstance(values, np.ndarray) else _listed(values, name)
    if given.shape != (rows,):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=f"an array of shape {given.shape}", expected=f"shape ({rows},)"
        )
    if given.dtype.kind in "iuU":
        distinct, numbers = np.unique(given, return_inverse=True)
        return distinct.tolist(), numbers.astype(np.int64, copy=False)
    segments: list[Segment] = []
    for row, value in enumerate(given.tolist()):
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise CalibrationDataError(
                "Wrong type", where=f"{name}[{row}]", found=shown(value), expected="a string or an integer"
            )
        segments.append(value if isinstance(value, str) else int(value))
    different: list[Segment] = sorted({one for one in segments if isinstance(one, int)})
    different += sorted({one for one in segments if isinstance(one, str)})
    place = {segment: i for i, segment in enumerate(different)}
    return different, np.array([place[segment] for segment in segments], np.int64)


def read_segment(document: Document, taken: Collection[Segment]) -> Segment:
    """Takes the field 'segment', a string or an integer that is not among those ``taken``.

    Raises:
        CalibrationDataError: Something else stands there, or it occurs twice.
    """
    value = document.anything("segment")
    if isinstance(value, bool) or not isinstance(value, str | int):
        document.refuse("segment", shown(value), "a string or an integer")
    if value in taken:
        document.refuse("segment", f"{shown(value)} again", "each segment once")
    return value


def _listed(values: ArrayLike, name: str) -> npt.NDArray[np.object_]:
    try:
        return np.array(list(values), dtype=object)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=shown(values), expected="one string or integer for each row"
        ) from None
