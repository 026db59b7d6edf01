"""The state database: one way to open it, one way to write, one way to read, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from sqlalchemy import URL, Connection, Engine, QueuePool, make_url, select, text
from sqlalchemy import exc as database_errors

from service.errors import ConfigurationError, StateUnavailableError
from service.state import migrations, postgresql, sqlite
from service.state.insertion import insert_for
from service.state.server_lock import ServerLock
from service.state.shared_lock import SharedLock
from service.state.tables import secrets

SECRET_BYTES = 32
MIGRATION_LOCK = 0x63616E646F72  # "candor": any number that other users of the same PostgreSQL do not take

SET_BACK_US = 86_400_000_000
"""As far as clocks are set back in earnest, in microseconds; what is later by more comes from one that ran wild."""

LOCK_RETRY_S = 0.05
LEAVE_S = 5.0
SCRUB_WAIT_MS = 1_000
_FILES_BESIDE_BYTES = 128 << 10

READ_ONLY_TRANSACTION = "25006"  # SQLSTATE, as after a fail-over to a PostgreSQL server that is still a standby


def now_us() -> int:
    """Return the time in microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


class Database:
    """An open state database, shared by all threads of the process.

    Attributes:
        engine: SQLAlchemy's engine; outside of this package only for tests.
        secret: 32 random bytes, made once per database, that key every hash of a group or an input.
    """

    engine: Engine
    secret: bytes

    def __init__(self, engine: Engine, lock: ServerLock | None) -> None:
        self.engine = engine
        self._writing_engine = engine.execution_options(write=True)
        self._lock = lock
        self._writer = threading.Lock() if engine.dialect.name == "sqlite" else None
        self._held: dict[str, object] = {}

    @classmethod
    def open(cls, url: str, *, readonly: bool = False, beside_server: bool = False) -> Self:
        """Open a database, make it where it is missing, and bring its schema up to date.

        Args:
            url: "sqlite:////absolute/path/state.db" or "postgresql://user:password@host/name".
            readonly: Take no lock and change nothing: for the refit's child process.
            beside_server: Where a server has the SQLite file already, write beside it, and leave the schema to it: for
                the command line.

        Raises:
            ConfigurationError: The URL, the file or its folder cannot be used, the file is damaged, another server has
                it, or a newer program wrote it.
            StateUnavailableError: The database server does not answer.
        """
        parsed = _parse(url)
        lock = None
        if parsed.get_backend_name() == "sqlite":
            file = sqlite.file_of(parsed)
            if not readonly:
                sqlite.prepare(file)
                try:
                    lock = ServerLock(file)
                except ConfigurationError:
                    if not beside_server:
                        raise
            elif not file.is_file():
                raise _no_schema(parsed, "no file")
            engine = sqlite.make_engine(file, readonly=readonly)
        else:
            engine = postgresql.make_engine(parsed, readonly=readonly)
        database = cls(engine, lock)
        try:
            database._load_secret(migrate=lock is not None or not (readonly or engine.dialect.name == "sqlite"))
        except BaseException as error:
            database.close()
            if isinstance(error, StateUnavailableError) and engine.dialect.name == "sqlite":
                raise _unusable_file(error) from error
            raise
        return database

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a write transaction: committed, and durable, when the block ends; rolled back when it raises.

        On SQLite one write runs at a time; on PostgreSQL rows are locked as they are taken.

        Raises:
            StateUnavailableError: The database does not answer, or cannot write. After one that the commit itself
                raised, the transaction may or may not have happened.
        """
        with _translated(self.engine), self._alone(), self._writing_engine.begin() as connection:
            yield connection

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open a read transaction; it sees one snapshot on SQLite, and on PostgreSQL where that was opened `readonly`.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        with _translated(self.engine), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Be the only one in such a block among all threads of all servers of this database; wait until that is so.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        while True:
            with self.try_lock(name) as taken:
                if taken:
                    yield
                    return
            time.sleep(LOCK_RETRY_S)

    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Do the block under the lock called `name`, or, where another thread or server has it, without: see the value.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        mine = object()
        if self._held.setdefault(name, mine) is not mine:
            yield False
            return
        try:
            with _translated(self.engine):
                lock = SharedLock.take(self.engine, name)
            try:
                yield lock is not None
            finally:
                if lock is not None:
                    lock.release()
        finally:
            del self._held[name]

    def scrub(self) -> None:
        """Take what was deleted out of SQLite's write-ahead log too, unless a reader needs it just now.

        PostgreSQL does so by itself, with its vacuum and its log's age.
        """
        if self.engine.dialect.name == "sqlite":
            with _translated(self.engine), self._alone(), self.engine.connect() as connection:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {SCRUB_WAIT_MS}")
                try:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    connection.exec_driver_sql(f"PRAGMA busy_timeout = {sqlite.BUSY_TIMEOUT_S * 1000}")

    def disk(self) -> sqlite.Disk | None:
        """Return what the state takes of its disk and what is left; None where another machine's disk holds it."""
        file = self.engine.url.database
        return sqlite.disk_of(Path(file)) if self.engine.dialect.name == "sqlite" and file else None

    def close(self) -> None:
        """Close every connection and let another server have the file.

        Threads that still use one, since nobody can interrupt them, have a few seconds to be done with it.
        """
        give_up = time.monotonic() + LEAVE_S
        pool = self.engine.pool
        while isinstance(pool, QueuePool) and pool.checkedout() and time.monotonic() < give_up:
            time.sleep(LOCK_RETRY_S)
        self.engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _alone(self) -> _Turn | nullcontext[None]:
        return nullcontext() if self._writer is None else _Turn(self._writer)

    def _load_secret(self, *, migrate: bool) -> None:
        if migrate:
            with self.begin() as connection:
                if self.engine.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
                migrations.upgrade(connection)
                insert = insert_for(connection, secrets).values(name="hash", value=os.urandom(SECRET_BYTES))
                connection.execute(insert.on_conflict_do_nothing())
        with self.connect() as connection:
            schema = migrations.current(connection)
            if schema != migrations.newest():
                raise _no_schema(self.engine.url, f"schema {schema}")
            self.secret = connection.execute(select(secrets.c.value).where(secrets.c.name == "hash")).scalar_one()


class _Turn:
    """A lock that is waited for no longer than SQLite itself would wait."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=sqlite.BUSY_TIMEOUT_S):
            raise StateUnavailableError(
                "Another write to the state database takes too long.",
                found=f"no turn within {sqlite.BUSY_TIMEOUT_S} s",
                remedy="Try again; if it stays so, look at the disk under the state folder.",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except database_errors.ArgumentError:
        backend = "no URL"
    if backend not in ("sqlite", "postgresql"):
        raise ConfigurationError(
            "The state URL cannot be used.",
            where="CANDOR_DATABASE_URL",
            found=backend,
            expected="sqlite:////absolute/path/state.db or postgresql://user:password@host/name",
        )
    return parsed


def _no_schema(url: URL, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"{url.render_as_string()} holds no state that this program can read.",
        found=found,
        expected=f"schema {migrations.newest()}",
        remedy="Start the server of the same version once: it makes or updates the state.",
    )


def _unusable_file(error: StateUnavailableError) -> ConfigurationError:
    return ConfigurationError(str(error), found=error.found, expected=error.expected, remedy=error.remedy)


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    """Turn what the driver raises when the database is not usable into StateUnavailableError; let mistakes through."""
    try:
        yield
    except (database_errors.OperationalError, database_errors.InterfaceError) as error:
        raise _unavailable(engine, error) from error
    except database_errors.TimeoutError as error:
        raise _unavailable(engine, error) from error
    except (engine.dialect.loaded_dbapi.OperationalError, engine.dialect.loaded_dbapi.InterfaceError) as error:
        raise _unavailable(engine, error) from error  # where rows are taken from the driver as they are
    except database_errors.DatabaseError as error:
        damaged = type(error.orig) is sqlite3.DatabaseError
        standby = getattr(error.orig, "sqlstate", None) == READ_ONLY_TRANSACTION
        if damaged or standby:
            raise _unavailable(engine, error) from error
        raise


def _unavailable(engine: Engine, error: Exception) -> StateUnavailableError:
    """Say what is wrong with the database and what to do, from the driver's own error."""
    cause = str(getattr(error, "orig", None) or error).strip()
    name = engine.url.render_as_string()
    if engine.dialect.name == "postgresql":
        remedy = "Start PostgreSQL, or check the state URL's host, name, user and password."
    elif "malformed" in cause or "not a database" in cause:
        remedy = "The file is damaged: restore it from a backup, or move it away to start with empty state."
    elif "readonly" in cause or "unable to open" in cause:
        remedy = f"Give user {os.getuid()} write access to the file and its folder."
    elif "full" in cause or _no_room(engine):
        remedy = "Make room on the disk under the state folder."
    elif "locked" in cause:
        remedy = "Another program holds the file open for writing: close it."
    else:
        remedy = "Look at the disk under the state folder."
    return StateUnavailableError(
        f"The state database {name} cannot be used: {cause}.",
        found=cause,
        expected="a database that answers",
        remedy=remedy,
    )


def _no_room(engine: Engine) -> bool:
    """Whether SQLite's disk has no room for the files that it opens beside the database: it calls that an I/O error."""
    with suppress(OSError):
        return sqlite.disk_of(Path(engine.url.database or "")).free < _FILES_BESIDE_BYTES
    return False
