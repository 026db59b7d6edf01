"""A model's monitors as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from candor.contract.drift import BinShare, ColumnDrift
from candor.contract.monitoring import Monitor, Monitoring
from service.dashboard import words
from service.dashboard.charts.evidence import evidence

_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class Watched:
    """One monitor.

    Attributes:
        name: What it watches.
        promise: What is promised of that.
        state: "alarm", "quiet", or "waiting" for labels that are old enough.
        monitor: Its document; None where it has none yet.
        chart: Its evidence, drawn; None before the first evidence.
    """

    name: str
    promise: str
    state: str
    monitor: Monitor | None
    chart: Markup | None


def watched(monitoring: Monitoring) -> list[Watched]:
    """Return the monitors of certificates, then those of the calibration."""
    alarm = monitoring.alarm
    calibrated = "calibrated" if alarm.tolerance is None else f"calibrated within {alarm.tolerance:g}"
    found = [
        (certificate.name, words.promise(certificate.document), certificate.monitor)
        for certificate in monitoring.certificates
        if certificate.valid or certificate.monitor is not None
    ]
    found += [
        (f"{certificate.name}/propensity", "labels sought as logged", certificate.propensity)
        for certificate in monitoring.certificates
        if certificate.propensity is not None
    ]
    found.append(("calibration", calibrated, alarm.monitor))
    found += [(one.name, calibrated, one.monitor) for one in monitoring.calibration]
    return [_of(place, *each) for place, each in enumerate(found)]


def busier(monitoring: Monitoring) -> list[str]:
    """Return warnings of promises in rows per day that rest on fewer rows of a day than there were."""
    return [
        f"{one.name}: {one.per_day.warning}"
        for one in monitoring.certificates
        if one.per_day is not None and one.per_day.warning is not None
    ]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, beside the reference rows.

    Attributes:
        drift: Its document.
        state: "alarm", "quiet", or "waiting" for a tested window.
        change: The bin whose share has changed most; None before a window has rows enough.
    """

    drift: ColumnDrift
    state: str
    change: BinShare | None


def columns(monitoring: Monitoring) -> list[Column]:
    """Return the columns with an alarm, and others up to `_COLUMNS`, by falling stability index."""
    found = () if monitoring.drift is None else monitoring.drift.columns
    shown = max(sum(column.alarm for column in found), _COLUMNS)
    return [_column(column) for column in found[:shown]]


def _column(drift: ColumnDrift) -> Column:
    tested = "alarm" if drift.alarm else "quiet"
    change = max(drift.bins, key=lambda one: abs(one.traffic - one.reference), default=None)
    return Column(drift, "waiting" if drift.evidence is None else tested, change)


def _of(place: int, name: str, promise: str, monitor: Monitor | None) -> Watched:
    if monitor is None:
        return Watched(name, promise, "waiting", None, None)
    title = f"Evidence against {name}"
    chart = evidence(f"evidence-{place}", title, monitor.evidence, monitor.peak, monitor.fires_at)
    return Watched(name, promise, "quiet" if monitor.fired_at is None else "alarm", monitor, chart)
