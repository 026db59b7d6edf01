"""Recalibration jobs with their requests and results, kept across restarts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from service.errors import JobStateError, UnknownJobError
from service.state import audit
from service.state.database import Database, now_us
from service.state.numbering import number_in, take_number
from service.state.tables import jobs

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
UNFINISHED: tuple[JobState, ...] = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        id: Name, such as "j12".
        model: Its model.
        kind: Kind of work, such as "recalibrate".
        state: Its state.
        request: JSON-able request.
        by: Actor who requested it.
        progress: One short sentence for a person; "" before it starts.
        result: JSON-able result; None until it is done.
        error: JSON-able problem; None unless it failed.
        created_at: Microseconds since the epoch, UTC.
        started_at: When it started; None before.
        finished_at: When it ended; None before.
        starts: Number of starts without a return to the queue.
        by_key: Prefix of the requesting API key; None without one.
        step: Number of its current step, from 1; 0 before it starts.
        looks: Looks used: `{"gate": n, "certify": {policy: n}}`; None before the first.
        ending: Whether its result is being kept, which cannot be cancelled.
    """

    id: str
    model: str
    kind: str
    state: JobState
    request: dict[str, Any]
    by: str
    progress: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    starts: int
    by_key: str | None
    step: int
    looks: dict[str, Any] | None
    ending: bool


class JobStore:
    """Jobs of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, model: str, kind: str, request: dict[str, Any], by: str, by_key: str | None = None) -> Job:
        """Store a new job in state "queued"."""
        with self._database.begin() as connection:
            return insert_job(connection, model, kind, request, by, by_key)

    def start(self, id_: str) -> Job:
        """Put a job into state "running" and count the start, unless it has ended.

        Raises:
            UnknownJobError: The job does not exist.
        """
        number = _number(id_)
        values = {"state": "running", "starts": jobs.c.starts + 1, "started_at": now_us(), "ending": False}
        with self._database.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.number == number, _UNFINISHED).values(**values))
            return _get(connection, number)

    def put_back(self, job: Job) -> None:
        """Put a started job back into the queue and undo its start, unless it was restarted since."""
        values = {"state": "queued", "starts": jobs.c.starts - 1, "started_at": None, "ending": False}
        with self._database.begin() as connection:
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            connection.execute(update(jobs).where(*same).values(**values))

    def cancel(self, id_: str, *, by: str) -> Job:
        """Cancel a queued or running job; the replica that runs it stops soon.

        Raises:
            UnknownJobError: The job does not exist.
            JobStateError: It has ended, or its result is already being kept.
        """
        number = _number(id_)
        with self._database.begin() as connection:
            values = {"state": "cancelled", "finished_at": now_us()}
            living = (jobs.c.number == number, _UNFINISHED, jobs.c.ending.is_(False))
            done = connection.execute(update(jobs).where(*living).values(**values)).rowcount
            job = _get(connection, number)
            if not done:
                raise JobStateError(
                    f"Job {id_} cannot be cancelled.",
                    found="its result is being kept" if job.state in UNFINISHED else job.state,
                    expected="queued or running",
                    remedy="Reject its proposal, or roll back its activation.",
                )
            audit.append(connection, model=job.model, by=by, action="cancel", subject=id_, detail={"looks": job.looks})
            return job

    def begin_end(self, job: Job) -> bool:
        """Mark that a job's result is being kept; return False if it was cancelled or restarted since."""
        with self._database.begin() as connection:
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            return connection.execute(update(jobs).where(*same).values(ending=True)).rowcount == 1

    def add_looks(self, job: Job, *, gate: bool, policies: Collection[str]) -> bool:
        """Record a job's looks; return False, without a record, if it has ended or was restarted."""
        with self._database.begin() as connection:
            # Written first, so that the job cannot be cancelled in between.
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            if connection.execute(update(jobs).where(*same).values(ending=False)).rowcount != 1:
                return False
            before = _get(connection, _number(job.id)).looks or {"gate": 0, "certify": {}}
            certify = {**before["certify"], **{name: before["certify"].get(name, 0) + 1 for name in policies}}
            looks = {"gate": before["gate"] + gate, "certify": certify}
            connection.execute(update(jobs).where(*same).values(looks=looks))
            return True

    def cancelled(self, ids: Collection[str]) -> set[str]:
        """Return the cancelled ones among these jobs."""
        query = select(jobs.c.number).where(
            jobs.c.number.in_([_number(id_) for id_ in ids]), jobs.c.state == "cancelled"
        )
        with self._database.connect() as connection:
            return {f"j{number}" for number in connection.scalars(query)}

    def page(
        self,
        *,
        model: str | None = None,
        state: JobState | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> tuple[Job, ...]:
        """Return jobs, newest first.

        Args:
            model: Only jobs of this model.
            state: Only jobs in this state.
            limit: Maximum jobs.
            before: Only jobs older than this id (the last id of the previous page).

        Raises:
            UnknownJobError: `before` is not the id of a job.
        """
        query = _SELECT.order_by(jobs.c.number.desc()).limit(limit)
        if model is not None:
            query = query.where(jobs.c.model == model)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if before is not None:
            query = query.where(jobs.c.number < _number(before))
        with self._database.connect() as connection:
            return tuple(_job(row) for row in connection.execute(query))

    def update(
        self,
        id_: str,
        *,
        state: Literal["done", "failed", "cancelled"] | None = None,
        progress: str | None = None,
        step: int | None = None,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        outcome: dict[str, Any] | None = None,
    ) -> Job:
        """Change the given fields unless the job has ended, and return the job as it is then.

        Raises:
            UnknownJobError: The job does not exist.
        """
        number = _number(id_)
        given = {"state": state, "progress": progress, "step": step, "result": result, "error": error}
        given["outcome"] = outcome
        values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if state is not None:
            values["finished_at"] = now_us()
        with self._database.begin() as connection:
            if values:
                connection.execute(update(jobs).where(jobs.c.number == number, _UNFINISHED).values(**values))
            return _get(connection, number)

    def get(self, id_: str) -> Job:
        """Return one job.

        Raises:
            UnknownJobError: The job does not exist.
        """
        with self._database.connect() as connection:
            return _get(connection, _number(id_))

    def outcome(self, id_: str) -> dict[str, Any] | None:
        """Return a dry run's calibrator and policies; None without any."""
        with self._database.connect() as connection:
            query = select(jobs.c.outcome).where(jobs.c.number == _number(id_))
            found: dict[str, Any] | None = connection.execute(query).scalar_one_or_none()
            return found

    def unfinished(self) -> list[Job]:
        """Return the queued and running jobs, oldest first."""
        query = _SELECT.where(_UNFINISHED).order_by(jobs.c.number)
        with self._database.connect() as connection:
            return [_job(row) for row in connection.execute(query)]


def insert_job(
    connection: Connection, model: str, kind: str, request: dict[str, Any], by: str, by_key: str | None = None
) -> Job:
    """Store a new job in state "queued", in the caller's transaction."""
    number = take_number(connection, "job")
    row = {"number": number, "model": model, "kind": kind, "state": "queued", "request": request, "by": by}
    connection.execute(insert(jobs).values(**row, by_key=by_key, progress="", created_at=now_us()))
    audit.append(connection, model=model, by=by, action=kind, subject=f"j{number}", detail=request)
    return _get(connection, number)


_UNFINISHED = jobs.c.state.in_(UNFINISHED)
_FIELDS = tuple(field.name for field in dataclasses.fields(Job) if field.name != "id")
_SELECT = select(jobs.c.number, *(jobs.c[name] for name in _FIELDS))


def _job(row: Row[Any]) -> Job:
    return Job(f"j{row.number}", **{name: getattr(row, name) for name in _FIELDS})


def _number(id_: str) -> int:
    number = number_in("j", id_)
    if number is None:
        raise UnknownJobError(f"Unknown job {id_}.", found=id_, expected='"j" and a number')
    return number


def _get(connection: Connection, number: int) -> Job:
    row = connection.execute(_SELECT.where(jobs.c.number == number)).one_or_none()
    if row is None:
        raise UnknownJobError(f"Unknown job j{number}.", found=f"j{number}")
    return _job(row)
