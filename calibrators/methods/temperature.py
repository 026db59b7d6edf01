"""Temperature scaling: one number for all logits."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import row_sums
from calibrators.documents import Document, written
from calibrators.fitting.best_temperature import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE, best_temperature
from calibrators.validation import LabelledRows


@final
class Temperature(Calibrator):
    """Divide all logits by one temperature T > 0: p = softmax(z / T).

    T is the exact minimiser of the mean negative log-likelihood over [0.05, 20]; the objective is convex in 1/T. If the
    best T lies outside, T is the nearer bound and `at_bound_` is true: 0.05 if every label has the largest logit (a
    separable set has no finite optimum), 20 if logits are noise. If all logits of every row are equal, T is 1.

    Logits of float32 with more than 32 classes are divided and exponentiated in float32: each probability is then right
    to 2e-7, and its logarithm to 3e-7 times its distance from zero. All else is computed in float64.

    Preserves: the arg max of every row, so accuracy, up to ties made by rounding; with two classes the order of all
    rows, strictly.
    When to use: first: it corrects the overconfidence of most networks. The wrong labels determine T: 25 are enough;
        with a handful T may be far off, and with none it is 0.05, which makes the next error very costly.

    Attributes:
        temperature_: T, in [0.05, 20]; above 1 softens, below 1 sharpens.
        at_bound_: The optimum lies at or beyond a bound of that range.

    References:
        Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, section 4.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> calibrator = Temperature().fit(logits, np.array([0, 0, 0, 1]))
        >>> calibrator.predict_proba(logits[:1]).round(6)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "temperature"
    preserves_order: ClassVar[bool] = True
    _single_precision_from: ClassVar[float] = 33

    temperature_: float
    at_bound_: bool

    def _fit(self, rows: LabelledRows) -> None:
        self.temperature_, self.at_bound_ = best_temperature(rows)
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        # Shift before scaling, so that neither step overflows and the largest entry is exactly zero.
        with np.errstate(over="ignore"):
            logits -= maxima
            logits *= 1.0 / self.temperature_
        np.exp(logits, out=logits)
        logits /= row_sums(logits)
        return logits

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "temperature", "at_bound")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.temperature_ = document.number("temperature", LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        calibrator.at_bound_ = document.flag("at_bound")
        calibrator.classes_ = document.classes()
        return calibrator
