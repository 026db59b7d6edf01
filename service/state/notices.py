"""Notices of changes among replicas, by PostgreSQL's NOTIFY: a hint to read the state before the next poll.

The poll stays: a notice that is lost costs one interval of it. SQLite has one server, which needs none.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

import structlog
from sqlalchemy import Connection, func, select, table, text

from service.errors import StateUnavailableError
from service.others import FOLLOW, JOBS, Others
from service.state.database import Database, parse

if TYPE_CHECKING:
    import psycopg

logger = structlog.get_logger(__name__)

CHANNEL: Final = "candor"
CHANGED: Final = "changed"
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 60.0
_HEARD_WITHIN_S = 5.0
_REMEDY: Final = "Start PostgreSQL, or check the URL of the state. The service tries again."
_CONNECTED: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    # A dead connection is noticed within a minute: nothing is ever sent on it.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def announce(connection: Connection, what: str = CHANGED) -> None:
    """Tell every replica, as soon as this transaction is committed, that the state has changed."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, what)))


class Notices:
    """The notices that reach this process, over a connection of their own.

    Args:
        database: Open state.
        url: URL of the same PostgreSQL for that connection; None for that of the state.
        others: The processes of the service, which then look for what has changed.

    Raises:
        ConfigurationError: The URL is not that of a PostgreSQL.

    Attributes:
        arrive: Whether changes are heard of at once; None on SQLite, which needs no notices.
    """

    def __init__(self, database: Database, url: str | None, others: Others) -> None:
        self.arrive: bool | None = False if database.engine.dialect.name == "postgresql" else None
        self._database = database
        self._url = database.engine.url if url is None else parse(url, "CANDOR_DATABASE_DIRECT_URL", ["postgresql"])
        self._others = others
        self._told = False

    async def run(self) -> None:
        """Listen until cancelled; connect again, with growing pauses, whenever the connection is lost."""
        if self.arrive is None:
            return
        import psycopg  # an optional dependency

        delay_s = _FIRST_RETRY_S
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, StateUnavailableError) as error:
                said = {"cause": str(error).strip(), "remedy": getattr(error, "remedy", _REMEDY)}
            except Exception as error:
                logger.exception("notices of changes failed")
                said = {"cause": repr(error)}
            delay_s = _FIRST_RETRY_S if self.arrive else min(2 * delay_s, _LONGEST_RETRY_S)
            if self.arrive or not self._told:
                logger.warning("changes arrive by polling only", **said)
                self._told = True
            self.arrive = False
            await asyncio.sleep(delay_s)

    async def _listen(self) -> None:
        import psycopg

        arguments, options = self._database.engine.dialect.create_connect_args(self._url)
        given = {**_CONNECTED, **options, "autocommit": True}
        async with await psycopg.AsyncConnection.connect(*arguments, **given) as connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            await self._prove(connection)
            logger.info("changes arrive by notice")
            self.arrive, self._told = True, False
            await self._hear()  # of what was announced before
            while True:
                # One answer to all that have come together; those that come meanwhile wait for the next.
                if CHANGED in [notice.payload async for notice in connection.notifies(stop_after=1)]:
                    await self._hear()

    async def _prove(self, connection: psycopg.AsyncConnection) -> None:
        """Send a notice as a change does, and wait for it: poolers accept LISTEN and then deliver nothing.

        Raises:
            StateUnavailableError: It did not arrive.
        """
        token = secrets.token_hex(8)
        try:
            async with asyncio.timeout(_HEARD_WITHIN_S):
                await asyncio.to_thread(self._send, token)
                while token not in [notice.payload async for notice in connection.notifies(stop_after=1)]:
                    pass
        except TimeoutError as error:
            raise StateUnavailableError(
                "PostgreSQL accepts LISTEN and delivers no notice.",
                found=f"silence for {_HEARD_WITHIN_S:g} s",
                expected="the notice that this process has sent",
                remedy="Behind a pooler in transaction mode, set CANDOR_DATABASE_DIRECT_URL to PostgreSQL itself.",
            ) from error

    async def _hear(self) -> None:
        asked = (asyncio.to_thread(self._others.ask, what) for what in (FOLLOW, JOBS))
        for error in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(error, Exception):
                logger.warning("a change was not followed yet", error=repr(error))

    def _send(self, token: str) -> None:
        with self._database.begin() as connection:
            announce(connection, token)


def listeners(connection: Connection) -> int:
    """Return how many other processes listen for changes of this PostgreSQL; 0 on SQLite."""
    if connection.dialect.name != "postgresql":
        return 0
    here = text(f"datname = current_database() AND query = 'LISTEN {CHANNEL}'")
    return connection.execute(select(func.count()).select_from(table("pg_stat_activity")).where(here)).scalar_one()
