"""A lock among all processes of one database that its holder's end releases."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy import exc as database_errors

from service.state.server_lock import lock_file

_TAKE = text("SELECT pg_try_advisory_xact_lock(:key)")
_STAY = text("SET LOCAL idle_in_transaction_session_timeout = 0")
_FLOCK = "hhqqi4x"  # Linux's struct flock: type, whence, start, length, process
_LARGEST_PLACE = 2**62 - 1


class SharedLock:
    """A lock with a name, which the end of the process releases; see `take`."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    @classmethod
    def take(cls, engine: Engine, name: str) -> SharedLock | None:
        """Take the lock called `name`; return None at once if another holder has it.

        On PostgreSQL it is an advisory lock of a transaction that stays open, on a connection of its own. On SQLite it
        is a byte of the file beside the database. The name's hash says which.

        Raises:
            OSError: The file beside the SQLite database cannot be opened.
        """
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        release = (_byte if engine.dialect.name == "sqlite" else _advisory)(engine, key)
        return None if release is None else cls(release)

    def release(self) -> None:
        """Release the lock, once."""
        self._release()


class ByteLock:
    """One byte of a file, which one holder among all processes and threads can lock.

    Args:
        path: The file; created if it is missing.
        key: Place of the byte, at least 0.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path, key: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Of the open file, not of the process: other threads of this one are refused too.
        self._lock, self._unlock = (
            struct.pack(_FLOCK, kind, os.SEEK_SET, key, 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
        )

    def take(self) -> bool:
        """Lock the byte; return False at once if another holder has it."""
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, self._lock)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def give(self) -> None:
        """Unlock the byte."""
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, self._unlock)

    def close(self) -> None:
        """Close the file, which unlocks the byte."""
        os.close(self._file)


def _byte(engine: Engine, key: int) -> Callable[[], None] | None:
    lock = ByteLock(lock_file(Path(engine.url.database or "")), key & _LARGEST_PLACE)
    if lock.take():
        return lock.close
    lock.close()
    return None


def _advisory(engine: Engine, key: int) -> Callable[[], None] | None:
    connection = engine.connect()
    try:
        connection.execute(_STAY)
        taken = connection.execute(_TAKE, {"key": key}).scalar_one()
    except BaseException:
        connection.close()
        raise
    if not taken:
        connection.close()
        return None
    connection.detach()  # out of the pool: closing it then ends the session and so the lock

    def release() -> None:
        with contextlib.suppress(database_errors.DBAPIError):  # a lost connection has already lost the lock
            # The server notices a closed connection with a delay; the next holder need not wait for that.
            connection.rollback()
        with contextlib.suppress(database_errors.DBAPIError):
            connection.close()

    return release
