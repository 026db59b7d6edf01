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

_MOST: Final = 1 << 40  # needed rows are told up to here


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
        return int(np.floor(self.share * self.sought + 1e-9))  # 0.29 · 100 is 28.999…

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
        n, errors = np.asarray(n, np.int64), np.asarray(errors, np.int64)
        wrong = self.count
        if not wrong or metric == "flag_rate":
            return n, errors
        if metric in ("precision", "selective_risk"):
            return n, np.minimum(errors + wrong, n)
        # Each wrong label hides an error, or shows a row as right that is outside the denominator. Up to q = 1/2, the
        # worst is that all of them do the one or all the other; beyond, the p-value may peak in between, at `turn`.
        right, q = n - errors, tolerance
        turn = ((1 - q) * (right - wrong + 1) - q * errors - 1) / (2 * q - 1) if q > 0.5 else np.zeros(n.shape)
        hidden = np.stack(
            [np.zeros_like(n), np.clip(np.floor(turn) + 1, 0, wrong).astype(np.int64), np.full_like(n, wrong)]
        )
        counted = errors + hidden
        rows = counted + np.maximum(right - (wrong - hidden), 0)
        at = p_value(counted, rows, tolerance).argmax(axis=0)[None]
        return np.take_along_axis(rows, at, 0)[0], np.take_along_axis(counted, at, 0)[0]

    def needed(self, metric: Metric, n: int, errors: int, tolerance: float, level: float) -> int:
        """Return how many more rows in the denominator, none of them an error by its label, let the test succeed.

        Of these labels, too, the share may be wrong. Without wrong labels, this is `labels_needed`.

        Example:
            >>> [WrongLabels(share).needed("precision", 0, 0, 0.05, 0.025) for share in (0, 0.02)]
            [72, 173]
        """
        if not self.share or metric == "flag_rate":
            return labels_needed(n, errors, tolerance, level)

        def enough(more: int) -> bool:
            later = WrongLabels(self.share, self.sought + more)
            rows, counted = later.worst(metric, np.array([n + more]), np.array([errors]), tolerance)
            return bool(p_value(counted, rows, tolerance)[0] <= level)

        low, high = -1, 0
        while high < _MOST and not enough(high):
            low, high = high, max(2 * high, 64)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


ALL_RIGHT: Final = WrongLabels()
"""No label is wrong."""
