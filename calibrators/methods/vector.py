"""Vector scaling: a scale and a shift per logit."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.documents import Document, written
from calibrators.fitting.softmax_regression import AffineMap, fit_affine, raw_logits
from calibrators.validation import LabelledRows


@final
class Vector(Calibrator):
    """Scale and shift every logit by numbers of its class: p = softmax(w ⊙ z + b).

    The maximum of the likelihood over 2K parameters. A ridge of 1e-6 on standardised logits keeps it finite if the data
    do not (a class without labels, separable rows): such a class gets a probability near zero.

    Preserves: nothing for certain; it corrects a bias towards some classes, so the arg max may change, mostly for the
    better.
    When to use: if some classes are over-predicted or more overconfident than others, with hundreds of labels per
    class.

    Attributes:
        weights_: (K,) float64, w.
        intercepts_: (K,) float64, b. Only differences matter.

    References:
        Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, section 4.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> calibrator = Vector().fit(logits, np.array([0, 0, 0, 1]))
        >>> calibrator.predict_proba(logits[:1]).round(4)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "vector"

    weights_: Doubles
    intercepts_: Doubles

    def _fit(self, rows: LabelledRows) -> None:
        found = fit_affine(rows, raw_logits, full=False)
        self.weights_, self.intercepts_ = found.weights, found.intercepts
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        with np.errstate(over="ignore"):
            return AffineMap(self.weights_, self.intercepts_).probabilities(
                raw_logits(logits, maxima), logits > -np.inf
            )

    def _parameters(self) -> dict[str, Any]:
        return written(self, "weights", "intercepts")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.weights_ = document.numbers("weights")
        calibrator.classes_ = classes = len(calibrator.weights_)
        if classes < 2:
            document.refuse("weights", f"{classes} numbers", "2 or more, one per class")
        calibrator.intercepts_ = document.numbers("intercepts", count=classes)
        return calibrator
