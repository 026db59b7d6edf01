"""Monitors in the state: what each has counted is written with how far it has counted, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, or_, select, update

from service.monitoring.levels import level_of
from service.state import audit
from service.state.database import Database, now_us
from service.state.insertion import insert_for
from service.state.jobs import insert_job
from service.state.numbering import take_number
from service.state.tables import activations, estimates, monitors
from service.state.tables import audit as audit_log

Kind = Literal["certificate", "calibration"]
BY = "monitor"
"""Who alarms and proposes, in the audit log."""
_ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is to be watched.

    Attributes:
        kind: Which kind of monitor watches it.
        name: For people: "auto-read/accept", with segments "auto-read/accept/DE", or "calibration".
        subject: A digest of all that the statement is about: a monitor goes on for as long as this stays in force.
        certificate: Key of the certificate, None of the calibration.
    """

    kind: Kind
    name: str
    subject: str
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class StoredMonitor:
    """One monitor as it stands.

    Attributes:
        id: Of its row.
        kind: Which kind it is.
        name: For people.
        subject: A digest of all that it watches.
        certificate: Key of the certificate, None of the calibration.
        place: How many monitors of its kind the model had, this one included: its share of alpha follows from it.
        revision: With which it began.
        since: When it began, microseconds since the epoch, UTC.
        through: All rows before this time are counted.
        cohorts: Cohorts with rows that were counted.
        document: What the monitor's `to_dict` gave.
        evidence: Against what it watches, in nats, now.
        fired_at: Time of the prediction with which its alarm went off, None while it has not.
        job: Refit that the alarm has asked for.
        ended_at: When what it watches went out of force, None while it runs.
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
    """What a cohort has made of a monitor.

    Attributes:
        before: The monitor as it was read.
        document: What its `to_dict` gives now.
        evidence: Against what it watches, in nats, now.
        through: End of the cohort.
        rows: Whether the cohort had any.
        fired_at: As in `StoredMonitor`.
        refit: Request of the refit that is asked for if its alarm went off in this cohort, None for none.
    """

    before: StoredMonitor
    document: dict[str, Any]
    evidence: float
    through: int
    rows: bool
    fired_at: int | None
    refit: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StoredEstimates:
    """What was estimated last of a model's traffic, with which revision, and when (microseconds)."""

    revision: str
    at: int
    document: dict[str, Any]


class MonitorStore:
    """Monitors of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def voided(self) -> dict[str, frozenset[str]]:
        """Return the keys of the certificates that an alarm has voided, by model."""
        query = select(monitors.c.model, monitors.c.certificate).where(
            monitors.c.fired_at.is_not(None), monitors.c.certificate.is_not(None)
        )
        found = defaultdict(set)
        with self._database.connect() as connection:
            for model, certificate in connection.execute(query):
                found[model].add(certificate)
        return {model: frozenset(keys) for model, keys in found.items()}

    def last_alarm(self, model: str) -> int | None:
        """Return when an alarm of a model went off last, None where none ever has.

        That is later than the prediction with which it did: that one's label had to come, and to be counted.
        """
        alarms = audit_log.c.model == model, audit_log.c.action == _ALARM
        with self._database.connect() as connection:
            latest: int | None = connection.scalar(select(func.max(audit_log.c.at)).where(*alarms))
        return latest

    def of(self, model: str) -> list[StoredMonitor]:
        """Return a model's monitors that run, and those that have voided a certificate, oldest first."""
        voids = monitors.c.fired_at.is_not(None) & monitors.c.certificate.is_not(None)
        query = _SELECT.where(monitors.c.model == model, or_(monitors.c.ended_at.is_(None), voids))
        with self._database.connect() as connection:
            return [StoredMonitor(*row) for row in connection.execute(query.order_by(monitors.c.id))]

    def follow(
        self, model: str, epoch: int, revision: str, watched: Sequence[tuple[Watched, Mapping[str, Any]]], alpha: float
    ) -> list[StoredMonitor] | None:
        """End the monitors of what is in force no longer, begin those that are missing, and return those that run.

        Args:
            model: The model.
            epoch: Of the pointer under which this is in force.
            revision: In force.
            watched: What is to be watched, each with the document of a monitor that has counted nothing, but for its
                `level` and `through`, which are set here.
            alpha: Probability of a false alarm that all monitors of a kind share, for each model.

        Returns:
            None where the pointer has moved on.
        """
        wanted = {one.subject: (one, document) for one, document in watched}
        with self._database.connect() as connection:
            since = _activated(connection, model, epoch)
            running = _running(connection, model)
        if since is None:
            return None
        if {one.subject for one in running} == wanted.keys():
            return running
        with self._database.begin() as connection:
            take_number(connection, f"monitors/{model}")  # one at a time, whatever became of the lock
            if _activated(connection, model, epoch) is None:
                return None
            running = _running(connection, model)
            ended = [one.id for one in running if one.subject not in wanted]
            if ended:
                connection.execute(update(monitors).where(monitors.c.id.in_(ended)).values(ended_at=now_us()))
            there = {one.subject for one in running}
            for subject, (one, document) in wanted.items():
                if subject in there:
                    continue
                place = take_number(connection, f"monitors/{model}/{one.kind}")
                level = level_of(alpha, place)
                row = {"model": model, "kind": one.kind, "name": one.name, "subject": subject, "place": place}
                row |= {"certificate": one.certificate, "revision": revision, "since": since, "through": since}
                row |= {"cohorts": 0, "evidence": 0.0, "document": {**document, "level": level, "through": since}}
                connection.execute(insert(monitors).values(**row))
            return _running(connection, model)

    def count(self, model: str, counted: Sequence[Counted]) -> bool:
        """Write what a cohort has made of monitors, with the alarms that went off in it and the refits they ask for.

        Args:
            model: Whose monitors they are.
            counted: The monitors that counted it.

        Returns:
            False, with nothing written, where one of them has counted something else meanwhile, or has ended.
        """
        try:
            with self._database.begin() as connection:
                for one in counted:
                    _count(connection, model, one)
        except _MovedError:
            return False
        return True

    def estimates(self, model: str) -> StoredEstimates | None:
        """Return what was estimated last of a model's traffic, None where nothing was."""
        query = select(estimates.c.revision, estimates.c.at, estimates.c.document).where(estimates.c.model == model)
        with self._database.connect() as connection:
            row = connection.execute(query).one_or_none()
            return None if row is None else StoredEstimates(*row)

    def estimated(self, model: str, found: StoredEstimates) -> None:
        """Keep what was estimated, in place of what was before."""
        values = {"revision": found.revision, "at": found.at, "document": found.document}
        with self._database.begin() as connection:
            upsert = insert_for(connection, estimates).values(model=model, **values)
            connection.execute(upsert.on_conflict_do_update(index_elements=["model"], set_=values))


_SELECT = select(*(monitors.c[name] for name in StoredMonitor.__slots__))


class _MovedError(Exception):
    """Somebody else has counted for a monitor, or ended it."""


def _count(connection: Connection, model: str, one: Counted) -> None:
    was = one.before
    fired = was.fired_at is None and one.fired_at is not None
    job = None
    if fired and one.refit is not None:
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
        audit.append(connection, model=model, by=BY, action=_ALARM, subject=was.name, detail=detail)


def _running(connection: Connection, model: str) -> list[StoredMonitor]:
    query = _SELECT.where(monitors.c.model == model, monitors.c.ended_at.is_(None)).order_by(monitors.c.id)
    return [StoredMonitor(*row) for row in connection.execute(query)]


def _activated(connection: Connection, model: str, epoch: int) -> int | None:
    """Return when the model's pointer moved to this epoch, None where it stands at another."""
    query = (
        select(activations.c.epoch, activations.c.at)
        .where(activations.c.model == model)
        .order_by(activations.c.epoch.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return row.at if row is not None and row.epoch == epoch else None
