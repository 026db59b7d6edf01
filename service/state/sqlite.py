"""Open a SQLite file: folder, permissions, durability, and errors."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event

from service.errors import ConfigurationError
from service.state.strict_json import strict_json

BUSY_TIMEOUT_S = 10
WAL_LIMIT_BYTES = 64 << 20
# The log writes pages all over the index of references; these two reduce repeated writes of a page.
CHECKPOINT_PAGES = 8_000
CACHE_KIB = 8 << 10


def file_of(url: URL) -> Path:
    """Return the database file of a URL.

    Raises:
        ConfigurationError: The URL does not name a file.
    """
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigurationError(
            "State must survive a restart, so SQLite requires a plain file.",
            where="CANDOR_DATABASE_URL",
            found=url.render_as_string(),
            expected="sqlite:////absolute/path/state.db",
        )
    return Path(url.database).resolve()


def prepare(file: Path) -> None:
    """Create the folder and an empty, private file durably if they are missing.

    Raises:
        ConfigurationError: The folder or the file cannot be created or written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Not if it exists: closing it would release the locks that SQLite holds on it in this process. Another process
        # would then take itself for the last one, and delete the write-ahead log that this process still uses.
        if not (file.is_file() and os.access(file, os.R_OK | os.W_OK)):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        remedies = {
            errno.EROFS: f"Mount the disk of {file.parent} for writing",
            errno.ENOSPC: f"Free disk space in {file.parent}",
        }
        remedy = remedies.get(error.errno or 0, f"Grant user {os.getuid()} write access to {file.parent}")
        raise ConfigurationError(
            f"The state file {file} cannot be opened for writing: {error.strerror}.",
            found=error.strerror,
            expected="a file in a folder that this user can write to",
            remedy=f"{remedy}, or choose another state folder.",
        ) from error


class Disk(NamedTuple):
    """Disk space of the state in bytes.

    Attributes:
        used: Size of the database and its write-ahead log.
        free: Space that this user can still use.
    """

    used: int
    free: int


def disk_of(file: Path) -> Disk:
    """Return used and free disk space of a database."""
    parts = (file, file.with_name(f"{file.name}-wal"))
    return Disk(sum(part.stat().st_size for part in parts if part.exists()), shutil.disk_usage(file.parent).free)


def make_engine(file: Path, *, readonly: bool) -> Engine:
    """Return an engine with durable commits.

    Connections with the execution option `write` take SQLite's write lock at their beginning, so that no transaction
    fails half-way because another one wrote first; all others read one snapshot.
    """
    options: dict[str, Any] = {"isolation_level": None, "timeout": BUSY_TIMEOUT_S}
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        connect_args=options,
        pool_timeout=BUSY_TIMEOUT_S,
        json_serializer=strict_json,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        if not readonly:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise ConfigurationError(
                    f"The file system of {file} does not support SQLite's write-ahead log.",
                    found=f"journal mode {mode}",
                    expected="journal mode wal",
                    remedy="Put the state on a local disk, or use PostgreSQL.",
                )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA query_only = {int(readonly)}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
