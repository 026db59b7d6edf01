"""The state database on SQLite or PostgreSQL: open, write, read, lock."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

import structlog
from sqlalchemy import URL, Connection, Engine, QueuePool, make_url, select, text
from sqlalchemy import exc as database_errors

from service.errors import ConfigurationError, NoStateError, OldStateError, StateUnavailableError
from service.state import audit_chain, migrating, postgresql, sqlite
from service.state.insertion import insert_for
from service.state.numbering import take_number
from service.state.server_lock import ServerLock, lock_file
from service.state.shared_lock import ByteLock, SharedLock
from service.state.tables import secrets

logger = structlog.get_logger(__name__)

SECRET_BYTES = 32
MIGRATION_LOCK = 0x63616E646F72  # "candor": a number that no other user of the same PostgreSQL takes

SET_BACK_US = 86_400_000_000
"""Maximum plausible clock correction in microseconds; times further in the future come from a broken clock."""

UNLINKED = "unlinked"  # of a write transaction's `Connection.info`: ids of its entries in the audit log
LOCK_RETRY_S = 0.05
_SCHEMA_RETRY_S = 0.5
_TELL_AGAIN_S = 10.0
TURN_RETRY_S = 0.001
WRITING = 2**62  # the byte of the lock file that a write holds; names have those below
LEAVE_S = 5.0
SCRUB_WAIT_MS = 1_000
_FILES_BESIDE_BYTES = 128 << 10
_EXPECTED = {
    "sqlite": "sqlite:////absolute/path/state.db",
    "postgresql": "postgresql://user:password@host/name",
}

READ_ONLY_TRANSACTION = "25006"  # SQLSTATE of a standby server, for example after a fail-over
NO_PRIVILEGE = "42501"  # of a role that may not change the schema, for example where a partition is missing


def now_us() -> int:
    """Return the time in microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


class Database:
    """An open state database, shared by all threads of the process.

    Attributes:
        engine: SQLAlchemy's engine; used outside this package by tests only.
        secret: 32 random bytes, made once per database: the key of all hashes of groups and inputs.
    """

    engine: Engine
    secret: bytes

    def __init__(self, engine: Engine, lock: ServerLock | None, *, shared: Path | None = None) -> None:
        self.engine = engine
        self._writing_engine = engine.execution_options(write=True)
        self._lock = lock
        self._turn = _Turn(shared) if engine.dialect.name == "sqlite" else nullcontext()
        self._held: dict[str, object] = {}

    @classmethod
    def open(
        cls,
        url: str,
        *,
        readonly: bool = False,
        beside_server: bool = False,
        existing: bool = False,
        lock_is_held: bool = False,
        schema_of_another: bool = False,
    ) -> Self:
        """Open a database; create it or update its schema if necessary.

        Args:
            url: "sqlite:////absolute/path/state.db" or "postgresql://user:password@host/name".
            readonly: Take no lock and change nothing; for child processes.
            beside_server: Allow a running server on the same SQLite file, which then owns the schema; for the command
                line.
            existing: Neither create it nor update its schema; for commands on what a server has stored.
            lock_is_held: The process that started this one has locked the SQLite file for both; see `lock_server`.
            schema_of_another: Another process creates and updates the schema: wait for that. PostgreSQL only.

        Raises:
            ConfigurationError: The URL, the file or its folder cannot be used, the file is damaged or in use by another
                server, or a newer program wrote it.
            NoStateError: It is not there, and may not be created.
            OldStateError: An older program wrote it, and it may not be updated.
            StateUnavailableError: The database server does not answer.
        """
        parsed = parse(url)
        lock, shared = None, None
        if schema_of_another and parsed.get_backend_name() == "sqlite":
            raise one_server_only("CANDOR_BACKGROUND")
        if parsed.get_backend_name() == "sqlite":
            file = sqlite.file_of(parsed)
            if (readonly or existing) and not file.is_file():
                raise _no_state(parsed, "no file")
            if not readonly:
                sqlite.prepare(file)
                try:
                    lock = None if lock_is_held else ServerLock(file)
                except ConfigurationError:
                    if not beside_server:
                        raise
            shared = lock_file(file) if lock_is_held else None
            engine = sqlite.make_engine(file, readonly=readonly)
        else:
            engine = postgresql.make_engine(parsed, readonly=readonly)
        database = cls(engine, lock, shared=shared)
        try:
            owns = lock is not None or lock_is_held or engine.dialect.name == "postgresql"
            if schema_of_another:
                database._await_schema()
            database._load_secret(migrate=owns and not (readonly or existing or schema_of_another))
        except BaseException as error:
            database.close()
            if isinstance(error, StateUnavailableError) and engine.dialect.name == "sqlite":
                raise _unusable_file(error) from error
            raise
        return database

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a write transaction: durably committed at the end of the block, rolled back on an error.

        SQLite runs one write at a time; PostgreSQL locks rows.

        Raises:
            StateUnavailableError: The database does not answer or cannot write. If the commit itself raises, the
                transaction may or may not have happened.
        """
        with _translated(self.engine), self._turn, self._writing_engine.begin() as connection:
            entries = connection.info[UNLINKED] = list[int]()
            yield connection
            if entries and connection.in_transaction():
                audit_chain.seal(connection, entries)  # last: others wait for the end of this transaction then

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open a read transaction: one snapshot on SQLite and on a `readonly` PostgreSQL.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        with _translated(self.engine), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock called `name` for the block, exclusive among all threads and servers; wait for it.

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
        """Try to hold the lock called `name` for the block; yield whether this thread has it.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        mine = object()
        if self._held.setdefault(name, mine) is not mine:
            yield False
            return
        try:
            with _translated(self.engine):
                try:
                    lock = SharedLock.take(self.engine, name)
                except OSError as error:
                    raise _unavailable(self.engine, error) from error
            try:
                yield lock is not None
            finally:
                if lock is not None:
                    lock.release()
        finally:
            del self._held[name]

    def unwritable(self) -> str | None:
        """Write a number; return why that is not possible although the state can be read, None otherwise."""
        why: Exception | None = None
        for _ in range(2):  # the first attempt may use a connection that was lost
            try:
                with self.begin() as connection:
                    take_number(connection, "written")
            except (StateUnavailableError, database_errors.DatabaseError) as error:
                why = error
            else:
                return None
        with suppress(StateUnavailableError, database_errors.DatabaseError), self.connect() as connection:
            connection.execute(select(secrets.c.name))
            logger.error("the state cannot be written", error=str(why))
            return "The state can be read but not written."
        return None

    def scrub(self) -> None:
        """Remove deleted data from SQLite's write-ahead log, unless a reader needs it; PostgreSQL does so itself."""
        if self.engine.dialect.name == "sqlite":
            with _translated(self.engine), self._turn, self.engine.connect() as connection:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {SCRUB_WAIT_MS}")
                try:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    connection.exec_driver_sql(f"PRAGMA busy_timeout = {sqlite.BUSY_TIMEOUT_S * 1000}")

    @property
    def shared(self) -> bool:
        """Whether several services can use it at once."""
        return self.engine.dialect.name == "postgresql"

    def disk(self) -> sqlite.Disk | None:
        """Return used and free disk space of the state; None for a database server."""
        file = self.engine.url.database
        return sqlite.disk_of(Path(file)) if self.engine.dialect.name == "sqlite" and file else None

    def close(self) -> None:
        """Close every connection and release the file; threads that use one have a few seconds to finish."""
        give_up = time.monotonic() + LEAVE_S
        pool = self.engine.pool
        while isinstance(pool, QueuePool) and pool.checkedout() and time.monotonic() < give_up:
            time.sleep(LOCK_RETRY_S)
        self.engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _await_schema(self) -> None:
        """Wait until the schema is not older than this program's."""
        told_at = -math.inf
        while True:
            with self.connect() as connection:
                schema = migrating.current(connection)
            if schema is not None and schema >= migrating.newest():
                return
            if time.monotonic() >= told_at + _TELL_AGAIN_S:
                logger.warning(
                    "waiting for `candor worker` to update the state", found=schema, expected=migrating.newest()
                )
                told_at = time.monotonic()
            time.sleep(_SCHEMA_RETRY_S)

    def _load_secret(self, *, migrate: bool) -> None:
        while migrate:
            with self.begin() as connection:
                if self.engine.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
                migrate = not migrating.upgrade(connection)
                insert = insert_for(connection, secrets).values(name="hash", value=os.urandom(SECRET_BYTES))
                connection.execute(insert.on_conflict_do_nothing())
        with self.connect() as connection:
            schema = migrating.current(connection)
            if schema is None:
                raise _no_state(self.engine.url, "no tables")
            if schema > migrating.newest():
                raise migrating.newer_state(schema)
            if schema < migrating.newest():
                raise OldStateError(
                    f"{self.engine.url.render_as_string()} has the state of an older version of Candor.",
                    found=f"schema {schema}",
                    expected=f"schema {migrating.newest()}",
                    remedy="Back it up, then start the service once to update it.",
                )
            self.secret = connection.execute(select(secrets.c.value).where(secrets.c.name == "hash")).scalar_one()


class _Turn:
    """A lock among the threads of this process, and of those that share the file, with SQLite's own timeout.

    Threads get it in the order in which they ask. SQLite's own way to wait for another process sleeps for up to 0.1 s
    at a time, and others pass it meanwhile.

    Args:
        shared: Lock file of the processes; None if there is only this one.
    """

    def __init__(self, shared: Path | None) -> None:
        self._waiting: deque[threading.Event] = deque()  # the first one has it
        self._changed = threading.Lock()
        self._byte = None if shared is None else ByteLock(shared, WRITING)

    def __enter__(self) -> None:
        mine = threading.Event()
        with self._changed:
            self._waiting.append(mine)
            self._waiting[0].set()
        try:
            self._wait(mine)
        except BaseException:  # the threads behind this one must get their turn
            self._leave(mine)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            if self._byte is not None:
                self._byte.give()
        finally:
            self._leave(self._waiting[0])

    def _wait(self, mine: threading.Event) -> None:
        until = time.monotonic() + sqlite.BUSY_TIMEOUT_S
        taken = mine.wait(sqlite.BUSY_TIMEOUT_S)
        try:
            while taken and self._byte is not None and not self._byte.take():
                taken = time.monotonic() <= until
                time.sleep(TURN_RETRY_S)
        except OSError as error:
            raise StateUnavailableError(
                "The lock file of the state cannot be locked.",
                found=error.strerror,
                expected="a file system with locks",
                remedy="Check the disk of the state folder. Some network file systems have no locks.",
            ) from error
        if not taken:
            raise StateUnavailableError(
                "Another write to the state database takes too long.",
                found=f"no turn within {sqlite.BUSY_TIMEOUT_S} s",
                remedy="Try again. If the error persists, check the disk of the state folder.",
            )

    def _leave(self, mine: threading.Event) -> None:
        with self._changed:
            self._waiting.remove(mine)
            if self._waiting:
                self._waiting[0].set()


def lock_server(url: str) -> ServerLock | None:
    """Lock a SQLite file for this process and those that it starts; None on PostgreSQL, which has many servers.

    Raises:
        ConfigurationError: The URL, the file or its folder cannot be used, or another server holds the lock.
    """
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    file = sqlite.file_of(parsed)
    sqlite.prepare(file)
    return ServerLock(file)


def parse(url: str, where: str = "CANDOR_DATABASE_URL", backends: Collection[str] = _EXPECTED) -> URL:
    """Return the parts of a URL of a state.

    Raises:
        ConfigurationError: It is not the URL of one of these databases.
    """
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except database_errors.ArgumentError:
        backend = "no URL"
    if backend not in backends:
        raise ConfigurationError(
            "The state URL cannot be used.",
            where=where,
            found=backend,
            expected=" or ".join(_EXPECTED[name] for name in backends),
        )
    return parsed


def one_server_only(where: str) -> ConfigurationError:
    """Return the error of a state in SQLite that is to be shared by a worker and by processes that only serve."""
    return ConfigurationError(
        "A state in SQLite has one server, which runs everything.",
        where=where,
        found="SQLite",
        expected="PostgreSQL",
        remedy="Use PostgreSQL, or run `candor serve` with CANDOR_BACKGROUND=true.",
    )


def _no_state(url: URL, found: str) -> NoStateError:
    return NoStateError(
        f"{url.render_as_string()} does not contain a state.",
        found=found,
        expected=f"schema {migrating.newest()}",
        remedy="Start the service once to create it.",
    )


def _unusable_file(error: StateUnavailableError) -> ConfigurationError:
    return ConfigurationError(str(error), found=error.found, expected=error.expected, remedy=error.remedy)


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    """Convert the driver's errors of an unusable database to StateUnavailableError; pass programming errors on."""
    try:
        yield
    except (database_errors.OperationalError, database_errors.InterfaceError, database_errors.TimeoutError) as error:
        raise _unavailable(engine, error) from error
    except (engine.dialect.loaded_dbapi.OperationalError, engine.dialect.loaded_dbapi.InterfaceError) as error:
        raise _unavailable(engine, error) from error  # rows that are read from the driver directly
    except database_errors.DatabaseError as error:
        damaged = type(error.orig) is sqlite3.DatabaseError
        if damaged or getattr(error.orig, "sqlstate", None) in (READ_ONLY_TRANSACTION, NO_PRIVILEGE):
            raise _unavailable(engine, error) from error
        raise


def _unavailable(engine: Engine, error: Exception) -> StateUnavailableError:
    """Return the error with cause and remedy for a driver's error."""
    text = str(getattr(error, "orig", None) or error).strip()
    cause = " ".join(text.split())  # psycopg breaks lines
    name = engine.url.render_as_string()
    expected = "a database that answers"
    if getattr(getattr(error, "orig", None), "sqlstate", None) == NO_PRIVILEGE:
        cause, expected = text.partition("\n")[0], "a role that may do this"
        remedy = "Run `candor state migrate` with the role that owns the tables; grant the other one what it needs."
    elif engine.dialect.name == "postgresql":
        remedy = "Start PostgreSQL, or check the state URL's host, name, user and password."
    elif "malformed" in cause or "not a database" in cause:
        remedy = "The file is damaged. Restore it from a backup, or move it away to start with an empty state."
    elif "readonly" in cause or "unable to open" in cause:
        remedy = f"Grant user {os.getuid()} write access to the file and its folder. Check the disk for errors."
    elif "full" in cause or _no_room(engine):
        remedy = "Free disk space in the state folder."
    elif "locked" in cause:
        remedy = "Close the other program that writes to the file."
    else:
        remedy = "Check the disk of the state folder."
    said = cause if cause.endswith((".", "?")) else f"{cause}."
    found = StateUnavailableError(
        f"The state database {name} cannot be used: {said}", found=cause, expected=expected, remedy=remedy
    )
    if engine.dialect.name == "postgresql":  # its causes name host, port and user
        told = "The state database cannot be used."
        found.public = StateUnavailableError(told, expected=expected, remedy=remedy)
    else:
        told = f"The state database cannot be used: {said}"
        found.public = StateUnavailableError(told, found=cause, expected=expected, remedy=remedy)
    return found


def _no_room(engine: Engine) -> bool:
    """Return whether the disk is too full for SQLite's temporary files, which it reports as an I/O error."""
    with suppress(OSError):
        return sqlite.disk_of(Path(engine.url.database or "")).free < _FILES_BESIDE_BYTES
    return False
