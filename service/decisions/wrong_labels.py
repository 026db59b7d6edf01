"""Certificates under an assumption on labels: at most a share of them is wrong, wherever that hurts most.

The test counts the allocation of the wrong labels that speaks least for the promise's failure, so a certificate holds
whichever labels are wrong. `docs/explanation/statistics.md` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import Metric
from service.decisions.binomial import labels_needed, p_value
from service.decisions.rows import ScoredRows

_MOST: Final = 1 << 40  # needed rows are reported up to this number
_AT_ONCE: Final = 4096  # numbers of wrong labels


@dataclass(frozen=True, slots=True)
class WrongLabels:
    """Labels of the certify rows that may be wrong.

    Attributes:
        share: Largest share of them, in [0, 1).
        sought: Labels that were sought, come or not: fixed before any of them is seen.
    """

    share: float = 0.0
    sought: int = 0

    @classmethod
    def among(cls, share: float, certify: ScoredRows) -> Self:
        """Return the wrong labels among certify rows, all segments together."""
        return cls(share, int((certify.was_sought() & (certify.propensity > 0)).sum()))

    @property
    def count(self) -> int:
        """Largest number of wrong labels."""
        return int(_count(self.share, np.array(self.sought)))

    def worst(
        self, metric: Metric, n: NDArray[Any], errors: NDArray[Any], tolerance: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows and errors that are at least as bad as the true ones, whichever labels are wrong.

        Args:
            metric: The metric.
            n: Rows in its denominator by their labels, any shape.
            errors: Errors among them by their labels.
            tolerance: Largest rate of errors that keeps the promise, in (0, 1).

        Returns:
            Rows and errors with the largest p-value.

        Example:
            >>> n, errors = WrongLabels(0.02, 500).worst("precision", np.array([300]), np.array([4]), 0.05)
            >>> n.tolist(), errors.tolist()
            ([300], [14])
        """
        wrong = np.array(self.count)
        return _worst(metric, np.asarray(n, np.int64), np.asarray(errors, np.int64), tolerance, wrong)

    def needed(self, metric: Metric, n: int, errors: int, tolerance: float, level: float) -> int:
        """Return how many more rows in the denominator, none of them an error by its label, let the test succeed.

        Of these labels, too, the share may be wrong. Without wrong labels, this is `labels_needed`. It is the smallest
        number, although a few rows more may again be too few: with them, one more label may be wrong.

        Example:
            >>> [WrongLabels(share).needed("precision", 0, 0, 0.05, 0.025) for share in (0, 0.01, 0.02)]
            [72, 72, 142]
        """
        if not self.share or metric == "flag_rate":
            return labels_needed(n, errors, tolerance, level)

        def enough(more: NDArray[np.int64]) -> NDArray[np.bool_]:
            wrong = _count(self.share, self.sought + more)
            rows, counted = _worst(metric, n + more, np.full_like(more, errors), tolerance, wrong)
            return p_value(counted, rows, tolerance) <= level

        high = 64
        while high < _MOST and not enough(np.array(high)):
            high *= 2
        if high >= _MOST:
            return high
        low = -1
        while True:  # as long as no further label may be wrong, each row helps: look at the last one of each number
            wrong = int(_count(self.share, np.array(self.sought + max(low + 1, 0)))) + np.arange(_AT_ONCE)
            ends = np.minimum(_last(self.share, wrong) - self.sought, high)
            found = np.flatnonzero(enough(ends))
            if len(found):
                low, high = int(ends[found[0] - 1]) if found[0] else low, int(ends[found[0]])
                break
            low = int(ends[-1])
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(np.array(middle)) else (middle, high)
        return high


def _count(share: float, sought: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest number of wrong labels among those sought."""
    count: NDArray[np.int64] = np.floor(share * sought + 1e-9).astype(np.int64)  # 0.29 · 100 is 28.999…
    return count


def _last(share: float, wrong: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest number of labels sought of which this number may be wrong."""
    last = np.floor((wrong + 1) / share).astype(np.int64) + 1
    while (above := _count(share, last) > wrong).any():
        last -= above
    return last


def _worst(
    metric: Metric, n: NDArray[np.int64], errors: NDArray[np.int64], tolerance: float, wrong: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what `WrongLabels.worst` returns, for numbers of wrong labels that broadcast to the shape of `n`."""
    if metric == "flag_rate":
        return n, errors
    if metric in ("precision", "selective_risk"):
        return n, np.minimum(errors + wrong, n)
    # Each wrong label hides an error, or shows a row as right that is outside the denominator. Up to q = 1/2, the
    # worst is that all of them do the one or all the other; beyond, the p-value may peak in between, at `turn`.
    right, q = n - errors, tolerance
    turn = ((1 - q) * (right - wrong + 1) - q * errors - 1) / (2 * q - 1) if q > 0.5 else np.zeros(n.shape)
    wrong = np.broadcast_to(wrong, n.shape)
    hidden = np.stack([np.zeros_like(n), np.clip(np.floor(turn) + 1, 0, wrong).astype(np.int64), wrong])
    counted = errors + hidden
    rows = counted + np.maximum(right - (wrong - hidden), 0)
    at = p_value(counted, rows, tolerance).argmax(axis=0)[None]
    return np.take_along_axis(rows, at, 0)[0], np.take_along_axis(counted, at, 0)[0]


ALL_RIGHT: Final = WrongLabels()
"""No label is wrong."""
