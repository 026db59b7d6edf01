"""Read probabilities and labels for the metrics, in row chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.chunks import class_columns as columns
from calibrators.chunks import probability_chunks, top_class_chunks
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, check_frequencies
from calibrators.errors import CalibrationDataError
from calibrators.threads import by_rows
from calibrators.validation import as_labels, check_choice, check_count, checked_rows


@dataclass(frozen=True, slots=True)
class TopLabels:
    """The judged label of each row: the predicted one, or the same class in all rows.

    Attributes:
        confidence: (N,) probability of that label, in the probabilities' own type.
        correct: (N,) whether it is the true label.
        weight: (N,) float64, positive, or None.
    """

    confidence: Floats
    correct: npt.NDArray[np.bool_]
    weight: Doubles | None

    def weights(self) -> Doubles:
        """Return the weights (N,), ones if there are none."""
        return np.ones(len(self.correct)) if self.weight is None else self.weight


# Threads that give Python's lock back more often would wait for each other.
_TOP_ENTRIES = 1_048_576

Statistic: TypeAlias = Callable[[Doubles], Doubles]
"""A metric as a function of the rows' weights (…, n), of shape (…), with all that they do not change done once."""


def check_rows(
    probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Floats, Labels, Doubles | None]:
    """Check the arguments of all metrics, except the values of the probabilities."""
    return checked_rows(probabilities, labels, sample_weight, "probabilities")


def top_labels(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> TopLabels:
    """Read the judged labels, without rows of weight zero; arguments as in `calibrators.metrics`."""
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    rows, classes = matrix.shape
    if positive is not None:
        check_positive(positive, classes, predicted)
    chosen = None if predicted is None else as_labels(predicted, rows, classes, "predicted")
    confidence = np.empty(rows, matrix.dtype)
    correct = np.empty(rows, np.bool_)

    def judge(part: slice, chunk: Floats, index: npt.NDArray[np.integer]) -> None:
        confidence[part] = chunk[np.arange(len(index)), index]
        correct[part] = index == truth[part]

    def read(span: range) -> None:
        if positive is None and chosen is None and classes > 2:
            for part, chunk, top in top_class_chunks(matrix, span, _TOP_ENTRIES):
                judge(part, chunk, top)
            return
        for part, chunk in probability_chunks(matrix, span, _TOP_ENTRIES):
            if positive is not None:
                confidence[part] = chunk[:, positive]
                np.equal(truth[part], positive, out=correct[part])
            elif chosen is not None:
                judge(part, chunk, chosen[part])
            else:
                np.maximum(chunk[:, 0], chunk[:, 1], out=confidence[part])
                np.equal(chunk[:, 1] > chunk[:, 0], truth[part] == 1, out=correct[part])

    by_rows(rows, classes, read)
    np.minimum(confidence, 1, out=confidence)
    if weight is not None and not weight.all():
        kept = weight > 0
        return TopLabels(confidence[kept], correct[kept], weight[kept])
    return TopLabels(confidence, correct, weight)


def check_positive(positive: int, classes: int, predicted: ArrayLike | None) -> None:
    """Refuse a positive class out of range, or together with predicted labels."""
    check_count(positive, "positive", least=0)
    if positive >= classes or predicted is not None:
        raise CalibrationDataError(
            "Bad option",
            where="positive",
            found=str(positive) if predicted is None else "given together with predicted",
            expected=f"a class from 0 to {classes - 1}" if predicted is None else "either positive or predicted",
        )


def class_columns(probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None) -> Iterator[TopLabels]:
    """Yield, for each class, its probability as confidence and whether it is the true class as correct."""
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    for _ in probability_chunks(matrix):
        pass  # checks every value before the first class is answered
    kept = slice(None) if weight is None or weight.all() else np.flatnonzero(weight)
    weight = None if weight is None else weight[kept]
    truth = truth[kept]
    for k, column in columns(matrix):
        yield TopLabels(np.minimum(column[kept], 1), truth == k, weight)


def tied_runs(confidence: Floats, *, descending: bool = False) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the order (N,) of rows by confidence, and the start (U,) of each run of equal values in it."""
    order = np.argsort(confidence)
    order = order[::-1] if descending else order
    values = confidence[order]
    return order, np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def check_weight_kind(sample_weight: ArrayLike | None, kind: WeightKind) -> None:
    """Refuse an unknown kind, and frequencies that are not whole numbers."""
    check_choice(kind, WEIGHT_KINDS, "weight_kind")
    check_frequencies(sample_weight, kind)


def noise_weight(weight: Doubles | None, rows: int, kind: WeightKind) -> Doubles:
    """Return the factor (N,) of each row's variance in the variance of a weighted sum.

    It is the squared weight; but a row seen w times is w independent rows, whose variances add up.
    """
    if weight is None:
        return np.ones(rows)
    return weight if kind == "frequency" else weight * weight


def weighted_mean(values: Doubles, weight: Doubles | None) -> float:
    """Return the mean of (N,) values; a value of weight zero does not count, even if it is infinite."""
    if weight is None:
        return float(values.mean())
    kept = weight > 0
    return float(np.average(values[kept], weights=weight[kept]))
