"""Histogram binning: the share of right answers in each bin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles
from calibrators.binning import SCHEMES, Scheme, bin_counts, bin_edges, bin_index, mass_edges, raised_edges
from calibrators.calibrator import Calibrator
from calibrators.chunks import class_columns, logit_chunks
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.fitting.top_confidence import replace_confidence, row_confidence, row_tops
from calibrators.validation import LabelledRows, check_bin_count, check_choice

Pieces: TypeAlias = Iterator[tuple[slice, Doubles, npt.NDArray[np.bool_]]]
"""The rows of one curve, piece by piece: their slice, their scores in [0, 1], and which were hits."""
Target: TypeAlias = Literal["top_label", "per_class"]
TARGETS: tuple[Target, ...] = ("top_label", "per_class")


@final
class Histogram(Calibrator):
    """Replace a probability by the share of right answers in its bin.

    In a bin of n rows, k of them right, the value is (k + ½) / (n + 1), never 0 or 1. An empty bin (equal width only)
    gets its centre. Bins are right-closed, (lo, hi], the first one closed.

    On the top label, the confidence of the class with the largest logit is replaced, and the other classes share the
    rest in their old proportions. One of them may end up larger: `top_label` still returns the raw label, with its
    calibrated confidence. Per class, two classes have one curve, for class 1; more classes have one each, and rows are
    divided by their sum; a class with a logit of −inf gets the value of its lowest bin, above zero.

    Preserves: on the top label, the label; nothing else: all probabilities of one bin become equal.
    When to use: with many labels (some 50 a bin), if no formula fits the miscalibration, or a guarantee per bin is
    needed.

    Args:
        bins: Number of bins, 1 to 1,000,000.
        scheme: ``"mass"`` (bins hold equal numbers of rows, ties never split) or ``"width"``.
        on: ``"top_label"`` or ``"per_class"``.
        weight_kind: Meaning of sample weights in n and k: ``"importance"`` (n is the bin's Kish effective number of
            rows (Σw)² / Σw², k its weighted share) or ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        edges_: One array per curve: (B + 1,) from 0 to 1.
        values_: One array per curve: (B,) calibrated probability of each bin, in (0, 1).

    Raises:
        CalibrationDataError: An unknown option.

    References:
        Zadrozny, Elkan (2001), Obtaining calibrated probability estimates from decision trees and naive Bayesian
        classifiers, section 5; top label: Wang, Feng, Zhang (2021), Rethinking calibration of deep neural networks.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> calibrator = Histogram(bins=1).fit(logits, np.array([0, 0, 0, 1]))
        >>> calibrator.predict_proba(logits[:1])
        array([[0.7, 0.3]])
    """

    name: ClassVar[str] = "histogram"

    edges_: list[Doubles]
    values_: list[Doubles]

    def __init__(
        self,
        bins: int = 15,
        scheme: Scheme = "mass",
        on: Target = "top_label",
        weight_kind: WeightKind = "importance",
    ) -> None:
        check_bin_count(bins)
        check_choice(scheme, SCHEMES, "scheme")
        check_choice(on, TARGETS, "on")
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.bins = int(bins)
        self.scheme = scheme
        self.on = on
        self.weight_kind = weight_kind
        self.top_label_only = on == "top_label"

    def _fit(self, rows: LabelledRows) -> None:
        classes = rows.logits.shape[1]
        if self.on == "top_label":
            curves: Iterable[Pieces] = [_confidences(rows)]
        else:
            curves = [_chances_of_two(rows)] if classes == 2 else _class_chances(rows)
        fit_curve = self._by_width if self.scheme == "width" else self._by_mass
        fitted = [fit_curve(pieces, rows.weight, len(rows.labels)) for pieces in curves]
        self.edges_ = [edges for edges, _ in fitted]
        self.values_ = [values for _, values in fitted]
        self.classes_ = classes

    def _by_width(self, pieces: Pieces, weight: Doubles | None, count: int) -> tuple[Doubles, Doubles]:  # noqa: ARG002
        """Return edges and values of one curve with known edges, in one pass."""
        edges = bin_edges(np.empty(0), self.bins, "width").astype(np.float64)
        total, right, squares = np.zeros((3, self.bins))
        for part, scores, hits in pieces:
            if weight is None:
                total += bin_counts(scores, edges)
                right += bin_counts(scores[hits], edges)
                continue
            index, own = bin_index(scores, edges), weight[part]
            total += np.bincount(index, own, self.bins)
            right += np.bincount(index[hits], own[hits], self.bins)
            squares += np.bincount(index, own * own, self.bins)
        values = (edges[:-1] + edges[1:]) / 2
        taken = total > 0
        values[taken] = self._values(total[taken], right[taken], None if weight is None else squares[taken])
        return edges, values

    def _by_mass(self, pieces: Pieces, weight: Doubles | None, count: int) -> tuple[Doubles, Doubles]:
        """Return edges and values of one curve with edges from the order of all scores."""
        scores, hits = np.empty(count), np.empty(count, np.bool_)
        for part, some, their_hits in pieces:
            scores[part], hits[part] = some, their_hits
        # The rarer kind is cheaper to sort.
        rare = 2 * np.count_nonzero(hits) <= count
        ordered = sort_scores(scores, hits if rare else ~hits, weight)
        edges = mass_edges(ordered.scores, self.bins, ordered.weight).astype(np.float64)
        starts = np.append(0, np.searchsorted(ordered.scores, edges[1:-1], side="right"))
        edges[1:-1] = raised_edges(edges[1:-1], ordered.scores[starts[1:]])
        total, kind = ordered.totals(starts)
        right = kind if rare else total - kind
        squares = None if ordered.weight is None else np.add.reduceat(ordered.weight * ordered.weight, starts)
        return edges, self._values(total, right, squares)

    def _values(self, total: Doubles, right: Doubles, squares: Doubles | None) -> Doubles:
        """Return values (B,) of bins from their weight above 0, weight of hits, and sum of squared weights."""
        if squares is not None and self.weight_kind == "importance":
            # Scaled so that a bin's total is its effective number of rows.
            total, right = total * (total / squares), right * (total / squares)
        return (right + 0.5) / (total + 1)

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        if self.on == "top_label":
            confidence = self.values_[0][bin_index(row_confidence(logits, maxima), self.edges_[0])]
            return replace_confidence(logits, confidence)
        if self.classes_ == 2:
            chances = self.values_[0][bin_index(_chance_of_two(logits), self.edges_[0])]
            return np.stack([1 - chances, chances], axis=1)
        totals = _log_total(logits, maxima)
        for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
            logits[:, k] = values[bin_index(_shares(logits[:, k], totals), edges)]
        logits /= np.add.reduce(logits, axis=1, keepdims=True)
        return logits

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "bins", "scheme", "on", "weight_kind", "edges", "values")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        bins = document.count("bins")
        scheme: Scheme = "width" if document.choice("scheme", SCHEMES) == "width" else "mass"
        on: Target = "top_label" if document.choice("on", TARGETS) == "top_label" else "per_class"
        calibrator = cls(bins, scheme, on, document.weight_kind())
        calibrator.classes_ = document.classes()
        curves = 1 if on == "top_label" or calibrator.classes_ == 2 else calibrator.classes_
        calibrator.edges_, calibrator.values_ = document.histograms(curves, bins)
        return calibrator


# Fit and prediction share these functions, so that a score on an edge falls into the same bin in both.


def _chance_of_two(logits: Doubles) -> Doubles:
    """Return the softmax (n,) of class 1 of two."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))


def _log_total(logits: Doubles, maxima: Doubles) -> Doubles:
    """Return log Σ exp z (n,)."""
    with np.errstate(over="ignore"):
        return np.asarray(maxima[:, 0] + np.log(np.add.reduce(np.exp(logits - maxima), axis=1)))


def _shares(logits: Doubles, totals: Doubles) -> Doubles:
    """Return the softmax (n,) of one class."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(logits - totals), 1.0)


def _confidences(rows: LabelledRows) -> Pieces:
    for part, chunk, maxima in logit_chunks(rows.logits):
        yield part, row_confidence(chunk, maxima), row_tops(chunk) == rows.labels[part]


def _chances_of_two(rows: LabelledRows) -> Pieces:
    for part, chunk, _ in logit_chunks(rows.logits):
        yield part, _chance_of_two(chunk), rows.labels[part] == 1


def _class_chances(rows: LabelledRows) -> Iterator[Pieces]:
    totals = np.empty(len(rows.labels))
    for part, chunk, maxima in logit_chunks(rows.logits):
        totals[part] = _log_total(chunk, maxima)
    for k, column in class_columns(rows.logits):
        yield iter([(slice(None), _shares(column.astype(np.float64), totals), rows.labels == k)])
