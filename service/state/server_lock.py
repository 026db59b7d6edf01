"""The lock that keeps a second server off the same SQLite file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from service.errors import ConfigurationError


class ServerLock:
    """An exclusive lock on the file beside the database, held until `release` or the end of the process.

    The kernel drops the lock when its process dies, however it dies. The file stays; what it says is only for people.

    Args:
        database: The SQLite file; the lock file gets its name with ".lock" appended.

    Raises:
        ConfigurationError: Another server holds the lock, or the lock file cannot be made.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The lock file {self.path} cannot be opened: {error.strerror}.",
                found=error.strerror,
                expected="a folder that this user can write to",
                remedy=f"Give user {os.getuid()} write access to {self.path.parent}, or choose another state folder.",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise ConfigurationError(
                f"Another server (pid {holder}) is using {database}.",
                found=f"{database}, held by pid {holder}",
                expected="one server for each SQLite file",
                remedy=f"Stop process {holder}, choose another state folder, or use PostgreSQL for several replicas.",
            ) from error
        with contextlib.suppress(OSError):  # a full disk has no room to say who has it; it holds all the same
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let another server have the file."""
        os.close(self._file)
