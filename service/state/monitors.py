"""Monitors in the state: evidence and position of each are written in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, or_, select, update

from service.decisions.levels import level_of
from service.decisions.voided import ALARM as VOID
from service.decisions.voided import PROPENSITY
from service.state import audit
from service.state.challengers import add_groups
from service.state.database import Database, now_us
from service.state.insertion import insert_for
from service.state.jobs import insert_job
from service.state.numbering import take_number
from service.state.tables import activations, compared_groups, estimates, monitors
from service.state.tables import audit as audit_log

Kind = Literal["certificate", "calibration", "class_calibration", "segment_calibration", "propensity", "challenger"]
CALIBRATIONS: Final = ("calibration", "class_calibration", "segment_calibration")
"""Kinds of monitors of the calibration: of the model, of a class in all traffic, and in a segment."""
BY = "monitor"
"""Actor of alarms and proposals in the audit log."""
ALARM = "alarm"
"""Action of alarms in the audit log."""
DECIDED = "challenger_decided"
"""Action in the audit log when a comparison with a challenger first tells which is better."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A statement to monitor.

    Attributes:
        kind: Kind of the monitor.
        name: Display name: "auto-read/accept", with segments "auto-read/accept/DE", "calibration", of a class
            "calibration/fraud" or "calibration/fraud/DE", or that of a challenger. The audit of a certificate's
            propensities adds "/propensity".
        subject: Digest of the whole statement: a monitor continues while this stays active.
        certificate: Key of the certificate; None for all others.
        since: Earliest start, microseconds since the epoch, UTC; no monitor starts before the activation.
    """

    kind: Kind
    name: str
    subject: str
    certificate: str | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class StoredMonitor:
    """A stored monitor.

    Attributes:
        id: Id of its row.
        kind: Its kind.
        name: Display name.
        subject: Digest of the statement.
        certificate: Key of the certificate; None for the calibration.
        place: Its number among the model's monitors of its kind, which determines its part of alpha.
        revision: Revision at its start.
        since: Its start, microseconds since the epoch, UTC.
        through: All rows before this time are counted.
        cohorts: Number of nonempty cohorts counted.
        document: Document from the monitor's `to_dict`.
        evidence: Current evidence against the statement, in nats.
        fired_at: Time of the prediction that raised its alarm; None without an alarm.
        job: Recalibration requested by the alarm.
        ended_at: End of the statement; None while it is active.
    """

    id: int
    kind: Kind
    name: str
    subject: str
    certificate: str | None
    place: int
    revision: str
    since: int
    through: int
    cohorts: int
    document: dict[str, Any]
    evidence: float
    fired_at: int | None
    job: str | None
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class Counted:
    """A monitor after a cohort.

    Attributes:
        before: The monitor before the cohort.
        document: Its document after the cohort.
        evidence: Evidence against the statement, in nats.
        through: End of the cohort.
        rows: Whether the cohort had rows.
        fired_at: As in `StoredMonitor`.
        refit: Recalibration to request if the alarm fired in this cohort and no other monitor of the calibration has
            requested one; None for none.
        groups: Groups whose label a comparison has counted in this cohort; None for other monitors.
    """

    before: StoredMonitor
    document: dict[str, Any]
    evidence: float
    through: int
    rows: bool
    fired_at: int | None
    refit: dict[str, Any] | None = None
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class StoredEstimates:
    """A model's latest estimates, with their revision and time (microseconds)."""

    revision: str
    at: int
    document: dict[str, Any]


class MonitorStore:
    """Monitors of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def voided(self) -> dict[str, Mapping[str, str]]:
        """Return the keys of voided certificates with the reason of the first alarm, by model."""
        with self._database.connect() as connection:
            return voided_in(connection)

    def last_void(self, model: str) -> int:
        """Return when an alarm last voided one of a model's certificates, in microseconds since the epoch; or 0."""
        of_it = monitors.c.model == model, monitors.c.certificate.is_not(None)
        with self._database.connect() as connection:
            return int(connection.scalar(select(func.max(monitors.c.fired_at)).where(*of_it)) or 0)

    def window_start(self, model: str, since_us: int | None, *, by_rule: bool) -> int | None:
        """Return the start of a recalibration's window, in microseconds since the epoch; None for all rows.

        A rule's window leaves out rows up to an alarm about propensities: they would certify wrongly again.

        Args:
            model: The model.
            since_us: Requested start, or None.
            by_rule: Whether a rule sets the start.
        """
        if not by_rule:
            return since_us
        of_it = monitors.c.model == model, monitors.c.kind == "propensity", monitors.c.fired_at.is_not(None)
        with self._database.connect() as connection:
            wrong_until: int | None = connection.scalar(select(func.max(monitors.c.through)).where(*of_it))
        return max((at for at in (since_us, wrong_until) if at is not None), default=None)

    def last_alarm(self, model: str) -> int | None:
        """Return the time of a model's last alarm, None without one.

        It is later than the prediction that raised the alarm, by the delay of the label and the monitor.
        """
        alarms = audit_log.c.model == model, audit_log.c.action == ALARM
        with self._database.connect() as connection:
            latest: int | None = connection.scalar(select(func.max(audit_log.c.at)).where(*alarms))
        return latest

    def of(self, model: str) -> list[StoredMonitor]:
        """Return a model's running monitors and those that voided a certificate, oldest first."""
        voids = monitors.c.fired_at.is_not(None) & monitors.c.certificate.is_not(None)
        query = _SELECT.where(monitors.c.model == model, or_(monitors.c.ended_at.is_(None), voids))
        with self._database.connect() as connection:
            return [StoredMonitor(*row) for row in connection.execute(query.order_by(monitors.c.id))]

    def follow(
        self, model: str, epoch: int, revision: str, watched: Sequence[tuple[Watched, Mapping[str, Any]]], alpha: float
    ) -> list[StoredMonitor] | None:
        """End monitors of inactive statements, start missing ones, and return the running ones.

        Args:
            model: The model.
            epoch: Epoch of its pointer.
            revision: The active revision.
            watched: Statements to monitor, each with the document of a new monitor; `level` and `through` are set here.
            alpha: Probability of a false alarm that all monitors of a kind share, for each model.

        Returns:
            The running monitors; None if the pointer has moved on.
        """
        wanted = {one.subject: (one, document) for one, document in watched}
        with self._database.connect() as connection:
            since = activated(connection, model, epoch)
            running = _running(connection, model)
        if since is None:
            return None
        if {one.subject for one in running} == wanted.keys():
            return running
        with self._database.begin() as connection:
            take_number(connection, f"monitors/{model}")  # one at a time, even if the lock is lost
            if activated(connection, model, epoch) is None:
                return None
            running = _running(connection, model)
            ended = [one.id for one in running if one.subject not in wanted]
            if ended:
                connection.execute(update(monitors).where(monitors.c.id.in_(ended)).values(ended_at=now_us()))
                connection.execute(delete(compared_groups).where(compared_groups.c.monitor.in_(ended)))
            there = {one.subject for one in running}
            for subject, (one, document) in wanted.items():
                if subject in there:
                    continue
                place = take_number(connection, f"monitors/{model}/{one.kind}")
                level = level_of(alpha, place)
                row = {"model": model, "kind": one.kind, "name": one.name, "subject": subject, "place": place}
                start = max(since, one.since)
                row |= {"certificate": one.certificate, "revision": revision, "since": start, "through": start}
                row |= {"cohorts": 0, "evidence": 0.0, "document": {**document, "level": level, "through": start}}
                connection.execute(insert(monitors).values(**row))
            return _running(connection, model)

    def count(self, model: str, counted: Sequence[Counted]) -> bool:
        """Write monitors after a cohort, with their alarms and the recalibrations that these request.

        Args:
            model: The model.
            counted: The monitors after the cohort.

        Returns:
            False, and nothing is written, if a monitor has changed or ended meanwhile.
        """
        try:
            with self._database.begin() as connection:
                for one in counted:
                    _count(connection, model, one)
        except _MovedError:
            return False
        return True

    def estimates(self, model: str) -> StoredEstimates | None:
        """Return a model's latest estimates; None without any."""
        query = select(estimates.c.revision, estimates.c.at, estimates.c.document).where(estimates.c.model == model)
        with self._database.connect() as connection:
            row = connection.execute(query).one_or_none()
            return None if row is None else StoredEstimates(*row)

    def estimated(self, model: str, found: StoredEstimates) -> None:
        """Replace a model's estimates."""
        values = {"revision": found.revision, "at": found.at, "document": found.document}
        with self._database.begin() as connection:
            upsert = insert_for(connection, estimates).values(model=model, **values)
            connection.execute(upsert.on_conflict_do_update(index_elements=["model"], set_=values))


def voided_in(connection: Connection) -> dict[str, Mapping[str, str]]:
    """Return what `MonitorStore.voided` does, inside a transaction."""
    query = select(monitors.c.model, monitors.c.certificate, monitors.c.kind).where(
        monitors.c.fired_at.is_not(None), monitors.c.certificate.is_not(None)
    )
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for model, certificate, kind in connection.execute(query.order_by(monitors.c.fired_at, monitors.c.id)):
        found[model].setdefault(certificate, PROPENSITY if kind == "propensity" else VOID)
    return dict(found)


_SELECT = select(*(monitors.c[name] for name in StoredMonitor.__slots__))


class _MovedError(Exception):
    """A monitor was changed or ended by another replica."""


def _count(connection: Connection, model: str, one: Counted) -> None:
    was = one.before
    fired = was.fired_at is None and one.fired_at is not None
    job = None
    if fired and one.refit is not None and not _asked(connection, model):
        job = insert_job(connection, model, "recalibrate", one.refit, BY).id
    same = (monitors.c.id == was.id, monitors.c.through == was.through, monitors.c.ended_at.is_(None))
    values = {
        "document": one.document,
        "evidence": one.evidence,
        "through": one.through,
        "cohorts": was.cohorts + one.rows,
        "fired_at": one.fired_at,
        "job": was.job or job,
    }
    if connection.execute(update(monitors).where(*same).values(**values)).rowcount != 1:
        raise _MovedError
    if one.groups is not None:
        add_groups(connection, was.id, one.groups)
    if fired:
        detail = {
            "kind": was.kind,
            "revision": was.revision,
            "level": one.document["level"],
            "evidence": one.document["peak"],
            "rows": one.document["rows"],
            "since": was.since,
            "fired_at": one.fired_at,
            "job": job,
        }
        action = DECIDED if was.kind == "challenger" else ALARM
        audit.append(connection, model=model, by=BY, action=action, subject=was.name, detail=detail)


def _asked(connection: Connection, model: str) -> bool:
    """Return whether another running monitor of the calibration has requested a recalibration."""
    running = monitors.c.model == model, monitors.c.ended_at.is_(None), monitors.c.kind.in_(CALIBRATIONS)
    asked = select(func.count()).where(*running, monitors.c.job.is_not(None))
    return connection.execute(asked).scalar_one() > 0


def _running(connection: Connection, model: str) -> list[StoredMonitor]:
    """Return running monitors of the kinds that this version knows; a newer version beside it feeds the others."""
    here = monitors.c.model == model, monitors.c.ended_at.is_(None), monitors.c.kind.in_(get_args(Kind))
    query = _SELECT.where(*here).order_by(monitors.c.id)
    return [StoredMonitor(*row) for row in connection.execute(query)]


def activated(connection: Connection, model: str, epoch: int) -> int | None:
    """Return when the model's pointer moved to this epoch; None if it is at another."""
    query = (
        select(activations.c.epoch, activations.c.at)
        .where(activations.c.model == model)
        .order_by(activations.c.epoch.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return row.at if row is not None and row.epoch == epoch else None
