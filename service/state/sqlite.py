"""How a SQLite file is opened: folder, permissions, durability, and what is said when that fails."""

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
# The log writes pages all over the index of references: these two let it write each of them less often.
CHECKPOINT_PAGES = 8_000
CACHE_KIB = 8 << 10


def file_of(url: URL) -> Path:
    """Return the database file that a URL names.

    Raises:
        ConfigurationError: The URL names no file.
    """
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigurationError(
            "State must survive a restart, so SQLite needs a plain file.",
            where="CANDOR_DATABASE_URL",
            found=url.render_as_string(),
            expected="sqlite:////absolute/path/state.db",
        )
    return Path(url.database).resolve()


def prepare(file: Path) -> None:
    """Make the folder and an empty, private file, durably, where they are missing.

    Raises:
        ConfigurationError: The folder or the file cannot be made or written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        remedies = {
            errno.EROFS: f"Mount the disk of {file.parent} for writing",
            errno.ENOSPC: f"Make room on the disk of {file.parent}",
        }
        remedy = remedies.get(error.errno or 0, f"Give user {os.getuid()} write access to {file.parent}")
        raise ConfigurationError(
            f"The state file {file} cannot be opened for writing: {error.strerror}.",
            found=error.strerror,
            expected="a file in a folder that this user can write to",
            remedy=f"{remedy}, or choose another state folder.",
        ) from error


class Disk(NamedTuple):
    """Bytes on the disk that holds the state.

    Attributes:
        used: Of the database and its write-ahead log.
        free: That this user may still write.
    """

    used: int
    free: int


def disk_of(file: Path) -> Disk:
    """Return what a database takes of its disk, and what is left there."""
    parts = (file, file.with_name(f"{file.name}-wal"))
    return Disk(sum(part.stat().st_size for part in parts if part.exists()), shutil.disk_usage(file.parent).free)


def make_engine(file: Path, *, readonly: bool) -> Engine:
    """Return an engine whose connections commit durably and begin as their transaction needs.

    A connection with the execution option `write` takes SQLite's write lock when it begins, so that no transaction
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
                    f"The file system of {file} does not carry SQLite's write-ahead log.",
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
