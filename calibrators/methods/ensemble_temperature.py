"""Ensemble temperature scaling: a mixture of a tempered softmax, the plain softmax and a uniform distribution."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks, row_chunks
from calibrators.documents import Document, written
from calibrators.fitting.best_temperature import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE, best_temperature
from calibrators.fitting.mixture import mixture_weights
from calibrators.softmax import softmax_in_place
from calibrators.validation import LabelledRows


@final
class EnsembleTemperature(Calibrator):
    """Mix three distributions: p = w₁ softmax(z / T) + w₂ softmax(z) + w₃ u, with u uniform over the possible classes.

    T is that of `temperature`; then the weights w ≥ 0, Σ w = 1, maximise the likelihood given T, exactly. The uniform
    part fits labels at random and bounds the log loss of confident errors. A class with a logit of −inf keeps a
    probability of zero.

    Preserves: the arg max of every row, so accuracy, up to ties made by rounding; with two classes the order of all
    rows, strictly unless the uniform part has all the weight.
    When to use: if `temperature` is right for most rows, but some labels are wrong or some errors very confident.

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: (3,) float64, w.

    References:
        Zhang, Kailkhura, Han (2020), Mix-n-Match: ensemble and compositional methods for uncertainty calibration in
        deep learning, section 4.1.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> EnsembleTemperature().fit(logits, np.array([0, 0, 0, 1])).predict_proba(logits[:1]).round(4)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "ensemble_temperature"
    preserves_order: ClassVar[bool] = True

    temperature_: float
    at_bound_: bool
    weights_: Doubles

    def _fit(self, rows: LabelledRows) -> None:
        temperature, at_bound = best_temperature(rows)
        rows = rows.relative()
        chances = np.empty((len(rows.labels), 3))
        for part, chunk, maxima in logit_chunks(rows.logits):
            own = (np.arange(len(chunk)), rows.labels[part])
            for i, one in enumerate(_components(chunk, maxima, temperature)):
                chances[part, i] = one[own]
        share = np.full(len(chances), 1 / len(chances)) if rows.weight is None else rows.weight / rows.weight.sum()
        weights = mixture_weights(lambda: ((chances[part], share[part]) for part in row_chunks(*chances.shape)), 3)
        self.temperature_, self.at_bound_, self.weights_ = temperature, at_bound, weights
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        tempered, plain, uniform = _components(logits, maxima, self.temperature_)
        result = self.weights_[0] * tempered + self.weights_[1] * plain + self.weights_[2] * uniform
        result /= np.add.reduce(result, axis=1, keepdims=True)
        return np.asarray(result)

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "temperature", "at_bound", "weights")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.classes()
        calibrator.temperature_ = document.number("temperature", LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        calibrator.at_bound_ = document.flag("at_bound")
        calibrator.weights_ = document.shares("weights", 3)
        return calibrator


def _components(logits: Doubles, maxima: Doubles, temperature: float) -> tuple[Doubles, Doubles, Doubles]:
    """Return the three distributions (n, K) of one chunk."""
    with np.errstate(over="ignore"):
        below = logits - maxima
        tempered = softmax_in_place(below / temperature, np.zeros_like(maxima))
    possible = (below > -np.inf).astype(np.float64)
    possible /= np.add.reduce(possible, axis=1, keepdims=True)
    return tempered, softmax_in_place(below, np.zeros_like(maxima)), possible
