"""Isotonic regression."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.fitting.sorted_scores import SortedScores, Starts
from calibrators.methods.isotonic_curves import IsotonicCurves


@final
class Isotonic(IsotonicCurves):
    """The best non-decreasing map of probabilities, linear between the data, constant beyond them.

    With two classes there is one curve, for class 1; with more, one per class, rows are divided by their sum, and a row
    of zeros gets its softmax. Probabilities of exactly 0 and 1 occur if one kind of label stands alone at an end
    (nearly always): the log loss of a later row there can be infinite. `venn_abers` never produces them.

    Preserves: with two classes the order of all rows, but levels of many rows become equal (ties).
    When to use: two classes and thousands of labels, if no formula fits; `centred_isotonic` if ties hurt.

    Attributes:
        inputs_: One array per curve, (M,) increasing probabilities.
        outputs_: One array per curve, (M,) non-decreasing.

    References:
        Zadrozny, Elkan (2002), Transforming classifier scores into accurate multiclass probability estimates.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> Isotonic().fit(logits, np.array([0, 1, 0, 1])).predict_proba(logits)[:, 1]
        array([0. , 0.5, 0.5, 1. ])
    """

    name: ClassVar[str] = "isotonic"
    preserves_order: ClassVar[bool] = True

    @staticmethod
    def _knots(rows: SortedScores, starts: Starts, levels: Doubles) -> Doubles:
        inputs = np.stack([rows.scores[starts], rows.scores[np.append(starts[1:], len(rows.scores)) - 1]], axis=1)
        # A block of one probability is one point, not two.
        kept = np.stack([np.ones(len(starts), np.bool_), inputs[:, 1] > inputs[:, 0]], axis=1)
        return np.stack([inputs[kept], np.repeat(levels, 2).reshape(-1, 2)[kept]])
