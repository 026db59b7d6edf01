"""PostgreSQL: driver, timeouts, and bulk reads.

A pooler in transaction mode gives each transaction another session. Behind one, settings are made in each transaction,
and no statement stays prepared; locks end with their transaction anyway.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import URL, Connection, Engine, Select, create_engine, event

from service.errors import ConfigurationError
from service.state.strict_json import strict_json

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.pool import ConnectionPoolEntry

ANSWER_TIMEOUT_S = 10
_SCOPES: Final = ("SESSION", "LOCAL")
READERS_MEMORY = "256MB"  # for a recalibration, the only reader, which joins a million rows


def make_engine(url: URL, *, readonly: bool) -> Engine:
    """Return an engine that detects a restarted server and times out on a silent one.

    Raises:
        ConfigurationError: The driver is not installed.
    """
    settings = {
        "lock_timeout": f"{ANSWER_TIMEOUT_S}s",
        "cursor_tuple_fraction": "1",  # nearly all cursors are fetched to the end
        "jit": "off",  # to compile a plan over 30 partitions takes a second, and saves less
        # Locks of a dead machine are released after a minute, not after two hours.
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
    }
    if readonly:
        settings["work_mem"] = READERS_MEMORY
    changes = {scope: "; ".join(f"SET {scope} {name} = '{settings[name]}'" for name in settings) for scope in _SCOPES}
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="REPEATABLE READ" if readonly else "READ COMMITTED",  # a recalibration sees one snapshot
            pool_pre_ping=True,
            pool_timeout=ANSWER_TIMEOUT_S,
            json_serializer=strict_json,
            connect_args={
                "connect_timeout": ANSWER_TIMEOUT_S,
                "tcp_user_timeout": ANSWER_TIMEOUT_S * 1000,
            },
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "PostgreSQL requires the psycopg driver.",
            where="CANDOR_DATABASE_URL",
            found="psycopg is not installed",
            expected="psycopg 3",
            remedy='Install it with: pip install "psycopg[binary]"',
        ) from error

    @event.listens_for(engine, "connect")
    def configure(connection: psycopg.Connection, record: ConnectionPoolEntry) -> None:
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        pooled = record.info["pooled"] = found != (connection.info.backend_pid,)  # poolers make up a process id
        if pooled:
            connection.prepare_threshold = None
        else:
            connection.execute(changes["SESSION"])
        connection.commit()
        connection.read_only = readonly

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.info["pooled"]:
            connection.exec_driver_sql(changes["LOCAL"])

    return engine


@contextmanager
def limited(connection: Connection) -> Iterator[None]:
    """Limit what a statement outside of transactions waits for: behind a pooler it has no `lock_timeout`."""
    if not connection.info["pooled"]:
        yield
        return
    driver = cast("psycopg.Connection", connection.connection.driver_connection)

    timer = Timer(ANSWER_TIMEOUT_S, driver.cancel_safe)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a late cancellation would hit the connection's next statement


def stream(
    connection: Connection, query: Select[Any], at_once: int
) -> Generator[Sequence[tuple[Any, ...]], None, None]:
    """Yield a query's rows as the driver returns them, `at_once` at a time, while the server continues.

    Binary costs both sides less than text, and with a cursor each side would wait for the other.
    """
    from psycopg import capabilities  # an optional dependency

    driver = cast("psycopg.Connection", connection.connection.driver_connection)
    sql = query.compile(connection, compile_kwargs={"render_postcompile": True})
    size = at_once if capabilities.has_stream_chunked() else 1  # libpq before 17 streams single rows
    with (
        driver.cursor() as cursor,
        closing(cursor.stream(str(sql), sql.params, binary=True, size=size)) as rows,  # type: ignore[type-var]  # a generator
    ):
        while chunk := list(islice(rows, at_once)):
            yield chunk
