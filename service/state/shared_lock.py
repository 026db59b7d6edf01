"""A lock that holds among all servers of one database, for as long as its holder lives."""

from __future__ import annotations

import contextlib
import hashlib

from sqlalchemy import Connection, Engine, text
from sqlalchemy import exc as database_errors

_GIVE = text("SELECT pg_advisory_unlock(:key)")
_TAKE = text("SELECT pg_try_advisory_lock(:key)")


class SharedLock:
    """An advisory lock of PostgreSQL on a connection of its own: the end of the process, however it ends, frees it.

    On SQLite it is nothing: there is one server only (`ServerLock`).
    """

    def __init__(self, connection: Connection | None, key: int = 0) -> None:
        self._connection = connection
        self._key = key

    @classmethod
    def take(cls, engine: Engine, name: str) -> SharedLock | None:
        """Take the lock called `name` if no connection has it, else return None at once."""
        if engine.dialect.name == "sqlite":
            return cls(None)
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        try:
            taken = connection.execute(_TAKE, {"key": key}).scalar_one()
        except BaseException:
            connection.close()
            raise
        if not taken:
            connection.close()
            return None
        connection.detach()  # out of the pool: closing it ends the session, and with it the lock
        return cls(connection, key)

    def release(self) -> None:
        """Let another have the lock."""
        if self._connection is not None:
            with contextlib.suppress(database_errors.DBAPIError):  # a lost connection has lost the lock already
                # The server hears of a closed connection a little later; the next holder need not wait for that.
                self._connection.execute(_GIVE, {"key": self._key})
            with contextlib.suppress(database_errors.DBAPIError):
                self._connection.close()
            self._connection = None
