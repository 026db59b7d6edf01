"""Affine maps with a full matrix: what matrix and Dirichlet calibration share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.documents import Document
from calibrators.softmax_regression import AffineMap, check_penalty, fit_affine
from calibrators.validation import LabelledRows


class FullAffine(Calibrator):
    """A calibrator p = softmax(W f + b) with a full, regularised W; final classes say what the features f are.

    Args:
        off_diagonal: Penalty on the mean square of the off-diagonal weights, 0 or more.
        intercept: Penalty on the mean square of the intercepts, 0 or more.
    """

    weights_: Doubles
    intercepts_: Doubles

    @staticmethod
    @abstractmethod
    def _features(logits: Doubles, maxima: Doubles) -> Doubles:
        """Features (n, K) of one chunk: (n, K) float64 logits, not to be changed, and their (n, 1) row maxima."""

    def __init__(self, off_diagonal: float = 1e-2, intercept: float = 1e-2) -> None:
        self.off_diagonal = check_penalty(off_diagonal, "off_diagonal")
        self.intercept = check_penalty(intercept, "intercept")

    def _fit(self, rows: LabelledRows) -> None:
        found = fit_affine(rows, self._features, full=True, off_diagonal=self.off_diagonal, intercept=self.intercept)
        self.weights_, self.intercepts_ = found.weights, found.intercepts
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        with np.errstate(over="ignore", invalid="ignore"):
            return AffineMap(self.weights_, self.intercepts_).probabilities(
                self._features(logits, maxima), logits > -np.inf
            )

    def _parameters(self) -> dict[str, Any]:
        return {
            "off_diagonal": self.off_diagonal,
            "intercept": self.intercept,
            "weights": self.weights_.tolist(),
            "intercepts": self.intercepts_.tolist(),
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.number("off_diagonal", 0.0), document.number("intercept", 0.0))
        weights = document.rows_of_numbers("weights")
        calibrator.intercepts_ = document.numbers("intercepts")
        classes = len(weights)
        if classes < 2 or any(len(row) != classes for row in weights):
            document.refuse("weights", f"{classes} lists", "a square of 2 or more numbers each way")
        if len(calibrator.intercepts_) != classes:
            document.refuse("intercepts", f"{len(calibrator.intercepts_)} numbers", f"{classes}, as there are classes")
        calibrator.weights_ = np.stack(weights)
        calibrator.classes_ = classes
        return calibrator
