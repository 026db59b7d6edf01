"""A converted model beside the library that made it: the same rows, the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import NativeCheck
from importing.errors import NativeDifferenceError
from importing.rows import Rows

TOLERANCE = 1e-5
"""Largest difference of a probability that rounding explains."""

_SHOWN = 2000
_REASONS = """Known reasons:
- The graph and the native model are of different trainings.
- The converter lost a rule for missing values, zeros or categories, as onnxmltools does for some LightGBM models
  (its issues 708 and 728). Import the library's own file instead: `candor import lightgbm model.txt`.
- Thresholds are float32 in the graph and float64 in the library, and a value lies on one.
- A step exists in float32 only (skl2onnx), and values are too large for it. Scale them before they enter the model.
- Columns, categories or classes have another order in the graph."""


def compare(
    found: NDArray[Any],
    native: NDArray[Any],
    rows: Sequence[Any] | Rows,
    *,
    library: str,
    tolerance: float = TOLERANCE,
) -> NativeCheck:
    """Compare probabilities of the graph with those of the library.

    Args:
        found: Probabilities from the graph, (N, K).
        native: Probabilities from the library, (N, K).
        rows: The N rows, to show the worst one.
        library: Name and version of the library.
        tolerance: Largest difference allowed.

    Raises:
        NativeDifferenceError: A difference exceeds `tolerance`, a probability is not a number, or shapes differ.

    Example:
        >>> found = np.array([[0.2, 0.8]])
        >>> compare(found, found, [{"amount": 3}], library="lightgbm 4.6.0").difference
        0.0
    """
    if found.shape != native.shape or not len(found):
        raise NativeDifferenceError(
            f"the graph and {library} give probabilities of different shapes",
            found=f"{found.shape} and {native.shape}",
            expected="the same classes for the same rows, at least one row",
        )
    differences = np.abs(found.astype(np.float64) - native.astype(np.float64))
    by_row = np.where(np.isfinite(differences), differences, np.inf).max(1)
    worst = int(by_row.argmax())
    if by_row[worst] > tolerance:
        raise NativeDifferenceError(
            f"the graph and {library} disagree on {int((by_row > tolerance).sum())} of {len(found)} rows",
            found=f"a difference of {by_row[worst]:.3g} in row {worst + 1}\n"
            f"  values   {_shown(rows[worst])}\n"
            f"  graph    {_shown(found[worst])}\n"
            f"  library  {_shown(native[worst])}\n",
            expected=f"at most {tolerance:g}",
            remedy=_REASONS,
        )
    return NativeCheck(library=library, rows=len(found), difference=float(by_row[worst]), tolerance=tolerance)


def _shown(row: Any) -> str:
    if isinstance(row, Mapping):
        row = {name: value.tolist() if isinstance(value, np.generic) else value for name, value in row.items()}
    text = repr(row.tolist() if isinstance(row, np.ndarray | np.void) else row)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
