"""What weights count for, where a method counts rows and does not only average over them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError

WeightKind: TypeAlias = Literal["importance", "frequency"]
WEIGHT_KINDS: tuple[WeightKind, ...] = ("importance", "frequency")
MOST_OFTEN = 2**31
"""The most often that one row may have been seen: sums over any array of them are exact in float64 and int64."""


def check_frequencies(sample_weight: ArrayLike | None, kind: WeightKind) -> None:
    """Refuses frequencies that are not whole numbers, or absurdly large.

    Args:
        sample_weight: (N,) weights that passed `as_weight`, or None.
        kind: ``"importance"``, of which nothing is asked, or ``"frequency"``.

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
            expected=f"a whole number up to {MOST_OFTEN}: how often a row was seen, as weight_kind 'frequency' has it",
        )


def counting_weight(weight: Doubles | None, rows: int, kind: WeightKind) -> Doubles:
    """Weights whose sum is the number of rows that they are worth.

    Args:
        weight: (N,) positive, or None for equal weights.
        rows: N.
        kind: ``"importance"``: only ratios matter, and the sum is the Kish effective number of rows (Σw)² / Σw².
            ``"frequency"``: a weight is the number of times that its row was seen.

    Returns:
        (N,) float64; ones for no weights.
    """
    if weight is None:
        return np.ones(rows)
    if kind == "frequency":
        return weight
    relative = weight / weight.max()
    return np.asarray(relative * (relative.sum() / (relative @ relative)))
