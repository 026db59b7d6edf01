"""Piecewise linear curves of the probability, and isotonic regression by pool adjacent violators."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.documents import Document, written
from calibrators.fitting.curves import INTERP_ROUNDS_EACH_STEP, StackedLines, interpolate
from calibrators.fitting.sorted_scores import SortedScores, Starts, sort_scores
from calibrators.methods.one_vs_rest import OneVsRest


class LinearCurves(OneVsRest):
    """Piecewise linear curves of the probability, constant beyond their ends.

    Attributes:
        inputs_: One array per curve, (M,) increasing probabilities.
        outputs_: One array per curve, (M,) calibrated probabilities there.
    """

    inputs_: list[Doubles]
    outputs_: list[Doubles]

    def _evaluate(self, scores: Doubles, curve: int) -> Doubles:
        inputs, outputs = self.inputs_[curve], self.outputs_[curve]
        flat = inputs[1] if len(inputs) > 1 and outputs[1] == outputs[0] else inputs[0]
        rising = np.flatnonzero(scores > flat)
        if 5 * len(rising) > 4 * len(scores):
            return interpolate(scores, inputs, outputs)
        # Of many classes, most probabilities lie on the flat start of their curve.
        chances = np.empty(len(scores))
        chances.fill(outputs[0])
        chances[rising] = interpolate(scores[rising], inputs, outputs)
        return chances

    def _points(self) -> int:
        return sum(map(len, self.inputs_)) if INTERP_ROUNDS_EACH_STEP else 0

    def _stack(self) -> StackedLines:
        return StackedLines(self.inputs_, self.outputs_)

    def _evaluate_stacked(self, stack: StackedLines, scores: Doubles) -> Doubles | None:
        return stack(scores)

    def _keep(self, curves: list[Doubles]) -> None:
        self.inputs_ = [curve[0] for curve in curves]
        self.outputs_ = [curve[1] for curve in curves]


class IsotonicCurves(LinearCurves):
    """Non-decreasing curves; final classes choose the points that they join."""

    @staticmethod
    @abstractmethod
    def _knots(rows: SortedScores, starts: Starts, levels: Doubles) -> Doubles:
        """Return the points (2, M) to join: increasing inputs, and outputs.

        Args:
            rows: Rows in the order of their probability.
            starts: (B,) row number of each block's start in the regression, increasing from 0.
            levels: (B,) the regression there, increasing.
        """

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.array([[0.0, 1.0], [0.0, 1.0]])
        rows = sort_scores(scores, hits, weight)
        starts = rows.pooled()
        mass, right = rows.totals(starts)
        levels = np.clip(scipy.optimize.isotonic_regression(right / mass, weights=mass).x, 0, 1)
        blocks = np.concatenate([[0], np.flatnonzero(np.diff(levels)) + 1])
        return self._knots(rows, starts[blocks], levels[blocks])

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "inputs", "outputs")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.classes()
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.inputs_, calibrator.outputs_ = document.curves("inputs", "outputs", curves)
        for i, outputs in enumerate(calibrator.outputs_):
            if not (np.diff(outputs) >= 0).all():
                document.refuse(f"outputs[{i}]", "out of order", "numbers that never decrease")
        return calibrator
