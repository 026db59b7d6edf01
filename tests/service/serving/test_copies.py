"""Copies of remote bundles: old ones go, those that any service needs stay."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from service.serving.copies import Copies

DAY_S = 86_400


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return copy(tmp_path, "old", days=31)


def copy(root: Path, remote: str, *, days: float, version: str = "1") -> Path:
    path = root / remote / "digits" / version
    path.mkdir(parents=True)
    (path / "manifest.json").touch()
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def test_only_copies_that_nobody_needs_are_removed(tmp_path: Path, old: Path) -> None:
    young, needed = copy(tmp_path, "young", days=29), copy(tmp_path, "needed", days=99)
    leftover = copy(tmp_path, "young", days=31, version=".unfinished-2")
    other = copy(tmp_path, "young", days=31, version="notes")
    Copies(tmp_path, 30).prune({needed, tmp_path / "needed" / "digits" / "7"})
    assert [path.exists() for path in (old, leftover, young, needed, other)] == [False, False, True, True, True]
    Copies(tmp_path, 30).prune(())  # of another service: the copy that the first one needs is marked
    assert needed.exists()


def test_a_copy_that_is_read_or_replaced_stays(tmp_path: Path, old: Path) -> None:
    copies = Copies(tmp_path, 30)
    with copies.reading(old):
        os.utime(old, (0, 0))
        copies.prune(())
        assert old.exists()
    descriptor = os.open(old.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as a transfer does
    copies.prune(())
    assert old.exists()
    os.close(descriptor)
    copies.prune(())
    assert not old.exists()
    assert list(old.parent.iterdir()) == []


def test_reading_marks_a_copy(tmp_path: Path, old: Path) -> None:
    copies = Copies(tmp_path, 30)
    with copies.reading(old), copies.reading(old.with_name("2")):
        pass
    copies.prune(())
    assert old.exists()
