"""Platt scaling: a sigmoid of the log-odds."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from calibrators.arrays import Doubles
from calibrators.documents import Document
from calibrators.logistic import fit_logistic
from calibrators.one_vs_rest import OneVsRest


@final
class Platt(OneVsRest):
    """Scales and shifts the log-odds: p = σ(a s + c), s = log-odds of a class against all others.

    With two classes s = z_1 − z_0 and there is one pair (a, c); with more, one for each class, and rows are divided by
    their sum. Labels count as (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2), Platt's targets, which keep the optimum finite
    where classes are separable or missing; with weights, n₊ and n₋ are shares of the Kish effective number of rows.

    Preserves: with two classes the order of all rows, as long as a > 0 (else the scores were the wrong way round).
    When to use: two classes, where temperature leaves a bias: the positives are rarer, or commoner, than scores say.

    Attributes:
        slopes_: (C,) float64, a; C is 1 for two classes, else K.
        intercepts_: (C,) float64, c.

    References:
        Platt (1999), Probabilistic outputs for support vector machines, section 2.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> Platt().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.3167, 0.6833]])
    """

    name: ClassVar[str] = "platt"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    slopes_: Doubles
    intercepts_: Doubles

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.array([1.0, 0.0])
        mass = np.ones(len(scores)) if weight is None else weight
        effective = mass.sum() ** 2 / (mass @ mass)
        positives = effective * (mass @ hits) / mass.sum()
        targets = np.where(hits, (positives + 1) / (positives + 2), 1 / (effective - positives + 2))
        largest = float(np.abs(scores).max()) or 1.0
        centre = np.average(scores / largest, weights=weight) * largest
        scale = float(np.sqrt(np.average(((scores - centre) / largest) ** 2, weights=weight))) * largest
        if scale <= 1e-12 * largest:
            # All log-odds are equal: only the shift can be learned.
            return np.array([0.0, special.logit(np.average(targets, weights=weight))])
        standard = np.stack([(scores - centre) / scale, np.ones(len(scores))], axis=1)
        (slope, intercept), _ = fit_logistic(standard, targets, weight)
        return np.array([slope / scale, intercept - slope * (centre / scale)])

    def _evaluate(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        with np.errstate(over="ignore"):
            calibrated = self.slopes_[curve] * scores + self.intercepts_[curve]
        return special.expit(calibrated), special.expit(-calibrated)

    def _keep(self, curves: list[Doubles]) -> None:
        self.slopes_, self.intercepts_ = np.stack(curves, axis=1)

    def _parameters(self) -> dict[str, Any]:
        return {
            "classes": self.classes_,
            "slopes": self.slopes_.tolist(),
            "intercepts": self.intercepts_.tolist(),
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.count("classes", least=2)
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.slopes_ = document.numbers("slopes")
        calibrator.intercepts_ = document.numbers("intercepts")
        for field, values in (("slopes", calibrator.slopes_), ("intercepts", calibrator.intercepts_)):
            if len(values) != curves:
                document.refuse(field, f"{len(values)} numbers", f"{curves}, as 'classes' says")
        return calibrator
