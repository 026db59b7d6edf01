"""What the service answers of its monitors, typed and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.client.answers import Document


@dataclass(frozen=True, slots=True)
class Monitor:
    """Evidence against one statement about the traffic.

    Attributes:
        evidence: Natural logarithm of the capital now; above 0 it speaks against the statement.
        peak: The largest so far.
        fires_at: The alarm goes off when `evidence` reaches this.
        level: Probability that it does so, ever, while the statement holds.
        place: How many monitors of its kind the model had, this one included.
        p_value: At most x with probability at most x while the statement holds, however often one looks.
        rows: Rows that count.
        unlabelled: Those among them whose label is not known.
        cohorts: Spans of time with rows that were counted.
        since: When it began.
        through: All rows before this time are counted.
        fired_at: Time of the prediction with which the alarm went off, None while it has not.
    """

    evidence: float
    peak: float
    fires_at: float
    level: float
    place: int
    p_value: float
    rows: int
    unlabelled: int
    cohorts: int
    since: str
    through: str
    fired_at: str | None = None


@dataclass(frozen=True, slots=True)
class WatchedCertificate:
    """A certificate in force; `monitor` is None before the first look, and where the certificate never stood."""

    name: str
    policy: str
    action: str
    metric: str
    valid: bool
    segment: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    reason: str | None = None
    monitor: Monitor | None = None


@dataclass(frozen=True, slots=True)
class CalibrationAlarm:
    """Whether confidences are off by more than `tolerance`; `job` is the refit that the alarm has started."""

    fired: bool
    tolerance: float | None = None
    job: str | None = None
    monitor: Monitor | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    interval: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class LabelledTraffic:
    """What labels say of the predictions whose labels had the time to come; None stands for what no label shows.

    Attributes:
        rows: Predictions in the window.
        sought: Labels that were sought for them.
        labelled: Those of them that have come.
        effective_rows: How many equal rows the weighted ones are worth.
        accuracy: Share of right predictions.
        mean_confidence: Mean confidence of the same rows.
        overconfidence: By how much confidence is above accuracy.
        base_rate: Share of each label, the most frequent ones.
        delay_s: Seconds until labels come: `median`, `q90`.
        window: Times of the first and the last prediction.
        seekable_share: Share of the predictions whose label may be sought.
        labelled_share: `labelled` of `sought`.
    """

    rows: int
    sought: int
    labelled: int
    effective_rows: float
    accuracy: Estimate | None
    mean_confidence: Estimate | None
    overconfidence: Estimate | None
    base_rate: Mapping[str, Estimate]
    delay_s: Mapping[str, float] | None = None
    window: tuple[str, ...] | None = None
    seekable_share: float | None = None
    labelled_share: float | None = None


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """What confidences alone say of the newest predictions, as far as they are calibrated."""

    rows: int
    estimated_accuracy: Estimate | None
    window: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Estimates:
    """What was estimated of the traffic, when (`at`), and with which revision."""

    revision: str
    at: str
    labelled: LabelledTraffic
    recent: RecentTraffic


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What is known of a model in service.

    Attributes:
        model: Name of the model.
        revision: In service.
        maturity_s: How old a prediction is when monitors count it.
        certificates: In force, each with its monitor.
        alarm: Of the calibration.
        estimates: None before the first look.
    """

    model: str
    revision: str
    maturity_s: float
    certificates: tuple[WatchedCertificate, ...]
    alarm: CalibrationAlarm
    estimates: Estimates | None
    document: Document = field(repr=False, compare=False)
