"""Jobs: refits that are asked for, run, and leave a result, across restarts."""

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
    """One job as it stands.

    Attributes:
        id: Name, such as "j12".
        model: Model that it works for.
        kind: What it does, such as "recalibrate".
        state: How far it is.
        request: JSON-able request that made it.
        by: Who asked for it.
        progress: One short sentence for a person; "" before it starts.
        result: JSON-able result, None until it is done.
        error: JSON-able problem, None unless it failed.
        created_at: Microseconds since the epoch, UTC.
        started_at: When it began to run, None before.
        finished_at: When it ended, None before.
        starts: How often it was started without having been put back.
        by_key: Prefix of the API key that asked for it, None without one.
        step: Which of its steps it is at, from 1; 0 before it starts.
        looks: Looks that it has spent: `{"gate": n, "certify": {policy: n}}`; None before the first.
        ending: Whether its result is being kept, so that it can be cancelled no more.
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

    def start(self, id: str) -> Job:  # noqa: A002
        """Put a job into state "running" and count the start; one that has ended stays as it is.

        Raises:
            UnknownJobError: There is no such job.
        """
        number = _number(id)
        values = {"state": "running", "starts": jobs.c.starts + 1, "started_at": now_us(), "ending": False}
        with self._database.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.number == number, _UNFINISHED).values(**values))
            return _get(connection, number)

    def put_back(self, job: Job) -> None:
        """Queue a started job again as if it had not been started, unless it was started anew since."""
        values = {"state": "queued", "starts": jobs.c.starts - 1, "started_at": None, "ending": False}
        with self._database.begin() as connection:
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            connection.execute(update(jobs).where(*same).values(**values))

    def cancel(self, id: str, *, by: str) -> Job:  # noqa: A002
        """End a job that is queued or running; whoever runs it sees that, and stops.

        Raises:
            UnknownJobError: There is no such job.
            JobStateError: It has ended, or its result is being kept already.
        """
        number = _number(id)
        with self._database.begin() as connection:
            values = {"state": "cancelled", "finished_at": now_us()}
            living = (jobs.c.number == number, _UNFINISHED, jobs.c.ending.is_(False))
            done = connection.execute(update(jobs).where(*living).values(**values)).rowcount
            job = _get(connection, number)
            if not done:
                raise JobStateError(
                    f"Job {id} cannot be cancelled.",
                    found="its result is being kept" if job.state in UNFINISHED else job.state,
                    expected="queued or running",
                    remedy="What it has proposed can be rejected, what it has activated rolled back.",
                )
            audit.append(connection, model=job.model, by=by, action="cancel", subject=id, detail={"looks": job.looks})
            return job

    def begin_end(self, job: Job) -> bool:
        """Say that a job's result is about to be kept; False when it has been cancelled or started anew since."""
        with self._database.begin() as connection:
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            return connection.execute(update(jobs).where(*same).values(ending=True)).rowcount == 1

    def add_looks(self, job: Job, *, gate: bool, policies: Collection[str]) -> bool:
        """Note what a job is about to look at; False, and nothing noted, when it has ended or was started anew."""
        with self._database.begin() as connection:
            # Written first, so that nobody cancels the job between the question and the answer.
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            if connection.execute(update(jobs).where(*same).values(ending=False)).rowcount != 1:
                return False
            before = _get(connection, _number(job.id)).looks or {"gate": 0, "certify": {}}
            certify = {**before["certify"], **{name: before["certify"].get(name, 0) + 1 for name in policies}}
            looks = {"gate": before["gate"] + gate, "certify": certify}
            connection.execute(update(jobs).where(*same).values(looks=looks))
            return True

    def cancelled(self, ids: Collection[str]) -> set[str]:
        """Return which of these jobs have been cancelled."""
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
            model: Only this model's.
            state: Only those in this state.
            limit: At most so many.
            before: Only jobs older than this id: the last id of the page before.

        Raises:
            UnknownJobError: `before` is no job's id.
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
        id: str,  # noqa: A002
        *,
        state: Literal["done", "failed", "cancelled"] | None = None,
        progress: str | None = None,
        step: int | None = None,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        outcome: dict[str, Any] | None = None,
    ) -> Job:
        """Change what is given, and return the job as it then stands.

        The first end wins: a job that is done, failed or cancelled stays as it is, as the caller sees in the answer.

        Raises:
            UnknownJobError: There is no such job.
        """
        number = _number(id)
        given = {"state": state, "progress": progress, "step": step, "result": result, "error": error}
        given["outcome"] = outcome
        values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if state is not None:
            values["finished_at"] = now_us()
        with self._database.begin() as connection:
            if values:
                connection.execute(update(jobs).where(jobs.c.number == number, _UNFINISHED).values(**values))
            return _get(connection, number)

    def get(self, id: str) -> Job:  # noqa: A002
        """Return one job.

        Raises:
            UnknownJobError: There is no such job.
        """
        with self._database.connect() as connection:
            return _get(connection, _number(id))

    def outcome(self, id: str) -> dict[str, Any] | None:  # noqa: A002
        """Return what a dry run has made (calibrator and policies), None where there is nothing."""
        with self._database.connect() as connection:
            query = select(jobs.c.outcome).where(jobs.c.number == _number(id))
            found: dict[str, Any] | None = connection.execute(query).scalar_one_or_none()
            return found

    def unfinished(self) -> list[Job]:
        """Return the jobs that are queued or running, oldest first."""
        query = _SELECT.where(_UNFINISHED).order_by(jobs.c.number)
        with self._database.connect() as connection:
            return [_job(row) for row in connection.execute(query)]


def insert_job(
    connection: Connection, model: str, kind: str, request: dict[str, Any], by: str, by_key: str | None = None
) -> Job:
    """Store a new job in state "queued", in the transaction that asks for it."""
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
        raise UnknownJobError(f"There is no job {id_}.", found=id_, expected='"j" and a number')
    return number


def _get(connection: Connection, number: int) -> Job:
    row = connection.execute(_SELECT.where(jobs.c.number == number)).one_or_none()
    if row is None:
        raise UnknownJobError(f"There is no job j{number}.", found=f"j{number}")
    return _job(row)
