"""Beta calibration: a sigmoid of log p and log(1 − p), weighted separately."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.fitting.best_temperature import best_temperature
from calibrators.fitting.logistic_curves import CurveShape, fit_curves
from calibrators.fitting.score_chunks import ScoreChunks
from calibrators.methods.log_odds_curves import LogOddsCurves
from calibrators.validation import LabelledRows, check_choice

# Keeps the optimum finite if classes are separable or missing; otherwise it moves the mean NLL by less than 1e-7.
_RIDGE = 1e-9
# Less loses more where classes are alike, more where they are skewed.
_SHRINKAGE = 5.0


@final
class Beta(LogOddsCurves):
    """Bend probabilities at both ends: p = σ(a log q − b log(1 − q) + c), with a, b ≥ 0 and q the softmax.

    This is the exact map if scores of either class are beta distributed; a = b is Platt scaling of the log-odds, and a
    ≠ b treats over- and underconfidence at the two ends differently. With two classes there is one curve, for class 1;
    with more, one per class, and rows are divided by their sum. The maximum of the likelihood under a, b ≥ 0, with a
    ridge of 1e-9 that keeps it finite. With more than two classes each curve is shrunk towards temperature scaling by
    the penalty 2.5 / n · ((a − 1 / T)² + (b − 1 / T)² + c²) for n rows (with weights, their worth), since a class may
    have five labels or none: with 50 rows of 10 classes the log loss without it is twice that of no calibration. If T
    stops at a bound, Platt's targets replace the penalty.

    Preserves: with two classes the order of all rows, ties apart.
    When to use: two classes, with a curve that bends differently at its two ends.

    Args:
        weight_kind: Meaning of sample weights in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        coefficients_: (C, 3) float64, rows (a, b, c); C is 1 for two classes, else K.

    Raises:
        CalibrationDataError: An unknown weight kind.

    References:
        Kull, Silva Filho, Flach (2017), Beta calibration: a well-founded and easily implemented improvement on logistic
        calibration for binary classifiers.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> Beta().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "beta"
    preserves_order: ClassVar[bool] = True

    coefficients_: Doubles

    def __init__(self, weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def _fit(self, rows: LabelledRows) -> None:
        shape = _SHAPE
        if rows.logits.shape[1] > 2:
            temperature, at_bound = best_temperature(rows)
            shape = replace(_SHAPE, shrinkage=_SHRINKAGE, slope=1 / temperature)
            if at_bound:
                shape = replace(_SHAPE, soft_targets=True)
        fit = fit_curves(ScoreChunks(rows, top=False), shape, self.weight_kind == "frequency")
        slopes = np.where(np.isinf(fit.scales), 1.0, fit.theta[:, :2] / fit.scales)
        intercepts = fit.theta[:, 2] - (slopes * fit.centres).sum(axis=1)
        self.coefficients_ = np.column_stack([slopes, intercepts])
        self.classes_ = rows.logits.shape[1]

    def _calibrated(self, scores: Doubles) -> Doubles:
        a, b, c = self.coefficients_.T
        below, above = _log_chances(scores)
        below *= a
        above *= b
        below += above
        below += c
        return below

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "weight_kind", "coefficients")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.weight_kind())
        calibrator.classes_ = document.classes()
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.coefficients_ = document.table("coefficients", curves, 3)
        if (calibrator.coefficients_[:, :2] < 0).any():
            document.refuse("coefficients", "a negative a or b", "0 or more")
        return calibrator


def _log_chances(scores: Doubles) -> list[Doubles]:
    """Return the columns log q and −log(1 − q), q = σ(scores), exact at both ends."""
    apart = 0.5 * scores
    half = np.abs(apart)
    tail = -2 * half
    np.exp(tail, out=tail)
    np.log1p(tail, out=tail)
    below = apart - half
    below -= tail
    half += apart
    half += tail
    return [below, half]


_SHAPE = CurveShape(
    columns=_log_chances,
    features=lambda columns: columns,
    linear=(0, 1),
    bounded=2,
    ridge=_RIDGE,
    soft_targets=False,
)
