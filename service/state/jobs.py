"""Jobs: refits that are asked for, run, and leave a result, across restarts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from service.errors import UnknownJobError
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


class JobStore:
    """Jobs of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, model: str, kind: str, request: dict[str, Any], by: str) -> Job:
        """Store a new job in state "queued"."""
        with self._database.begin() as connection:
            number = take_number(connection, "job")
            row = {"number": number, "model": model, "kind": kind, "state": "queued", "request": request, "by": by}
            connection.execute(insert(jobs).values(**row, progress="", created_at=now_us()))
            audit.append(connection, model=model, by=by, action=kind, subject=f"j{number}", detail=request)
            return _get(connection, number)

    def start(self, id: str) -> Job:  # noqa: A002
        """Put a job into state "running" and count the start; one that has ended stays as it is.

        Raises:
            UnknownJobError: There is no such job.
        """
        number = _number(id)
        values = {"state": "running", "starts": jobs.c.starts + 1, "started_at": now_us()}
        with self._database.begin() as connection:
            connection.execute(update(jobs).where(jobs.c.number == number, _UNFINISHED).values(**values))
            return _get(connection, number)

    def put_back(self, job: Job) -> None:
        """Queue a started job again as if it had not been started, unless it was started anew since."""
        values = {"state": "queued", "starts": jobs.c.starts - 1, "started_at": None}
        with self._database.begin() as connection:
            same = (jobs.c.number == _number(job.id), jobs.c.starts == job.starts, _UNFINISHED)
            connection.execute(update(jobs).where(*same).values(**values))

    def update(
        self,
        id: str,  # noqa: A002
        *,
        state: Literal["done", "failed", "cancelled"] | None = None,
        progress: str | None = None,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> Job:
        """Change what is given, and return the job as it then stands.

        The first end wins: a job that is done, failed or cancelled stays as it is, as the caller sees in the answer.

        Raises:
            UnknownJobError: There is no such job.
        """
        number = _number(id)
        given = {"state": state, "progress": progress, "result": result, "error": error}
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

    def unfinished(self) -> list[Job]:
        """Return the jobs that are queued or running, oldest first."""
        query = _SELECT.where(_UNFINISHED).order_by(jobs.c.number)
        with self._database.connect() as connection:
            return [_job(row) for row in connection.execute(query)]


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
