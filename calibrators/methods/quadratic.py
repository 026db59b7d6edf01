"""Quadratic scaling: a sigmoid of the log-odds and their square."""

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
# Beyond this the square overflows, and the probability is already 0 or 1.
_FARTHEST = 1e150

_SHAPE = CurveShape(
    columns=lambda scores: [scores],
    features=lambda columns: [columns[0] * columns[0], columns[0]],
    linear=(1,),
    bounded=0,
    ridge=_RIDGE,
    soft_targets=False,
)


@final
class Quadratic(LogOddsCurves):
    """Bend the log-odds by a parabola: p = σ(a t² + b t + c), t = (s − m) / d, s = log-odds against all other classes.

    This is the exact map if the log-odds of either class are normally distributed, each with its own variance; a = 0 is
    an affine map as in `platt`. With two classes s = z_1 − z_0 and there is one curve; with more, one per class, and
    rows are divided by their sum. The maximum of the likelihood, with a ridge of 1e-9 that keeps it finite; m and d
    (about the median log-odds, and the median distance from it) only bring the numbers to the order of one.

    Preserves: nothing for certain. A parabola turns: beyond its vertex, often outside the data, the order is reversed.
    When to use: two classes that the model separates with unequal spread; look at the curve before you set thresholds.

    Attributes:
        coefficients_: (C, 3) float64, rows (a, b, c); C is 1 for two classes, else K.
        centres_: (C,) float64, m.
        scales_: (C,) float64, d, above 0.

    References:
        Berta, Holzmüller, Jordan, Bach (2025), Structured matrix scaling for multi-class calibration, on binary
        calibration, arXiv 2511.03685.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> Quadratic().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "quadratic"

    coefficients_: Doubles
    centres_: Doubles
    scales_: Doubles

    def _fit(self, rows: LabelledRows) -> None:
        fit = fit_curves(ScoreChunks(rows, top=False), _SHAPE)
        self.coefficients_, self.centres_ = fit.theta, fit.centres[:, 0]
        self.scales_ = np.where(np.isinf(fit.scales[:, 0]), 1.0, fit.scales[:, 0])
        self.classes_ = rows.logits.shape[1]

    def _calibrated(self, scores: Doubles) -> Doubles:
        a, b, c = self.coefficients_.T
        standard = np.clip((scores - self.centres_) / self.scales_, -_FARTHEST, _FARTHEST)
        return np.asarray((a * standard + b) * standard + c)

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "coefficients", "centres", "scales")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.classes()
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.coefficients_ = document.table("coefficients", curves, 3)
        calibrator.centres_ = document.numbers("centres", count=curves)
        calibrator.scales_ = document.numbers("scales", 0.0, count=curves)
        if not calibrator.scales_.all():
            document.refuse("scales", "a scale of 0", "numbers above 0")
        return calibrator
