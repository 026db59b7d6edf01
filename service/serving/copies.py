"""Copies of remote bundles in a folder that several services may share: marked while needed, removed when old."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

logger = structlog.get_logger(__name__)

_DAY_S = 86_400
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_VERSION = re.compile(r"(?:\.unfinished-)?([1-9][0-9]{0,8})")


class Copies:
    """The copies of all remote folders, `<folder>/<remote>/<model>/<version>/`.

    The time of a copy's folder is its mark: when a service last needed it. A copy is removed once no service has marked
    it for some days.

    Args:
        folder: The folder.
        days: Days after which a copy without a new mark is removed.
    """

    def __init__(self, folder: Path, days: float) -> None:
        self._folder = folder
        self._days = days

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Mark a copy, if it is there, and let no service remove it meanwhile."""
        with _locked(path, fcntl.LOCK_SH):
            _mark(path)
            yield

    def prune(self, needed: Collection[Path]) -> None:
        """Mark the copies that this service needs, and remove those that no service has marked for the set days."""
        for path in needed:
            _mark(path)
        oldest = time.time() - self._days * _DAY_S
        for path in sorted(self._folder.glob("*/*/*")):
            if path in needed or (version := _VERSION.fullmatch(path.name)) is None or not _older(path, oldest):
                continue
            # The lock of the model's folder is that of a transfer, which replaces copies.
            with _locked(path.parent, _NOW) as alone, _locked(path, _NOW) as unread:
                if not (alone and unread and _older(path, oldest)):
                    continue
                unfinished = path.with_name(f".unfinished-{version[1]}")
                if path != unfinished:
                    shutil.rmtree(unfinished, ignore_errors=True)
                    path.rename(unfinished)
                shutil.rmtree(unfinished, ignore_errors=True)
            logger.info("old copy of a bundle removed", path=str(path), days=self._days)


@contextmanager
def _locked(folder: Path, operation: int) -> Iterator[bool]:
    """Hold a lock on a folder; yields whether it is held, which it is not where the folder is missing or busy."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        held = True
        try:
            fcntl.flock(descriptor, operation)
        except OSError:  # busy, or a file system without locks
            held = False
        yield held
    finally:
        os.close(descriptor)


def _mark(path: Path) -> None:
    with contextlib.suppress(OSError):  # missing, or read-only and never removed
        os.utime(path)


def _older(path: Path, oldest: float) -> bool:
    try:
        return path.is_dir() and path.stat().st_mtime < oldest
    except OSError:
        return False
