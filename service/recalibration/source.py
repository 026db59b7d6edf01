"""Where a recalibration reads: a read replica that has caught up with the start of its job, else the primary."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import structlog
from sqlalchemy import select

from service.errors import ConfigurationError, StateUnavailableError
from service.recalibration.task import RefitTask, Started
from service.state.database import Database
from service.state.tables import jobs

logger = structlog.get_logger(__name__)

CATCH_UP_S = 30.0
_RETRY_S = 0.2

ReadFrom = Literal["primary", "replica"]
Found = TypeVar("Found")


def read_rows(
    task: RefitTask, read: Callable[[Database, int | None], Found], *, catch_up_s: float = CATCH_UP_S
) -> tuple[Found, ReadFrom]:
    """Read from the replica of a task, or from its primary, and return from which.

    A replica applies transactions in the order of their commits. So once it shows that the job has started, it has
    every label that was answered as stored before, and every activation and voided certificate.

    Args:
        task: The task.
        read: Reads from an open database what was written before a time in microseconds since the epoch; None for now.
        catch_up_s: Seconds after which a replica that lags behind is not waited for.

    Raises:
        StateUnavailableError: The primary does not answer.
    """
    if task.read_url is not None and task.started is not None:
        try:
            started = task.started
            return _read(task.read_url, lambda database: _caught_up(database, started, read, catch_up_s)), "replica"
        except (StateUnavailableError, ConfigurationError) as error:
            logger.warning("recalibration reads from the primary", replica=str(error))
    return _read(task.database_url, lambda database: read(database, None)), "primary"


def _read(url: str, read: Callable[[Database], Found]) -> Found:
    database = Database.open(url, readonly=True)
    try:
        return read(database)
    finally:
        database.close()


def _caught_up(
    database: Database, started: Started, read: Callable[[Database, int | None], Found], catch_up_s: float
) -> Found:
    give_up = time.monotonic() + catch_up_s
    while not _shows(database, started):
        if time.monotonic() > give_up:
            raise StateUnavailableError(
                "The read replica lags behind.",
                found=f"no start of job {started.number} within {catch_up_s:g} s",
                remedy="Check its replication. CANDOR_DATABASE_READ_URL must name a replica of the same state.",
            )
        time.sleep(_RETRY_S)
    return read(database, started.at_us)


def _shows(database: Database, started: Started) -> bool:
    columns: tuple[Any, ...] = (jobs.c.created_at, jobs.c.starts)
    with database.connect() as connection:
        found = connection.execute(select(*columns).where(jobs.c.number == started.number)).one_or_none()
    return found is not None and found.created_at == started.created_at and found.starts >= started.starts
