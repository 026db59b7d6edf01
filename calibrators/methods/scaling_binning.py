"""Scaling, then binning: a temperature with few distinct outputs."""

from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles
from calibrators.binning import bin_index, mass_edges, raised_edges
from calibrators.calibrator import Calibrator
from calibrators.chunks import logit_chunks
from calibrators.documents import Document, written
from calibrators.fitting.best_temperature import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE, best_temperature
from calibrators.fitting.top_confidence import replace_confidence, row_confidence
from calibrators.validation import LabelledRows, check_bin_count


@final
class ScalingBinning(Calibrator):
    """Fit a temperature, then replace each confidence by the mean scaled confidence of its equal-mass bin.

    Few distinct outputs make the calibration error measurable (that of a continuous map can only be bounded from
    below), and averaging scaled confidences instead of labels needs fewer rows than `histogram` for the same error. The
    other classes share the rest in their scaled proportions; one of them may end up larger: `top_label` still returns
    the raw label, with its calibrated confidence. Integer weights act as repeated rows; only the ratios of weights
    matter.

    Preserves: the label; nothing else: all confidences of one bin become equal.
    When to use: if the calibration error itself must be certified on fresh rows.

    Args:
        bins: Number of bins of equal weight, 1 to 1,000,000; ties are never split.

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        edges_: (B + 1,) of the scaled confidence, from 0 to 1.
        values_: (B,) mean scaled confidence of each bin, in [0, 1].

    Raises:
        CalibrationDataError: ``bins`` is not a positive integer.

    References:
        Kumar, Liang, Ma (2019), Verified uncertainty calibration, section 4.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> calibrator = ScalingBinning(bins=2).fit(logits, np.array([0, 0, 0, 1]))
        >>> calibrator.predict_proba(logits[:1]).round(6)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "scaling_binning"

    temperature_: float
    at_bound_: bool
    edges_: Doubles
    values_: Doubles

    def __init__(self, bins: int = 15) -> None:
        check_bin_count(bins)
        self.bins = int(bins)
        self.top_label_only = True

    def _fit(self, rows: LabelledRows) -> None:
        temperature, at_bound = best_temperature(rows)
        confidence = np.empty(len(rows.labels))
        for part, chunk, maxima in logit_chunks(rows.logits):
            confidence[part] = row_confidence(*_scaled(chunk, maxima, temperature))
        if rows.weight is None:
            confidence, weight = np.sort(confidence), None
        else:
            order = np.argsort(confidence)
            confidence, weight = confidence[order], rows.weight[order]
        edges = mass_edges(confidence, self.bins, weight).astype(np.float64)
        starts = np.append(0, np.searchsorted(confidence, edges[1:-1], side="right"))
        edges[1:-1] = raised_edges(edges[1:-1], confidence[starts[1:]])
        mass = np.ones(len(confidence)) if weight is None else weight
        means = np.add.reduceat(mass * confidence, starts) / np.add.reduceat(mass, starts)
        self.temperature_, self.at_bound_ = temperature, at_bound
        self.edges_, self.values_ = edges, np.clip(means, 0, 1)
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        scaled, largest = _scaled(logits, maxima, self.temperature_)
        return replace_confidence(scaled, self.values_[bin_index(row_confidence(scaled, largest), self.edges_)])

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "bins", "temperature", "at_bound", "edges", "values")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.count("bins"))
        calibrator.classes_ = document.classes()
        calibrator.temperature_ = document.number("temperature", LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        calibrator.at_bound_ = document.flag("at_bound")
        calibrator.edges_ = document.edges("edges", calibrator.bins)
        calibrator.values_ = document.numbers("values", 0.0, 1.0, len(calibrator.edges_) - 1)
        return calibrator


def _scaled(logits: Doubles, maxima: Doubles, temperature: float) -> tuple[Doubles, Doubles]:
    """Overwrite a chunk with (z − max z) / T, and return it with its row maxima, which are zero."""
    with np.errstate(over="ignore"):
        logits -= maxima
        logits /= temperature
    return logits, np.zeros_like(maxima)
