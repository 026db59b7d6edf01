"""Multi-class isotonic regression (IRM): one isotonic curve for all classes."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
from scipy import optimize

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.curves import interpolate
from calibrators.documents import Document
from calibrators.softmax import softmax_in_place
from calibrators.validation import LabelledRows

# What the published curve adds to be strictly increasing, times the probability.
_SLOPE = 1e-9
# So much larger than all others the predicted class stays, beyond what rounding to float32 can undo.
_LEAD = 1 + 5e-7


@final
class IsotonicMulticlass(Calibrator):
    """Maps all probabilities of all classes by one increasing curve, and divides each row by its sum.

    The curve is the isotonic regression of "this class is the label" on its probability, over all N · K entries,
    joined linearly, constant beyond the data, plus 1e-9 times the probability. One curve for all classes needs far
    fewer labels than one for each, and cannot reorder the classes of a row. Where the curve is flat the classes of a
    row become equal but for the class with the largest logit, which stays ahead by 5e-7 of its value. A class whose
    logit is −inf keeps a probability of zero. The fit holds N · K probabilities in memory.

    Preserves: the arg max of every row, so accuracy; with two classes the order of all rows, with ties.
    When to use: more than two classes, thousands of labels, and a curve that no formula fits; instead of `isotonic`.

    Attributes:
        inputs_: (M,) increasing probabilities.
        outputs_: (M,) non-decreasing: the isotonic regression there.

    References:
        Zhang, Kailkhura, Han (2020), Mix-n-Match: ensemble and compositional methods for uncertainty calibration in
        deep learning, section 4.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0, 0.0]] * 4)
        >>> IsotonicMulticlass().fit(logits, np.array([0, 0, 0, 1])).predict_proba(logits[:1]).round(4)
        array([[0.75 , 0.125, 0.125]])
    """

    name: ClassVar[str] = "isotonic_multiclass"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = True

    inputs_: Doubles
    outputs_: Doubles

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        chances, targets = np.empty(rows.logits.shape), np.zeros(rows.logits.shape, np.bool_)
        for part, chunk, maxima in logit_chunks(rows.logits):
            own = (np.arange(len(chunk)), rows.labels[part])
            check_label_logits(chunk[own], rows.labels, part.start)
            targets[part][own] = True
            impossible = chunk == -np.inf
            chances[part] = softmax_in_place(chunk, maxima)
            chances[part][impossible] = np.nan
        weight = None if rows.weight is None else np.repeat(rows.weight / rows.weight.max(), classes)
        # NaN sorts to the end as one value, and is dropped with the mass that lies there.
        inputs, place = np.unique(chances.ravel(), return_inverse=True)
        mass = np.bincount(place, weight).astype(np.float64)
        hits = targets.ravel()
        right = np.bincount(place[hits], None if weight is None else weight[hits], len(inputs))
        if np.isnan(inputs[-1]):
            inputs, mass, right = inputs[:-1], mass[:-1], right[:-1]
        levels = np.clip(optimize.isotonic_regression(right / mass, weights=mass).x, 0, 1)
        ends = np.flatnonzero(np.diff(levels))
        kept = np.union1d(np.concatenate([[0], ends + 1]), np.concatenate([ends, [len(levels) - 1]]))
        self.inputs_, self.outputs_ = inputs[kept], levels[kept]
        self.classes_ = classes

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        top = (np.arange(len(logits)), np.argmax(logits, axis=1))
        impossible = logits == -np.inf
        chances = softmax_in_place(logits, maxima)
        result = interpolate(chances, self.inputs_, self.outputs_) + _SLOPE * chances
        result[impossible] = 0
        largest = result[top]
        result[top] = 0
        result[top] = np.maximum(largest, np.maximum.reduce(result, axis=1) * _LEAD)
        result /= np.add.reduce(result, axis=1, keepdims=True)
        return np.asarray(result)

    def _parameters(self) -> dict[str, Any]:
        return {"classes": self.classes_, "inputs": self.inputs_.tolist(), "outputs": self.outputs_.tolist()}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.count("classes", least=2)
        calibrator.inputs_, calibrator.outputs_ = document.curve("inputs", "outputs")
        if not (np.diff(calibrator.outputs_) >= 0).all():
            document.refuse("outputs", "numbers out of order", "numbers that never decrease")
        return calibrator
