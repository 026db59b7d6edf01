"""Beta calibration: a sigmoid of log p and log(1 − p) apart."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from calibrators.arrays import Doubles
from calibrators.documents import Document
from calibrators.logistic import fit_logistic
from calibrators.one_vs_rest import OneVsRest

# Keeps the optimum finite where classes are separable or missing; elsewhere it moves the mean NLL by less than 1e-7.
_RIDGE = 1e-8


@final
class Beta(OneVsRest):
    """Bends probabilities at both ends: p = σ(a log q − b log(1 − q) + c), with a, b ≥ 0 and q the softmax.

    What follows when scores of either class are beta distributed; a = b is Platt scaling of the log-odds, and a ≠ b
    treats over- and underconfidence at the two ends differently. With two classes there is one curve, for class 1; with
    more, one for each class, and rows are divided by their sum. The exact maximum of the likelihood under a, b ≥ 0, up
    to a ridge of 1e-8 that keeps it finite.

    Preserves: with two classes the order of all rows, ties apart.
    When to use: two classes, where the curve is bent otherwise at its two ends.

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
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = True

    coefficients_: Doubles

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.array([1.0, 1.0, 0.0])
        features = np.column_stack([*_log_chances(scores), np.ones(len(scores))])
        scale = np.array([*(np.abs(features[:, :2]).max(axis=0)), 1.0])
        # Columns that underflow to zero (certain rows only) teach nothing and keep their coefficient.
        scale[scale == 0] = 1.0
        standard, targets, start = features / scale, hits.astype(np.float64), np.array([1.0, 1.0, 0.0])
        # The optimum under a, b ≥ 0 lies inside or on an edge or in the corner: the best of those that are allowed.
        found = []
        for free in ([0, 1, 2], [0, 2], [1, 2], [2]):
            theta, value = fit_logistic(standard[:, free], targets, weight, ridge=_RIDGE, centre=start[free])
            full = np.zeros(3)
            full[free] = theta
            if (full[:2] >= 0).all():
                found.append((value + 0.5 * _RIDGE * (3 - len(free)), full / scale))
                if len(free) == 3:
                    break
        best: Doubles = min(found, key=lambda one: one[0])[1]
        return best

    def _evaluate(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        a, b, c = self.coefficients_[curve]
        below, above = _log_chances(scores)
        with np.errstate(over="ignore"):
            calibrated = a * below + b * above + c
        return special.expit(calibrated), special.expit(-calibrated)

    def _keep(self, curves: list[Doubles]) -> None:
        self.coefficients_ = np.stack(curves)

    def _parameters(self) -> dict[str, Any]:
        return {"classes": self.classes_, "coefficients": self.coefficients_.tolist()}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.count("classes", least=2)
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        coefficients = document.rows_of_numbers("coefficients")
        if len(coefficients) != curves or any(len(row) != 3 for row in coefficients):
            document.refuse("coefficients", f"{len(coefficients)} lists", f"{curves} lists of 3, as 'classes' says")
        calibrator.coefficients_ = np.stack(coefficients)
        if (calibrator.coefficients_[:, :2] < 0).any():
            document.refuse("coefficients", "a negative a or b", "0 or more")
        return calibrator


def _log_chances(scores: Doubles) -> tuple[Doubles, Doubles]:
    """The (n,) log q and −log(1 − q) of q = σ(scores), exact at both ends."""
    return -np.logaddexp(0, -scores), np.logaddexp(0, scores)
