"""How often labels are wrong, judged from rows that two people or sources labelled.

Assume that two labels of a row are given independently of each other, with probabilities a_k and b_k of the classes k,
and that on every row the right class is the most probable one of the first label. Then they agree with probability
Σ a_k b_k ≤ max a_k, which is the probability that the first is right. So they differ at least as often as the first is
wrong, whatever the second is, for any number of classes. Hence the share of rows whose labels differ bounds the rate of
wrong labels, however difficult the rows are, and an exact upper bound of that share is one of that rate. With two
classes, the assumption is that a label is at least as likely right as wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundle.split import one_per_group
from candor.contract.recalibration import DoubleLabels
from service.decisions.binomial import upper_share

LEVEL: Final = 0.05
"""Largest probability that `upper` is below the probability that a label is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelPairs:
    """Two labels of each of N rows, by different people or sources; arrays of shape (N,).

    Attributes:
        current: Label in force.
        other: Label of another person or source.
        group: Group of the row.
    """

    current: NDArray[np.int64]
    other: NDArray[np.int64]
    group: NDArray[np.int64]


def double_labels(pairs: LabelPairs | None, seed: int) -> DoubleLabels:
    """Return what pairs of labels say about wrong labels; of each group one row counts.

    Args:
        pairs: The pairs; None for none.
        seed: Seed of the draw of one row of each group; fixed before any label is seen.

    Example:
        >>> rows = np.arange(200)
        >>> found = double_labels(LabelPairs(rows % 2, np.where(rows < 8, 1 - rows % 2, rows % 2), rows), 0)
        >>> found.rows, found.differ, round(found.wrong, 4), round(found.upper, 4)
        (200, 8, 0.0204, 0.071)
    """
    if pairs is None:
        return DoubleLabels(rows=0, differ=0, wrong=None, upper=1.0)
    which = one_per_group(pairs.group, seed)
    rows, differ = len(which), int((pairs.current[which] != pairs.other[which]).sum())
    # Where both are wrong equally often, on all rows alike and with the same wrong class, they differ with probability
    # 2e(1 − e); with other wrong classes, more often.
    wrong = (1 - math.sqrt(max(1 - 2 * differ / rows, 0.0))) / 2 if rows else None
    return DoubleLabels(rows=rows, differ=differ, wrong=wrong, upper=upper_share(differ, rows, LEVEL))
