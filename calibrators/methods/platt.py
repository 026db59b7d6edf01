"""Platt scaling: a sigmoid of the log-odds."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, TypeAlias, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.fitting.logistic_curves import CurveShape, fit_curves
from calibrators.fitting.score_chunks import ScoreChunks
from calibrators.methods.log_odds_curves import LogOddsCurves
from calibrators.validation import LabelledRows, check_choice

PlattOn: TypeAlias = Literal["log_odds", "margin"]
_ON: tuple[PlattOn, ...] = ("log_odds", "margin")

_SHAPE = CurveShape(
    columns=lambda scores: [scores],
    features=lambda columns: columns,
    linear=(0,),
    bounded=0,
    ridge=0.0,
    soft_targets=True,
)


@final
class Platt(LogOddsCurves):
    """Scale and shift the log-odds: p = σ(a s + c), s = log-odds of a class against all others.

    With two classes s = z_1 − z_0 and there is one pair (a, c); with more, one per class, and rows are divided by their
    sum. ``on="margin"`` calibrates the confidence alone: s is the log-odds of the class with the largest logit, there
    is one pair for any number of classes, and the other classes share the rest in their old proportions. One of them
    may end up larger if a right answer is less likely than not: `top_label` still returns the raw label, with its
    calibrated confidence.

    Labels count as (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2), Platt's targets, which keep the optimum finite if classes are
    separable or missing. The fit is within 1e-12 of the least mean log loss. If all log-odds are equal, a is 1 and c is
    learned.

    Preserves: with two classes the order of all rows, strictly, if a > 0 (else the scores were the wrong way round);
    not the arg max, which c moves to correct a bias. On the margin: the label of every row, so accuracy, as `top_label`
    gives it, and the order of confidences if a > 0.
    When to use: two classes, if temperature leaves a bias: the positives are rarer, or more frequent, than scores say.
    On the margin: any number of classes, if confidence is too high or too low by more than a temperature corrects.

    Args:
        on: ``"log_odds"`` of every class, or ``"margin"``: of the class with the largest logit.
        weight_kind: Meaning of sample weights in n₊ and n₋: ``"importance"`` (shares of the Kish effective number of
            rows) or ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        slopes_: (C,) float64, a; C is 1 for two classes and on the margin, else K.
        intercepts_: (C,) float64, c.

    Raises:
        CalibrationDataError: An unknown option.

    References:
        Platt (1999), Probabilistic outputs for support vector machines, section 2.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> Platt().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.3167, 0.6833]])
    """

    name: ClassVar[str] = "platt"

    slopes_: Doubles
    intercepts_: Doubles

    def __init__(self, on: PlattOn = "log_odds", weight_kind: WeightKind = "importance") -> None:
        check_choice(on, _ON, "on")
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.on = on
        self.weight_kind = weight_kind
        self.top_label_only = on == "margin"

    def _fit(self, rows: LabelledRows) -> None:
        source = ScoreChunks(rows, self.top_label_only)
        fit = fit_curves(source, _SHAPE, self.weight_kind == "frequency")
        flat = np.isinf(fit.scales[:, 0])
        self.slopes_ = np.where(flat, 1.0, fit.theta[:, 0] / fit.scales[:, 0])
        self.intercepts_ = fit.theta[:, 1] - self.slopes_ * fit.centres[:, 0]
        self.classes_ = rows.logits.shape[1]

    def _calibrated(self, scores: Doubles) -> Doubles:
        return scores * self.slopes_ + self.intercepts_

    def _parameters(self) -> dict[str, Any]:
        # Documents of the margin use other field names, so that they cannot be mistaken for those of log-odds.
        if self.on == "log_odds":
            return written(self, "classes", "weight_kind", "slopes", "intercepts")
        margin = {"margin_slope": float(self.slopes_[0]), "margin_intercept": float(self.intercepts_[0])}
        return {**written(self, "classes", "weight_kind"), **margin}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        classes = document.classes()
        calibrator = cls("margin" if document.has("margin_slope") else "log_odds", document.weight_kind())
        calibrator.classes_ = classes
        if calibrator.on == "margin":
            calibrator.slopes_ = np.array([document.number("margin_slope")])
            calibrator.intercepts_ = np.array([document.number("margin_intercept")])
            return calibrator
        curves = 1 if classes == 2 else classes
        calibrator.slopes_ = document.numbers("slopes", count=curves)
        calibrator.intercepts_ = document.numbers("intercepts", count=curves)
        return calibrator
