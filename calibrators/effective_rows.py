"""The meaning of weights in methods that count rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError

WeightKind: TypeAlias = Literal["importance", "frequency"]
WEIGHT_KINDS: tuple[WeightKind, ...] = ("importance", "frequency")
MOST_OFTEN = 2**31
"""Maximum frequency of a row: sums over any array of them are exact in float64 and int64."""


def check_frequencies(sample_weight: ArrayLike | None, kind: WeightKind) -> None:
    """Refuse frequencies that are not whole numbers, or above 2³¹.

    Args:
        sample_weight: (N,) weights that passed `as_weight`, or None.
        kind: ``"importance"`` (accepts any weights) or ``"frequency"``.

    Raises:
        CalibrationDataError: Naming the first weight at fault.
    """
    if sample_weight is None or kind == "importance":
        return
    weight = np.asarray(sample_weight, dtype=np.float64)
    broken = (weight != np.rint(weight)) | (weight > MOST_OFTEN)
    if broken.any():
        row = int(np.argmax(broken))
        raise CalibrationDataError(
            "Bad weight",
            where=f"sample_weight[{row}]",
            found=str(weight[row]),
            expected=f"a whole number up to {MOST_OFTEN} (how often the row was seen) for weight_kind 'frequency'",
        )


def counting_weight(weight: Doubles | None, rows: int, kind: WeightKind) -> Doubles:
    """Return weights (N,) float64 whose sum is the number of rows they are worth; ones for no weights.

    Args:
        weight: (N,) positive, or None for equal weights.
        rows: N.
        kind: ``"importance"``: only ratios matter, and the sum is the Kish effective number of rows (Σw)² / Σw².
            ``"frequency"``: a weight is the number of times its row was seen.
    """
    if weight is None:
        return np.ones(rows)
    if kind == "frequency":
        return weight
    relative = weight / weight.max()
    return np.asarray(relative * (relative.sum() / (relative @ relative)))
