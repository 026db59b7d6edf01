"""Affine maps shrunk towards temperature scaling: the base of structured vector and matrix scaling."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.fitting.best_temperature import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE, best_temperature
from calibrators.fitting.softmax_regression import AffineMap, check_penalty, fit_shrunk
from calibrators.softmax import log_softmax_in_place
from calibrators.validation import LabelledRows, check_choice

# The logarithm of the smallest normal float32: log-probabilities below count as this.
_LOWEST = -87.3


class ShrunkScaling(Calibrator):
    """p = softmax(A f + b), f = log softmax(z / T), T from temperature scaling; final classes choose the form of A.

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: A, (K,) for a diagonal, or (K, K).
        intercepts_: (K,) b.
    """

    _full: ClassVar[bool]

    temperature_: float
    at_bound_: bool
    weights_: Doubles
    intercepts_: Doubles

    def __init__(self, strength: float = 1.0, weight_kind: WeightKind = "importance") -> None:
        self.strength = check_penalty(strength, "strength")
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        temperature, at_bound = best_temperature(rows)
        worth = float(counting_weight(rows.weight, len(rows.labels), self.weight_kind).sum())
        penalty = self.strength * classes / worth
        found = fit_shrunk(
            rows,
            lambda chunk, maxima: _features(chunk, maxima, temperature),
            full=self._full,
            diagonal=penalty,
            off_diagonal=penalty * (classes - 1),
            intercept=penalty,
        )
        self.temperature_, self.at_bound_ = temperature, at_bound
        self.weights_, self.intercepts_ = found.weights, found.intercepts
        self.classes_ = classes

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        possible = logits > -np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            return AffineMap(self.weights_, self.intercepts_).probabilities(
                _features(logits, maxima, self.temperature_), possible
            )

    def _parameters(self) -> dict[str, Any]:
        return written(self, "strength", "weight_kind", "temperature", "at_bound", "weights", "intercepts")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.number("strength", 0.0), document.weight_kind())
        calibrator.temperature_ = document.number("temperature", LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        calibrator.at_bound_ = document.flag("at_bound")
        calibrator.intercepts_ = document.numbers("intercepts")
        calibrator.classes_ = classes = len(calibrator.intercepts_)
        if classes < 2:
            document.refuse("intercepts", f"{classes} numbers", "2 or more, one per class")
        square = cls._full
        calibrator.weights_ = (
            document.table("weights", classes, classes) if square else document.numbers("weights", count=classes)
        )
        return calibrator


def _features(logits: Doubles, maxima: Doubles, temperature: float) -> Doubles:
    """Overwrite logits (n, K) with log softmax(z / T), at least −87.3."""
    with np.errstate(over="ignore"):
        logits -= maxima
        logits /= temperature
    log_softmax_in_place(logits, np.zeros_like(maxima))
    return np.maximum(logits, _LOWEST, out=logits)
