"""Monitoring: tests of certificates and calibration, and estimates of the traffic."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from candor.contract.documents import Answer, Interval
from candor.contract.drift import InputDrift
from candor.contract.traffic import Guard


class Monitor(Answer):
    """A sequential test of one statement about the traffic, valid however often it is read."""

    evidence: float = Field(
        description="Current evidence against the statement (natural logarithm of the e-process); positive speaks "
        "against it."
    )
    peak: float = Field(description="Largest evidence so far.")
    fires_at: float = Field(description="Evidence at which the alarm fires.")
    level: float = Field(description="Maximum probability of ever firing while the statement holds.")
    place: int = Field(description="Number of monitors of this kind that the model has had, this one included.")
    p_value: float = Field(description="Anytime-valid p-value of the statement.")
    rows: int = Field(description="Rows counted.")
    unlabelled: int = Field(description="Rows among them without a known label.")
    cohorts: int = Field(description="Time spans counted that had rows.")
    since: str = Field(description="Start of the test (ISO 8601, UTC).")
    through: str = Field(description="All rows before this time are counted.")
    fired_at: str | None = Field(description="Time of the prediction that fired the alarm; null while silent.")


class DailyRows(Answer):
    """Rows of a day, beside those on which a promise in rows per day rests."""

    promised: int = Field(description="Promised maximum of rows a day that are taken or explored.")
    assumed: int = Field(
        description="Rows per day that the promise assumes: the certified share of them is `promised`."
    )
    measured: int | None = Field(
        description="Rows of the busiest of the last 7 whole days (UTC); null without a whole day of traffic, and "
        "until large earlier days are counted."
    )
    warning: str | None = Field(
        description="What follows if `measured` exceeds `assumed`: the certified share may then be more rows than "
        "promised. Null otherwise."
    )


class WatchedCertificate(Answer):
    """A certificate in force and its monitor."""

    name: str
    policy: str = Field(description="Policy and version, such as `auto-read@3`.")
    action: str
    segment: str | None = Field(description="Part of the traffic that it covers; null for all of it.")
    metric: str
    at_least: float | None
    at_most: float | None
    valid: bool
    reason: str | None = Field(description="Why it does not stand; null when valid.")
    monitor: Monitor | None = Field(description="Null before the first test, and for a certificate that never stood.")
    propensity: Monitor | None = Field(
        None,
        description="Monitor of the propensities behind a certificate that rests on traffic: whether labels are sought "
        "as often as logged, by band of the score. Null for others.",
    )
    per_day: DailyRows | None = Field(None, description="Traffic behind a promise in rows per day; null for others.")


class CalibrationAlarm(Answer):
    """The calibration of the predicted label in all traffic: whether confidences are off by more than `tolerance`."""

    fired: bool
    tolerance: float | None
    job: str | None = Field(description="Recalibration job that the alarm started; null for none.")
    monitor: Monitor | None


class WatchedCalibration(Answer):
    """The calibration of a policy's positive class, and its monitor."""

    name: str
    label: str = Field(description="The class, or `top` for the predicted label.")
    segment: str | None = Field(description="Part of the traffic; null for all of it.")
    fired: bool
    job: str | None = Field(description="Recalibration job that the alarm started; null for none.")
    monitor: Monitor | None = Field(description="Null before the first test.")


class Estimate(Answer):
    """An estimated number."""

    value: float
    interval: Interval | None = Field(description="95 % interval; null where the rows allow none.")


class Delay(Answer):
    """Seconds from prediction to label."""

    median: float
    q90: float = Field(description="90 % quantile.")


class LabelledTraffic(Answer):
    """What labels say about predictions that are old enough to be labelled. Null where no label tells."""

    window: tuple[str, str] | None = Field(description="Times of the first and the last prediction.")
    rows: int = Field(description="Predictions in the window.")
    seekable_share: float | None = Field(description="Share of predictions whose label may be sought.")
    sought: int = Field(description="Labels sought.")
    labelled: int = Field(description="Sought labels that have arrived.")
    labelled_share: float | None = Field(description="`labelled` divided by `sought`.")
    effective_rows: float = Field(description="Number of equally weighted rows that the weighted rows are worth.")
    accuracy: Estimate | None = Field(description="Share of correct predictions.")
    mean_confidence: Estimate | None = Field(description="Mean confidence of the same rows.")
    overconfidence: Estimate | None = Field(description="Mean confidence minus accuracy.")
    base_rate: dict[str, Estimate] = Field(description="Share of each label, most frequent first.")
    delay_s: Delay | None = Field(description="Seconds from prediction to label.")


class RecentTraffic(Answer):
    """What confidences alone say about the newest predictions, if they are calibrated."""

    window: tuple[str, str] | None = Field(description="Times of the first and the last prediction.")
    rows: int
    mean_confidence: Estimate | None
    estimated_accuracy: Estimate | None
    assumes: str = Field(description="The assumption behind `estimated_accuracy`.")


FEWEST_DELAYS: Final = 299
"""Labels from which it can be shown that 99 % have come: 0.99²⁹⁹ < 5 %."""


class SourceDelay(Answer):
    """Time that the labels of a source take, among labels that come within the largest age seen so far."""

    source: str
    labels: int = Field(description="Labels behind it.")
    oldest_s: float = Field(
        description="Largest age in seconds at which 20 labels or more could be seen; later labels are unknown."
    )
    median_s: float = Field(description="Seconds after which half of the labels have come.")
    q95_s: float = Field(description="Seconds after which 95 % of the labels have come.")
    curve: tuple[tuple[float, float], ...] = Field(description="Seconds, and the share of labels that come within.")
    mature_in: str | None = Field(
        description="Duration within which 99 % of the labels have come, with a confidence of 95 %, for "
        "`labels.mature_in` of a policy: of those that come within the largest age at which 299 labels, and a tenth of "
        "all, could be seen. Null below 299 labels, and while labels still come at that age."
    )


class Estimates(Answer):
    """Estimates of the traffic."""

    revision: str = Field(description="Revision that was served at the time.")
    at: str = Field(description="Time of the estimate (ISO 8601, UTC).")
    labelled: LabelledTraffic
    recent: RecentTraffic
    delays: tuple[SourceDelay, ...] = Field((), description="Label delay by source, that of the most labels first.")


class Monitoring(Answer):
    """Whether certificates and calibration still hold, and what labels say about the traffic."""

    model: str
    revision: str = Field(description="Active revision.")
    maturity_s: float = Field(description="Age in seconds at which monitors count a prediction.")
    window_s: float = Field(description="Seconds of traffic behind the estimates.")
    alpha: float = Field(description="Error probability shared by all monitors of a kind.")
    certificates: tuple[WatchedCertificate, ...] = Field(description="Certificates in force.")
    alarm: CalibrationAlarm
    calibration: tuple[WatchedCalibration, ...] = Field(
        (),
        description="Of each policy, the positive class in all traffic (unless it is `top`) and in each segment. The "
        "tolerance is that of `alarm`.",
    )
    estimates: Estimates | None = Field(description="Null before the first estimate.")
    guard: Guard | None = Field(None, description="The latest guard of an activation; null without one.")
    drift: InputDrift | None = Field(None, description="Null where it is not tested; `no_drift` says why.")
    no_drift: str | None = Field(None, description="Why `drift` is null; null otherwise.")
