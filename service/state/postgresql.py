"""PostgreSQL: driver, timeouts, and bulk reads."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import URL, Connection, Engine, Select, create_engine

from service.errors import ConfigurationError
from service.state.strict_json import strict_json

if TYPE_CHECKING:
    import psycopg

ANSWER_TIMEOUT_S = 10
READERS_MEMORY = "256MB"  # for a recalibration, the only reader, which joins a million rows


def make_engine(url: URL, *, readonly: bool) -> Engine:
    """Return an engine that detects a restarted server and times out on a silent one.

    Raises:
        ConfigurationError: The driver is not installed.
    """
    session = (
        f"-c lock_timeout={ANSWER_TIMEOUT_S}s -c default_transaction_read_only={'on' if readonly else 'off'} "
        "-c cursor_tuple_fraction=1 "  # every cursor is fetched to the end
        # Locks of a dead machine are released after a minute, not after two hours.
        "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
    )
    if readonly:
        session += f" -c work_mem={READERS_MEMORY}"
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="REPEATABLE READ" if readonly else "READ COMMITTED",  # a recalibration sees one snapshot
            pool_pre_ping=True,
            pool_timeout=ANSWER_TIMEOUT_S,
            json_serializer=strict_json,
            connect_args={
                "connect_timeout": ANSWER_TIMEOUT_S,
                "tcp_user_timeout": ANSWER_TIMEOUT_S * 1000,
                "options": session,
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
