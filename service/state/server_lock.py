"""The lock that refuses a second server on the same SQLite file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from service.errors import ConfigurationError


class ServerLock:
    """An exclusive lock on a file beside the database, held until `release` or the end of the process.

    The kernel releases the lock when its process ends. The file stays; its content is for people.

    Args:
        database: The SQLite file; ".lock" is appended for the lock file.

    Raises:
        ConfigurationError: Another server holds the lock, or the lock file cannot be created.
    """

    def __init__(self, database: Path) -> None:
        self.path = lock_file(database)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The lock file {self.path} cannot be opened: {error.strerror}.",
                found=error.strerror,
                expected="a folder that this user can write to",
                remedy=f"Grant user {os.getuid()} write access to {self.path.parent}, or choose another state folder.",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise ConfigurationError(
                f"Another server (pid {holder}) is using {database}.",
                found=f"{database}, held by pid {holder}",
                expected="one server per SQLite file",
                remedy=f"Stop process {holder}, choose another state folder, or use PostgreSQL for several replicas.",
            ) from error
        with contextlib.suppress(OSError):  # the lock holds even if a full disk cannot store the pid
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def fileno(self) -> int:
        """Return the open file; processes that inherit it hold the lock too, until the last one ends."""
        return self._file

    def release(self) -> None:
        """Release the file for another server."""
        os.close(self._file)


def lock_file(database: Path) -> Path:
    """Return the lock file of a SQLite file."""
    return database.with_name(database.name + ".lock")
