"""Venn–Abers prediction: isotonic regression with the row itself added under either label."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.chunks import logit_chunks, row_chunks
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.fitting.curves import StackedSteps
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.methods.one_vs_rest import OneVsRest
from calibrators.validation import as_matrix, check_choice

# Lower limit of p1 for all weights; its reciprocal is finite.
_LEAST = 1e-300
# Log-odds so near to one of the fit are taken for another rounding of it.
_SLACK = 2e-6


@final
class VennAbers(OneVsRest):
    """Give two probabilities for each row, p0 ≤ p1: those of isotonic regression with the row added as a 0, or as a 1.

    One of the two is calibrated, exactly and for any number of rows: a theorem for two classes and exchangeable rows
    without weights, a heuristic with weights, and one-vs-rest for more classes. Their distance shows how far the data
    settle the matter. `predict_proba` gives the one probability with the least regret in log loss, p1 / (1 − p0 + p1),
    never 0 or 1; `bounds` gives the two. With two classes there is one curve, for class 1; with more, one per class,
    and rows are divided by their sum. Log-odds within 2e-6 of one of the fit, and far nearer to it than to the next,
    count as that one: another rounding of a score changes nothing.

    The fit takes one sort and two passes over the corners of the cumulative sum diagram: N log N. A curve holds up to 4
    N numbers: with many rows and many classes `isotonic` stays far smaller.

    Preserves: with two classes the order of all rows, with ties.
    When to use: two classes and few labels (a hundred are enough), if the uncertainty of the probability itself
    matters.

    Args:
        weight_kind: Meaning of sample weights beside the added row, which counts for one: ``"importance"`` (their sum
            is the Kish effective number of rows) or ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        zeros_: For each curve (2, M): log-odds, increasing, and p0 from there on; below the first p0 is 0.
        ones_: For each curve (2, M): log-odds, increasing, and p1 up to there; above the last p1 is 1.

    Raises:
        CalibrationDataError: An unknown weight kind.

    References:
        Vovk, Petej, Fedorova (2015), Large-scale probabilistic predictors with and without guarantees of validity,
        sections 2 (inductive Venn–Abers), 4 (merging) and appendix A (pre-computation).

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> calibrator = VennAbers().fit(logits, np.array([1, 1, 1, 0]))
        >>> calibrator.bounds(logits[:1])[:, 0, 1]
        array([0.6, 0.8])
        >>> calibrator.predict_proba(logits[:1]).round(4)
        array([[0.3333, 0.6667]])
    """

    name: ClassVar[str] = "venn_abers"
    preserves_order: ClassVar[bool] = True
    _reads_probabilities: ClassVar[bool] = False

    zeros_: list[Doubles]
    ones_: list[Doubles]

    def __init__(self, weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def bounds(self, logits: ArrayLike) -> Doubles:
        """Return the two probabilities of each class against all others.

        Args:
            logits: (N, K) raw scores, as in `predict_proba`.

        Returns:
            (2, N, K) float64: p0 and p1 of each class, p0 ≤ p1. With two classes those of class 0 are 1 − p1 and
            1 − p0 of class 1. A class that is certain or impossible by its logits has both at 1 or 0.

        Raises:
            CalibrationDataError: As `predict_proba`.
            CalibrationFitError: Not fitted yet.
        """
        matrix = as_matrix(logits, "logits")
        self.check_fitted(matrix.shape[1])
        result = np.empty((2, *matrix.shape))
        for part, chunk, maxima in logit_chunks(matrix, rows_at_once=self._rows_at_once):
            for curve, scores in enumerate(np.ascontiguousarray(self._scores(chunk, maxima).T)):
                k = 1 if self.classes_ == 2 else curve
                result[:, part, k] = np.where(np.isinf(scores), scores > 0, self._both(scores, curve))
            if self.classes_ == 2:
                result[:, part, 0] = 1 - result[::-1, part, 1]
        return result

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.empty((4, 0))
        counted = None if weight is None else counting_weight(weight, len(scores), self.weight_kind)
        rows = sort_scores(scores, hits, counted)
        starts = rows.distinct()
        inputs = rows.scores[starts]
        mass, right = rows.totals(starts)
        ones = _with_a_one_added(mass, right)
        zeros = 1 - _with_a_one_added(mass[::-1], (mass - right)[::-1])[::-1]
        zeros = np.minimum(zeros, ones)
        # One end of each run of equal values is enough: the first of p0, the last of p1.
        kept = (np.diff(zeros, prepend=0.0) > 0) | (np.diff(ones, append=1.0) > 0)
        below, above = _beside(inputs)
        return np.stack([below, above, zeros, ones])[:, kept]

    def _points(self) -> int:
        return sum(curve.shape[1] for curve in (*self.zeros_, *self.ones_))

    def _stack(self) -> tuple[StackedSteps, StackedSteps]:
        zeros = StackedSteps([x for x, _ in self.zeros_], [np.append(0.0, y) for _, y in self.zeros_], "right")
        ones = StackedSteps([x for x, _ in self.ones_], [np.append(y, 1.0) for _, y in self.ones_], "left")
        return zeros, ones

    def _evaluate_stacked(self, stack: tuple[StackedSteps, StackedSteps], scores: Doubles) -> Doubles:
        zeros, ones = stack
        return _merged(zeros(scores), ones(scores))[0]

    def _both(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        zeros, ones = self.zeros_[curve], self.ones_[curve]
        first = np.concatenate([[0.0], zeros[1]])[np.searchsorted(zeros[0], scores, side="right")]
        second = np.concatenate([ones[1], [1.0]])[np.searchsorted(ones[0], scores, side="left")]
        return first, second

    def _evaluate(self, scores: Doubles, curve: int) -> Doubles:
        return _merged(*self._both(scores, curve))[0]

    def _both_probabilities(self, scores: Doubles) -> tuple[Doubles, Doubles]:
        chance, rest = _merged(*self._both(scores, 0))
        return rest, chance

    def _keep(self, curves: list[Doubles]) -> None:
        self.zeros_ = [c[::2, np.diff(c[2], prepend=0.0) > 0] for c in curves]
        self.ones_ = [c[1::2, np.diff(c[3], append=1.0) > 0] for c in curves]

    def _parameters(self) -> dict[str, Any]:
        return {
            **written(self, "classes", "weight_kind"),
            "zero_inputs": [curve[0].tolist() for curve in self.zeros_],
            "zero_outputs": [curve[1].tolist() for curve in self.zeros_],
            "one_inputs": [curve[0].tolist() for curve in self.ones_],
            "one_outputs": [curve[1].tolist() for curve in self.ones_],
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.weight_kind())
        calibrator.classes_ = document.classes()
        count = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.zeros_ = _curves(document, "zero_inputs", "zero_outputs", count)
        calibrator.ones_ = _curves(document, "one_inputs", "one_outputs", count)
        for i, (zeros, ones) in enumerate(zip(calibrator.zeros_, calibrator.ones_, strict=True)):
            if (zeros[1] == 1).any():
                document.refuse(f"zero_outputs[{i}]", "a probability of 1", "numbers below 1")
            if (ones[1] < _LEAST).any():
                document.refuse(f"one_outputs[{i}]", f"{ones[1].min():g}", f"numbers of {_LEAST:g} or more")
            # p0 rises only at its inputs, and p1 falls nowhere.
            if (zeros[1] > calibrator._both(zeros[0], i)[1]).any():
                document.refuse(f"zero_outputs[{i}]", "a probability above that of one_outputs", "p0 ≤ p1 everywhere")
        return calibrator


def _merged(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """Return the probability of p0 and p1 with the least regret in log loss, and 1 minus it."""
    odds = second / (1 - first)
    return 1 / (1 + 1 / odds), 1 / (1 + odds)


def _curves(document: Document, inputs: str, outputs: str, count: int) -> list[Doubles]:
    both = document.rows_of_numbers(inputs, count=count), document.rows_of_numbers(outputs, 0.0, 1.0, count)
    for i, (x, y) in enumerate(zip(*both, strict=True)):
        if len(y) != len(x):
            document.refuse(f"{outputs}[{i}]", f"{len(y)} numbers", f"{len(x)} numbers")
        for field, values in ((inputs, x), (outputs, y)):
            if not (np.diff(values) > 0).all():
                document.refuse(f"{field}[{i}]", "out of order", "increasing numbers")
    return [np.stack(pair) for pair in zip(*both, strict=True)]


def _beside(inputs: Doubles) -> tuple[Doubles, Doubles]:
    """Return the ends (U,) of the scores that count as equal to each input (U,): other roundings of it.

    They are 2e-6 away, or a quarter of the way to the next input; of neighbouring numbers, no way at all, so that no
    score counts as two of them.
    """
    slack = np.full(len(inputs) + 1, _SLACK)
    slack[1:-1] = np.minimum(_SLACK, np.diff(inputs) / 4)
    below, above = inputs - slack[:-1], inputs + slack[1:]
    apart = above[:-1] < below[1:]
    above[:-1] = np.where(apart, above[:-1], inputs[:-1])
    below[1:] = np.where(apart, below[1:], inputs[1:])
    return below, above


def _with_a_one_added(mass: Doubles, right: Doubles) -> Doubles:
    """Return the isotonic regression (U,) at each of U inputs after a row of label 1 and mass 1 is added there.

    The cumulative sum diagram joins P_k = (mass, hits) of the first k inputs. A one before input i adds a step of (1,
    1) between P_i, shifted by (−1, −1), and the rest; the result is the slope over that step, for one i after the
    other. Corners of the lower hull to the right of the step lie on a stack, leftmost on top; each is pushed and
    dropped once.

    Args:
        mass: (U,) above 0, U ≥ 1.
        right: (U,) mass of the ones among it.
    """
    x = np.concatenate([[0.0], np.cumsum(mass)])
    y = np.concatenate([[0.0], np.cumsum(right)])
    start = scipy.optimize.isotonic_regression(
        np.concatenate([[1.0], right / mass]), weights=np.concatenate([[1.0], mass])
    ).blocks
    corners = np.asarray(start[1:])[::-1] - 1
    across, up = x[corners].tolist(), y[corners].tolist()
    across.append(-1.0)
    up.append(-1.0)
    levels = np.empty(len(mass))
    # Python reads lists fastest, but a number in a list takes 32 bytes, so only a part at a time.
    for part in row_chunks(len(mass), 1):
        found = []
        for left, low in zip((x[1:][part] - 1).tolist(), (y[1:][part] - 1).tolist(), strict=True):
            width, height = across[-2] - across[-1], up[-2] - up[-1]
            found.append(height / width)
            if (low - up[-1]) * width >= height * (left - across[-1]):
                continue
            across.pop()
            up.pop()
            while len(up) > 1 and (up[-2] - low) * (across[-1] - left) <= (up[-1] - low) * (across[-2] - left):
                across.pop()
                up.pop()
            across.append(left)
            up.append(low)
        levels[part] = found
    return np.maximum.accumulate(np.clip(levels, 0.0, 1.0))
