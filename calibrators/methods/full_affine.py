"""Affine maps with a full matrix: the base of matrix and Dirichlet calibration."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.documents import Document, written
from calibrators.fitting.softmax_regression import AffineMap, check_penalty, fit_affine
from calibrators.validation import LabelledRows


class FullAffine(Calibrator):
    """A calibrator p = softmax(W f + b) with a full, regularised W; final classes define the features f.

    Args:
        off_diagonal: Penalty on the mean square of the off-diagonal weights, 0 or more.
        intercept: Penalty on the mean square of the intercepts, 0 or more.
    """

    weights_: Doubles
    intercepts_: Doubles

    @staticmethod
    @abstractmethod
    def _features(logits: Doubles, maxima: Doubles) -> Doubles:
        """Return features (n, K) of one chunk of logits (n, K), not to be changed, and its row maxima (n, 1)."""

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
        return written(self, "off_diagonal", "intercept", "weights", "intercepts")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.number("off_diagonal", 0.0), document.number("intercept", 0.0))
        calibrator.intercepts_ = document.numbers("intercepts")
        calibrator.classes_ = classes = len(calibrator.intercepts_)
        if classes < 2:
            document.refuse("intercepts", f"{classes} numbers", "2 or more, one per class")
        calibrator.weights_ = document.table("weights", classes, classes)
        return calibrator
