"""Centred isotonic regression: isotonic without plateaus."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.fitting.sorted_scores import SortedScores, Starts
from calibrators.methods.isotonic_curves import IsotonicCurves


@final
class CentredIsotonic(IsotonicCurves):
    """Isotonic regression with every plateau contracted to one point, at its mean probability.

    The curve rises strictly between the first and the last point, so rows that differ there keep differing; beyond them
    it is constant. Otherwise as `isotonic`, probabilities of exactly 0 and 1 included.

    Preserves: with two classes the order of all rows; strictly, between the means of the first and last plateau.
    When to use: as `isotonic`, if rows are ranked, or thresholds set on the probabilities.

    Attributes:
        inputs_: One array per curve, (M,) increasing probabilities.
        outputs_: One array per curve, (M,) increasing.

    References:
        Oron, Flournoy (2017), Centered isotonic regression: point and interval estimation for dose-response studies.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> CentredIsotonic().fit(logits, np.array([0, 1, 0, 1])).predict_proba(logits)[:, 1].round(3)
        array([0.   , 0.333, 0.718, 1.   ])
    """

    name: ClassVar[str] = "centred_isotonic"
    preserves_order: ClassVar[bool] = True

    @staticmethod
    def _knots(rows: SortedScores, starts: Starts, levels: Doubles) -> Doubles:
        weight = np.ones(len(rows.scores)) if rows.weight is None else rows.weight
        centres = np.add.reduceat(weight * rows.scores, starts) / np.add.reduceat(weight, starts)
        return np.stack([centres, levels])
