"""Temporary folder of an upload: its body and its checked columns."""

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
    """The folder, locked by the kernel while the upload lives, and the body in it.

    Args:
        folder: Parent folder, created if missing.

    Attributes:
        path: The folder.
        bytes: Bytes written.

    Raises:
        UnavailableError: The folder is not writable.
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
        """File of the body."""
        return self.path / _BODY

    @property
    def sha256(self) -> str:
        """Hex digest of the body written so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        """Append to the body.

        Raises:
            UnavailableError: Writing failed.
        """
        rest = memoryview(data)
        try:
            while rest:  # the last write before the disk is full takes a part
                rest = rest[self._stream.write(rest) :]
        except OSError as error:
            raise cannot_write(self.path.parent, error) from error
        self._hash.update(data)
        self.bytes += len(data)

    def column(self, name: str) -> Path:
        """Return the file of a checked column."""
        return self.path / f"{name}.column"

    def remove(self) -> None:
        """Remove the folder with its content."""
        self._stream.close()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(folder: Path) -> int:
    """Remove the folders of uploads whose process has died. Return their number."""
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
    """Return the error for an upload that cannot be written to disk."""
    return UnavailableError(
        f"The upload cannot be written to disk: {error.strerror}.",
        where="CANDOR_UPLOADS",
        found=error.strerror,
        expected="a folder with room that the service may write to",
        remedy=f"Free disk space in {folder}, or grant user {os.getuid()} write access.",
    )
