"""Isotonic regression by pool adjacent violators: what the two isotonic calibrators share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from calibrators.arrays import Doubles
from calibrators.curves import interpolate
from calibrators.documents import Document
from calibrators.one_vs_rest import OneVsRest
from calibrators.sorted_scores import SortedScores, Starts, sort_scores


class IsotonicCurves(OneVsRest):
    """Non-decreasing piecewise linear curves of the probability; final classes say which points they join.

    Attributes:
        inputs_: One array for each curve, (M,) increasing probabilities.
        outputs_: Likewise (M,) non-decreasing: the calibrated probabilities there. Constant beyond the two ends.
    """

    inputs_: list[Doubles]
    outputs_: list[Doubles]

    @staticmethod
    @abstractmethod
    def _knots(rows: SortedScores, starts: Starts, levels: Doubles) -> Doubles:
        """Points (2, M) to join: inputs, increasing, and outputs.

        Args:
            rows: Rows in the order of their probability.
            starts: (B,) row number that each block of the regression begins at, increasing from 0.
            levels: (B,) the regression there, increasing.
        """

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.array([[0.0, 1.0], [0.0, 1.0]])
        rows = sort_scores(special.expit(scores), hits, weight)
        starts = rows.pooled()
        mass, right = rows.totals(starts)
        levels = np.clip(optimize.isotonic_regression(right / mass, weights=mass).x, 0, 1)
        blocks = np.concatenate([[0], np.flatnonzero(np.diff(levels)) + 1])
        return self._knots(rows, starts[blocks], levels[blocks])

    def _evaluate(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        chance = interpolate(special.expit(scores), self.inputs_[curve], self.outputs_[curve])
        return chance, 1 - chance

    def _keep(self, curves: list[Doubles]) -> None:
        self.inputs_ = [curve[0] for curve in curves]
        self.outputs_ = [curve[1] for curve in curves]

    def _parameters(self) -> dict[str, Any]:
        return {
            "classes": self.classes_,
            "inputs": [values.tolist() for values in self.inputs_],
            "outputs": [values.tolist() for values in self.outputs_],
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.count("classes", least=2)
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.inputs_, calibrator.outputs_ = document.curves("inputs", "outputs", curves)
        for i, outputs in enumerate(calibrator.outputs_):
            if not (np.diff(outputs) >= 0).all():
                document.refuse(f"outputs[{i}]", "numbers out of order", "numbers that never decrease")
        return calibrator
