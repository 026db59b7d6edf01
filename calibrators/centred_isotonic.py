"""Centred isotonic regression: isotonic without plateaus."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.isotonic_curves import IsotonicCurves
from calibrators.sorted_scores import SortedScores, Starts


@final
class CentredIsotonic(IsotonicCurves):
    """Isotonic regression with every plateau drawn together into one point, at its mean probability.

    Between the first and the last point the curve rises strictly, so rows that differ keep differing there; beyond
    them it is constant. Otherwise as `isotonic`, probabilities of exactly 0 and 1 included.

    Preserves: with two classes the order of all rows; strictly, between the means of the first and last plateau.
    When to use: as `isotonic`, where a ranking is needed too, or thresholds are set on the probabilities.

    Attributes:
        inputs_: One array for each curve, (M,) increasing probabilities.
        outputs_: Likewise (M,) increasing.

    References:
        Oron, Flournoy (2017), Centered isotonic regression: point and interval estimation for dose-response studies.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> CentredIsotonic().fit(logits, np.array([0, 1, 0, 1])).predict_proba(logits)[:, 1].round(3)
        array([0.   , 0.333, 0.718, 1.   ])
    """

    name: ClassVar[str] = "centred_isotonic"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = True

    @staticmethod
    def _knots(rows: SortedScores, starts: Starts, levels: Doubles) -> Doubles:
        weight = np.ones(len(rows.scores)) if rows.weight is None else rows.weight
        centres = np.add.reduceat(weight * rows.scores, starts) / np.add.reduceat(weight, starts)
        return np.stack([centres, levels])
