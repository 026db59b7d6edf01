"""Multi-class isotonic regression (IRM): one isotonic curve for all classes."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import scipy

from calibrators.arrays import Doubles
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.documents import Document, written
from calibrators.fitting.curves import interpolate
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.softmax import softmax_in_place
from calibrators.validation import LabelledRows

# The published method adds this times the probability, so that the curve increases strictly.
_SLOPE = 1e-9
# The predicted class stays ahead by this factor, more than rounding to float32 can undo.
_LEAD = 1 + 5e-7


@final
class IsotonicMulticlass(Calibrator):
    """Map all probabilities of all classes by one increasing curve, and divide each row by its sum.

    The curve is the isotonic regression of "this class is the label" on its probability, over all N · K entries, linear
    between the data, constant beyond them, plus 1e-9 times the probability. One curve for all classes needs far fewer
    labels than one per class, and cannot reorder the classes of a row. On a flat part the classes of a row become
    equal, except the class with the largest logit, which stays ahead by 5e-7 of its value. Below the least probability
    of a label the curve is next to 0, and the log loss of a later row there is 20 nats or more. A class with a logit of
    −inf keeps a probability of zero.

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
    preserves_order: ClassVar[bool] = True

    inputs_: Doubles
    outputs_: Doubles

    def _fit(self, rows: LabelledRows) -> None:
        points = _Points(rows)
        levels = np.clip(scipy.optimize.isotonic_regression(points.right / points.mass, weights=points.mass).x, 0, 1)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(levels)) + 1])
        ends = np.append(starts[1:], len(levels)) - 1
        inputs = np.stack([points.first[starts], points.last[ends]], axis=1).ravel()
        # A block of one input is one point, not two.
        kept = np.append(True, np.diff(inputs) > 0)
        self.inputs_, self.outputs_ = inputs[kept], np.repeat(levels[starts], 2)[kept]
        self.classes_ = rows.logits.shape[1]

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
        return written(self, "classes", "inputs", "outputs")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.classes_ = document.classes()
        calibrator.inputs_, calibrator.outputs_ = document.curve("inputs", "outputs")
        if not (np.diff(calibrator.outputs_) >= 0).all():
            document.refuse("outputs", "out of order", "numbers that never decrease")
        return calibrator


class _Points:
    """All N · K probabilities, grouped at those of the labels: read twice, chunk by chunk, in O(N) memory.

    A label's probability and all values up to the next label's belong to one block of the isotonic regression, since
    only the label is a hit. Values below the first label's are a block of level 0.

    Attributes:
        first: (U,) least probability of each point, increasing.
        last: (U,) largest.
        mass: (U,) weight.
        right: (U,) weight of hits.
    """

    def __init__(self, rows: LabelledRows) -> None:
        weight = None if rows.weight is None else rows.weight / rows.weight.max()
        own = np.empty(len(rows.labels))
        for part, chunk, maxima in logit_chunks(rows.logits):
            at = (np.arange(len(chunk)), rows.labels[part])
            check_label_logits(chunk[at], rows.labels, part.start)
            own[part] = softmax_in_place(chunk, maxima)[at]
        hits = sort_scores(own, np.ones(len(own), np.bool_), weight)
        starts = hits.distinct()
        labels, right = hits.scores[starts], hits.totals(starts)[1]
        mass, last, least = np.zeros(len(labels) + 1), np.full(len(labels) + 1, -np.inf), np.inf
        for part, chunk, maxima in logit_chunks(rows.logits):
            possible = chunk > -np.inf
            chances = softmax_in_place(chunk, maxima)[possible]
            repeated = None if weight is None else np.repeat(weight[part], np.count_nonzero(possible, axis=1))
            entries = sort_scores(chances, np.zeros(len(chances), np.bool_), repeated)
            # Sorted, so that the cost of a chunk does not depend on the number of labels.
            index = np.searchsorted(labels, entries.scores, side="right")
            starts = np.append(0, np.flatnonzero(np.diff(index)) + 1)
            places, ends = index[starts], np.append(starts[1:], len(index)) - 1
            mass[places] += entries.totals(starts)[0]
            last[places] = np.maximum(last[places], entries.scores[ends])
            least = min(least, float(entries.scores[0]))
        below = 0 if mass[0] > 0 else 1
        self.first = np.concatenate([[least], labels])[below:]
        self.last, self.mass = last[below:], mass[below:]
        self.right = np.minimum(np.concatenate([[0.0], right])[below:], self.mass)
