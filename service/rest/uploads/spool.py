"""A folder on disk for one upload: what has come of it, and what its check made of that. It goes with the upload."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import structlog

from service.errors import UnavailableError

logger = structlog.get_logger(__name__)

_PREFIX: Final = "upload-"
_LOCK: Final = "lock"
_BODY: Final = "body"


class Spool:
    """The folder, locked through the kernel for as long as the upload lives, and the body that is written to it.

    Args:
        folder: Where such folders are; made where it is missing.

    Attributes:
        path: The folder.
        bytes: How many have been written.

    Raises:
        UnavailableError: The folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._stream = self.body.open("wb", buffering=0)
        except OSError as error:
            raise cannot_write(folder, error) from error
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def body(self) -> Path:
        """The file that the body is written to."""
        return self.path / _BODY

    @property
    def sha256(self) -> str:
        """Hex digest of what has been written."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        """Append to the body.

        Raises:
            UnavailableError: The disk does not take it.
        """
        try:
            self._stream.write(data)
        except OSError as error:
            raise cannot_write(self.path.parent, error) from error
        self._hash.update(data)
        self.bytes += len(data)

    def column(self, name: str) -> Path:
        """Return the file of one of the columns that the check makes: all rows, one after the other."""
        return self.path / f"{name}.column"

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        self._stream.close()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(folder: Path) -> int:
    """Remove what uploads left whose process has died; returns how many that were."""
    removed = 0
    for path in folder.glob(f"{_PREFIX}*") if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                removed += 1
            finally:
                os.close(lock)
    if removed:
        logger.info("removed what interrupted uploads left", folder=str(folder), uploads=removed)
    return removed


def cannot_write(folder: Path, error: OSError) -> UnavailableError:
    """Return what a client is told where an upload does not fit, or may not be written."""
    return UnavailableError(
        f"The upload cannot be written: {error.strerror}.",
        where="CANDOR_UPLOADS",
        found=error.strerror,
        expected="a folder with room that the service may write to",
        remedy=f"Make room in {folder}, or give user {os.getuid()} write access to it.",
    )
