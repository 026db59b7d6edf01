"""Histogram binning: the share of right answers in each bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles
from calibrators.binning import SCHEMES, Scheme, bin_edges, bin_index
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks
from calibrators.documents import Document
from calibrators.top_confidence import replace_confidence, row_confidence, top_confidences
from calibrators.validation import LabelledRows, check_choice, check_count

Target: TypeAlias = Literal["top_label", "per_class"]
TARGETS: tuple[Target, ...] = ("top_label", "per_class")


@final
class Histogram(Calibrator):
    """Replaces a probability by how often it was right in its bin.

    In a bin of n rows of which k were right the value is (k + ½) / (n + 1), never 0 or 1; with weights, n is the Kish
    effective number of rows (Σw)² / Σw² and k its weighted share. A bin that no row fell in (equal width only) gets its
    centre. Bins are right-closed, (lo, hi], the first one closed.

    On the top label, the confidence of the class with the largest logit is replaced, and the other classes share the
    rest in their old proportions (evenly where they all had a probability of zero). One of them may end up larger:
    `top_label` still returns the raw label, with the confidence that was calibrated. Per class, each class has bins of
    its own and rows are divided by their sum.

    Preserves: on the top label, the label; nothing else: all confidences of one bin become equal.
    When to use: with many labels (some 50 a bin), when the shape of the miscalibration is unlike any formula's, or a
    guarantee per bin is wanted.

    Args:
        bins: Number of bins, 1 or more.
        scheme: ``"mass"`` (bins hold equal numbers of rows, ties never split) or ``"width"``.
        on: ``"top_label"`` or ``"per_class"``.

    Attributes:
        edges_: One array for the top label, else one for each class: (B + 1,) from 0 to 1.
        values_: Likewise (B,): the calibrated probability of each bin, in (0, 1).

    Raises:
        CalibrationDataError: An option that is not known.

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
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    edges_: list[Doubles]
    values_: list[Doubles]

    def __init__(self, bins: int = 15, scheme: Scheme = "mass", on: Target = "top_label") -> None:
        check_count(bins, "bins")
        check_choice(scheme, SCHEMES, "scheme")
        check_choice(on, TARGETS, "on")
        self.bins = int(bins)
        self.scheme = scheme
        self.on = on
        self.top_label_only = on == "top_label"

    def _fit(self, rows: LabelledRows) -> None:
        if self.on == "top_label":
            confidence, predicted = top_confidences(rows)
            fitted = [_fit_bins(confidence, predicted == rows.labels, rows.weight, self.bins, self.scheme)]
        else:
            totals = _log_totals(rows)
            fitted = [
                _fit_bins(
                    _shares(rows.logits[:, k].astype(np.float64), totals),
                    rows.labels == k,
                    rows.weight,
                    self.bins,
                    self.scheme,
                )
                for k in range(rows.logits.shape[1])
            ]
        self.edges_ = [one.edges for one in fitted]
        self.values_ = [one.values for one in fitted]
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        if self.on == "per_class":
            totals = _log_total(logits, maxima)
            for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
                logits[:, k] = values[bin_index(_shares(logits[:, k], totals), edges)]
            logits /= np.add.reduce(logits, axis=1, keepdims=True)
            return logits
        confidence = self.values_[0][bin_index(row_confidence(logits, maxima), self.edges_[0])]
        return replace_confidence(logits, confidence)

    def _parameters(self) -> dict[str, Any]:
        return {
            "classes": self.classes_,
            "bins": self.bins,
            "scheme": self.scheme,
            "on": self.on,
            "edges": [edges.tolist() for edges in self.edges_],
            "values": [values.tolist() for values in self.values_],
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        bins = document.count("bins")
        scheme: Scheme = "width" if document.choice("scheme", SCHEMES) == "width" else "mass"
        on: Target = "top_label" if document.choice("on", TARGETS) == "top_label" else "per_class"
        calibrator = cls(bins, scheme, on)
        calibrator.classes_ = document.count("classes", least=2)
        calibrator.edges_ = document.rows_of_numbers("edges", 0.0, 1.0)
        calibrator.values_ = document.rows_of_numbers("values", 0.0, 1.0)
        curves = 1 if on == "top_label" else calibrator.classes_
        for field, lists in (("edges", calibrator.edges_), ("values", calibrator.values_)):
            if len(lists) != curves:
                document.refuse(field, f"{len(lists)} lists", f"{curves}, as 'on' and 'classes' say")
        for i, (edges, values) in enumerate(zip(calibrator.edges_, calibrator.values_, strict=True)):
            document.check_edges(f"edges[{i}]", edges, bins)
            if len(values) != len(edges) - 1:
                document.refuse(f"values[{i}]", f"{len(values)} values", f"{len(edges) - 1}, one for each bin")
            if not ((values > 0) & (values < 1)).all():
                document.refuse(f"values[{i}]", "a value of 0 or 1", "values strictly between 0 and 1")
        return calibrator


@dataclass(frozen=True, slots=True)
class _Bins:
    edges: Doubles
    values: Doubles


def _fit_bins(scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None, bins: int, scheme: Scheme) -> _Bins:
    """Fits one curve: (N,) scores in [0, 1] against (N,) hits."""
    edges = bin_edges(scores, bins, scheme, weight).astype(np.float64)
    size = len(edges) - 1
    index = bin_index(scores, edges)
    total = np.bincount(index, weight, size).astype(np.float64)
    right = np.bincount(index[hits], None if weight is None else weight[hits], size).astype(np.float64)
    if weight is not None:
        # To the scale on which a bin's total is its effective number of rows.
        squares = np.bincount(index, weight * weight, size)
        scale = np.divide(total, squares, out=np.ones(size), where=squares > 0)
        total, right = total * scale, right * scale
    values = (right + 0.5) / (total + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    return _Bins(edges, np.where(total > 0, values, centres))


def _log_totals(rows: LabelledRows) -> Doubles:
    totals = np.empty(len(rows.labels))
    for part, chunk, maxima in logit_chunks(rows.logits):
        totals[part] = _log_total(chunk, maxima)
    return totals


def _log_total(logits: Doubles, maxima: Doubles) -> Doubles:
    """The (n,) log Σ exp z."""
    with np.errstate(over="ignore"):
        return np.asarray(maxima[:, 0] + np.log(np.add.reduce(np.exp(logits - maxima), axis=1)))


def _shares(logits: Doubles, totals: Doubles) -> Doubles:
    """Softmax of one class (n,). Fit and prediction both come here, so that a score on an edge is there for both."""
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(logits - totals), 1.0)
