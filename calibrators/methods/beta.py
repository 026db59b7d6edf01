"""Beta calibration: a sigmoid of log p and log(1 − p), weighted separately."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.documents import Document, written
from calibrators.fitting.logistic_curves import CurveShape, fit_curves
from calibrators.fitting.score_chunks import ScoreChunks
from calibrators.methods.log_odds_curves import LogOddsCurves
from calibrators.validation import LabelledRows

# Keeps the optimum finite if classes are separable or missing; otherwise it moves the mean NLL by less than 1e-7.
_RIDGE = 1e-9


@final
class Beta(LogOddsCurves):
    """Bend probabilities at both ends: p = σ(a log q − b log(1 − q) + c), with a, b ≥ 0 and q the softmax.

    This is the exact map if scores of either class are beta distributed; a = b is Platt scaling of the log-odds, and a
    ≠ b treats over- and underconfidence at the two ends differently. With two classes there is one curve, for class 1;
    with more, one per class, and rows are divided by their sum. The maximum of the likelihood under a, b ≥ 0, with a
    ridge of 1e-9 that keeps it finite.

    Preserves: with two classes the order of all rows, ties apart.
    When to use: two classes, with a curve that bends differently at its two ends.

    Attributes:
        coefficients_: (C, 3) float64, rows (a, b, c); C is 1 for two classes, else K.

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

    def _fit(self, rows: LabelledRows) -> None:
        fit = fit_curves(ScoreChunks(rows, top=False), _SHAPE)
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
        return written(self, "classes", "coefficients")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
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
