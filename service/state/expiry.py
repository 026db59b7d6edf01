"""PostgreSQL's partitions over time: make those of the next days, drop old ones whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import delete, text

from service.state.database import Database, now_us
from service.state.deletion import Deleted
from service.state.partitions import PARTITIONED, Part, cover, first_id, parts_of
from service.state.postgresql import limited
from service.state.tables import cases, inputs, predictions
from service.times import DAY_US

DAYS_AHEAD: Final = 3
_LATE_US: Final = 3_600_000_000  # an id is older than its row, by a request's wait

# References of a partition whose label goes: those that no other prediction of the model has.
_LABELS = (
    """DELETE FROM feedback USING {part} p, origins o
       WHERE by_reference = 0 AND target = p.id AND target >= :since AND target < :until
       AND o.id = p.origin AND o.model = feedback.model""",
    """DELETE FROM feedback USING {part} p, origins o
       WHERE by_reference = 1 AND target = p.reference AND o.id = p.origin AND o.model = feedback.model
       AND NOT EXISTS (SELECT FROM predictions q JOIN origins r ON r.id = q.origin
                       WHERE q.reference = target AND r.model = feedback.model
                       AND (q.id < :since OR q.id >= :until))""",
)
_SCORES = "DELETE FROM challenger_scores WHERE id >= :since AND id < :until"
_YOUNGER = {
    "inputs": "SELECT EXISTS (SELECT FROM {part} WHERE created_at >= :time)",
    "predictions": "SELECT EXISTS (SELECT FROM {part} "
    "WHERE origin = ANY (ARRAY(SELECT id FROM origins)) AND created_at >= :time)",
}


def cover_ahead(database: Database, days: int = DAYS_AHEAD) -> None:
    """Make the partitions of today and the next days, and count rows for the planner when there are new ones.

    Autovacuum analyses partitions, but never the tables that consist of them.

    Args:
        database: The state, on PostgreSQL.
        days: Number of days after today.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    today = now_us() // DAY_US
    with database.begin() as connection:
        made = cover(connection, range(today, today + days + 1))
    if made:
        with database.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"ANALYZE {', '.join(PARTITIONED)}")


def drop_before(
    database: Database, before_us: int | None, inputs_before_us: int | None, stopped: Callable[[], bool]
) -> Deleted:
    """Drop partitions of old ids, with the labels that belong to their predictions alone.

    A partition with a row that is not old stays. Readers and writers do not wait: a drop waits for them, for up to
    `ANSWER_TIMEOUT_S`, and the next call completes it.

    Args:
        database: The state.
        before_us: Predictions before this time are old; None for none.
        inputs_before_us: Inputs before this time are old; None for those of old predictions.
        stopped: Returns whether to stop; called between partitions.

    Raises:
        StateUnavailableError: The database does not answer, or a reader takes too long.
    """
    total = Deleted()
    times = [time for time in (before_us, inputs_before_us) if time is not None]
    for table, time in ((inputs.name, max(times, default=None)), (predictions.name, before_us)):
        _finish(database, table)
        if time is None:
            continue
        with database.connect() as connection:
            old = [part for part in parts_of(connection, table) if part.until <= first_id(time)]
        for part in old:
            if stopped():
                break
            total += _drop(database, table, part, time)
    return total


def _drop(database: Database, table: str, part: Part, before_us: int) -> Deleted:
    with database.begin() as connection:
        newer = text(_YOUNGER[table].format(part=part.name))
        if connection.execute(newer, {"time": before_us + _LATE_US}).scalar_one():
            return Deleted()
        labels = reviewed = 0
        if table == predictions.name:
            for statement in _LABELS:
                about = {"since": part.since, "until": part.until}
                labels += connection.execute(text(statement.format(part=part.name)), about).rowcount
            ids = (cases.c.id >= part.since, cases.c.id < part.until)
            reviewed = connection.execute(delete(cases).where(*ids)).rowcount
            connection.execute(text(_SCORES), about)
        rows = connection.exec_driver_sql(f"SELECT count(*) FROM {part.name}").scalar_one()  # noqa: S608
    _alone(database, f"ALTER TABLE {table} DETACH PARTITION {part.name} CONCURRENTLY", f"DROP TABLE {part.name}")
    return Deleted(inputs=rows) if table == inputs.name else Deleted(predictions=rows, labels=labels, cases=reviewed)


def _finish(database: Database, table: str) -> None:
    """Finish what an interrupted drop has begun."""
    with database.connect() as connection:
        found = connection.execute(
            text(
                "SELECT c.relname, i.inhdetachpending FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid "
                "WHERE c.relkind = 'r' AND c.relname ~ :names "
                "AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(:table))"
            ),
            {"table": table, "names": f"^{table}_(before|[0-9]{{8}})$"},
        ).all()
    for name, pending in found:
        if pending:
            _alone(database, f"ALTER TABLE {table} DETACH PARTITION {name} FINALIZE")
        if pending is not False:
            _alone(database, f"DROP TABLE {name}")


def _alone(database: Database, *statements: str) -> None:
    """Run statements outside of transactions."""
    with database.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in statements:
            with limited(connection):
                connection.exec_driver_sql(statement)
