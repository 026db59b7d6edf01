"""Copies of remote bundles in a folder that several services may share: marked while needed, removed when old."""

from __future__ import annotations

import contextlib
import fcntl
import math
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
_LEFT_S = 2.5 * 3600  # services mark what they need every hour
_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_VERSION = re.compile(r"(?:\.unfinished-)?([1-9][0-9]{0,8})")


class Copies:
    """The copies of all remote folders, `<folder>/<remote>/<model>/<version>/`.

    The time of a copy's folder is its mark: when a service last needed it. A copy is removed once no service has marked
    it for some days.

    Args:
        folder: The folder.
        days: Days after which a copy without a new mark is removed.
        most_bytes: Size of all copies above which those that no running service marks are removed before that, the
            oldest mark first; None for no bound.
    """

    def __init__(self, folder: Path, days: float, most_bytes: int | None = None) -> None:
        self._folder = folder
        self._days = days
        self._most_bytes = most_bytes

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Mark a copy, if it is there, and let no service remove it meanwhile."""
        with _locked(path, fcntl.LOCK_SH):
            _mark(path)
            yield

    def prune(self, needed: Collection[Path]) -> None:
        """Mark the copies that this service needs, and remove others: the old ones, and what is above the bound."""
        for path in needed:
            _mark(path)
        now = time.time()
        marks = {path: _mark_of(path) for path in self._folder.glob("*/*/*") if _VERSION.fullmatch(path.name)}
        sizes = {path: 0 if self._most_bytes is None else _size(path) for path in marks}
        total = sum(sizes.values())
        for path in sorted(marks.keys() - set(needed), key=lambda path: (marks[path], path)):
            above = self._most_bytes is not None and total > self._most_bytes
            oldest = now - (_LEFT_S if above else self._days * _DAY_S)
            if marks[path] < oldest and _removed(path, oldest):
                total -= sizes[path]
                logger.info("old copy of a bundle removed", path=str(path), days=round((now - marks[path]) / _DAY_S, 1))
        if self._most_bytes is not None and total > self._most_bytes:
            logger.warning(
                "copies of bundles exceed CANDOR_BUNDLE_CACHE_BYTES", found=total, expected=self._most_bytes,
                remedy="Raise it, or unload models: running services need these copies.",
            )  # fmt: skip


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


def _mark_of(path: Path) -> float:
    """Return the time of the last mark; a copy that is gone is as good as needed."""
    try:
        return path.stat().st_mtime if path.is_dir() else math.inf
    except OSError:
        return math.inf


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return 0


def _removed(path: Path, oldest: float) -> bool:
    """Remove a copy, unless it is being read or replaced, or has been marked since."""
    # The lock of the model's folder is that of a transfer, which replaces copies.
    with _locked(path.parent, _NOW) as alone, _locked(path, _NOW) as unread:
        if not (alone and unread and _mark_of(path) < oldest):
            return False
        unfinished = path.with_name(f".unfinished-{path.name.removeprefix('.unfinished-')}")
        if path != unfinished:
            shutil.rmtree(unfinished, ignore_errors=True)
            path.rename(unfinished)
        shutil.rmtree(unfinished, ignore_errors=True)
    return True
