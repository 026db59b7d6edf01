"""Metrics of a recalibration on its gate rows, before and after, and what the diagrams show."""

from __future__ import annotations

from pydantic import Field

from candor.contract.documents import Answer, Interval


class CalibrationNull(Answer):
    """The ECE under perfect calibration: even then it is not zero."""

    mean: float
    q95: float = Field(description="95 % quantile.")


class MetricChange(Answer):
    """A metric before and after. An interval is null where the rows allow none."""

    before: float | None
    after: float | None
    interval_before: Interval | None = Field(None, description="95 % interval of `before`.")
    interval_after: Interval | None = Field(None, description="95 % interval of `after`.")
    interval: Interval | None = Field(None, description="Same as `difference_interval`.")
    difference_interval: Interval | None = Field(None, description="95 % interval of `after` minus `before`.")
    null: CalibrationNull | None = Field(None, description="Of the ECE: its distribution if `after` were calibrated.")
    null_before: CalibrationNull | None = Field(None, description="Of the ECE: likewise for `before`.")


class BrierParts(Answer):
    """Parts of the Brier score: `score` = `calibration` + `refinement` + `within_bins`."""

    score: float
    calibration: float = Field(description="Squared distance of mean probability and frequency in bins; 0 is best.")
    refinement: float = Field(description="Variance of the labels inside the bins; low where classes separate well.")
    within_bins: float = Field(description="Loss from treating the probabilities of a bin as equal.")


class BrierChange(Answer):
    """Parts of the Brier score before and after."""

    before: BrierParts
    after: BrierParts


class EceParts(Answer):
    """Terms of the calibration error: `value` = `confidence` − `refinement` − `constant`."""

    confidence: float = Field(description="Mean confidence.")
    refinement: float
    constant: float
    value: float
    gap: float = Field(description="Mean confidence minus accuracy.")


class EceChange(Answer):
    """Terms of the calibration error before and after; null where all predictions are right, or all wrong."""

    before: EceParts | None
    after: EceParts | None


class Decomposition(Answer):
    """What the Brier score and the calibration error consist of."""

    brier: BrierChange
    ece: EceChange


class ReliabilityPoints(Answer):
    """A reliability diagram: one entry for each bin of confidence that contains a row."""

    confidence: tuple[float, ...] = Field(description="Mean confidence.")
    accuracy: tuple[float, ...]
    count: tuple[int, ...] = Field(description="Rows.")
    lower: tuple[float, ...] = Field(description="Lower ends of 95 % intervals of the accuracy.")
    upper: tuple[float, ...] = Field(description="Upper ends of 95 % intervals of the accuracy.")


class Reliability(Answer):
    """Reliability diagrams before and after."""

    before: ReliabilityPoints
    after: ReliabilityPoints


class ConfidenceCounts(Answer):
    """Predictions by bin of confidence."""

    right: tuple[int, ...]
    wrong: tuple[int, ...]


class ConfidenceHistogram(Answer):
    """Distribution of the confidences of right and wrong predictions, before and after."""

    edges: tuple[float, ...] = Field(description="Edges of the bins, one more than bins.")
    before: ConfidenceCounts
    after: ConfidenceCounts
