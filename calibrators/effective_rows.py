"""What weights count for, where a method counts rows and does not only average over them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import Doubles

WeightKind: TypeAlias = Literal["importance", "frequency"]
WEIGHT_KINDS: tuple[WeightKind, ...] = ("importance", "frequency")


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
