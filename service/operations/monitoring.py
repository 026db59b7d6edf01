"""Tell whether certificates and calibration still hold, and what labels say about the traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from candor.contract.certificates import Certificate
from candor.contract.monitoring import (
    CalibrationAlarm,
    DailyRows,
    Estimates,
    Monitor,
    Monitoring,
    WatchedCalibration,
    WatchedCertificate,
)
from service.decisions.maturity import maturity_us
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import key_of
from service.monitoring.thread import Status
from service.monitoring.watching import calibrated_parts, name_of
from service.operations.activation import guard_of
from service.operations.drift import input_drift, why_no_drift
from service.runtime import Runtime
from service.serving.model import Model
from service.state.database import now_us
from service.state.monitors import CALIBRATIONS, StoredMonitor
from service.state.traffic import DAYS
from service.times import iso


def monitoring(runtime: Runtime, model: Model) -> Monitoring:
    """Return the certificates in force with their monitors, the calibration alarm, and estimates of the traffic.

    Raises:
        NotReadyError: The model serves no revision.
    """
    served, settings = model.served, runtime.settings
    status = runtime.monitors.status(model.name)
    estimated = status.estimates
    drift = None if served.sample is None else runtime.drift.of(served)
    per_day = any(solved.rows_per_day is not None for solved in served.policies.values())
    day = runtime.models.traffic.rows_per_day(model.name, now_us()) if per_day else None
    return Monitoring(
        model=served.revision.model,
        revision=served.revision.id,
        maturity_s=maturity_us(served.policies.values(), settings.monitor_maturity_s) / 1e6,
        window_s=settings.monitor_window_s,
        alpha=settings.monitor_alpha,
        certificates=tuple(
            certificate
            for solved in served.policies.values()
            for certificate in _certificates(served.revision.model_digest, solved, status, day)
        ),
        alarm=_alarm(status),
        calibration=tuple(_calibrations(served.policies.values(), status)),
        estimates=None
        if estimated is None
        else Estimates.model_construct(revision=estimated.revision, at=iso(estimated.at), **estimated.document),
        guard=None if (guard := runtime.monitors.guard(model.name)) is None else guard_of(guard),
        drift=None if drift is None else input_drift(drift),
        no_drift=None if drift is not None else why_no_drift(served),
    )


def _certificates(digest: str, solved: SolvedPolicy, status: Status, day: int | None) -> Iterator[WatchedCertificate]:
    parts: list[tuple[str | None, SolvedPolicy]] = [*solved.parts.items()] or [(None, solved)]
    for segment, part in parts:
        for band in part.bands:
            certificate = band.certificate
            if certificate is None:
                continue
            key = key_of(solved, band.action, segment, certificate, model_digest=digest)
            found = {one.kind: _monitor(one) for one in status.monitors if one.certificate == key}  # the newest of each
            yield WatchedCertificate(
                name=name_of(solved.policy.id, band.action, segment),
                policy=f"{solved.policy.id}@{solved.version}",
                action=band.action,
                segment=segment,
                metric=certificate.metric,
                at_least=certificate.at_least,
                at_most=certificate.at_most,
                valid=certificate.valid,
                reason=certificate.reason,
                monitor=found.get("certificate"),
                propensity=found.get("propensity"),
                per_day=_daily(certificate, day),
            )


def _daily(certificate: Certificate, measured: int | None) -> DailyRows | None:
    promised, assumed = certificate.per_day, certificate.rows_per_day
    if promised is None or assumed is None:
        return None
    warning = None
    if measured is not None and measured > assumed:
        share = certificate.at_most or 0.0
        warning = (
            f"The busiest of the last {DAYS} days had {measured:,} rows, more than the {assumed:,} on which "
            f"{promised:,} rows per day rest: up to {share * measured:,.0f} of them keep the certificate. Recalibrate; "
            "a policy that gives rows_per_day must raise it."
        )
    return DailyRows(promised=promised, assumed=assumed, measured=measured, warning=warning)


def _alarm(status: Status) -> CalibrationAlarm:
    monitor = next((one for one in status.monitors if one.kind == "calibration" and one.ended_at is None), None)
    if monitor is None:
        return CalibrationAlarm(fired=False, tolerance=None, job=None, monitor=None)
    return CalibrationAlarm(
        fired=monitor.fired_at is not None,
        tolerance=monitor.document["tolerance"],
        job=monitor.job,
        monitor=_monitor(monitor),
    )


def _calibrations(policies: Iterable[SolvedPolicy], status: Status) -> Iterator[WatchedCalibration]:
    running = (one for one in status.monitors if one.kind in CALIBRATIONS and one.ended_at is None)
    found = {one.name: one for one in running}
    for name, solved, segment in calibrated_parts(policies):
        stored = found.get(name)
        yield WatchedCalibration(
            name=name,
            label=solved.policy.positive,
            segment=segment,
            fired=stored is not None and stored.fired_at is not None,
            job=None if stored is None else stored.job,
            monitor=None if stored is None else _monitor(stored),
        )


def _monitor(one: StoredMonitor) -> Monitor:
    level, peak = one.document["level"], one.document["peak"]
    return Monitor(
        evidence=one.evidence,
        peak=peak,
        fires_at=-math.log(level),
        level=level,
        place=one.place,
        p_value=math.exp(-peak),
        rows=one.document["rows"],
        unlabelled=one.document["unlabelled"],
        cohorts=one.cohorts,
        since=iso(one.since),
        through=iso(one.through),
        fired_at=None if one.fired_at is None else iso(one.fired_at),
    )
