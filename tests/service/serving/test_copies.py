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


def test_copies_above_the_bound_go_oldest_first_but_none_of_a_running_service(tmp_path: Path) -> None:
    ages = {"oldest": 9, "older": 5, "old": 2, "needed": 20, "elsewhere": 0.05}  # days; the last two are in use
    paths = {name: copy(tmp_path, name, days=days) for name, days in ages.items()}
    for name, path in paths.items():
        (path / "model.onnx").write_bytes(bytes(1_000))
        then = time.time() - ages[name] * DAY_S
        os.utime(path, (then, then))

    def left(most_bytes: int | None) -> set[str]:
        Copies(tmp_path, 30, most_bytes).prune({paths["needed"]})
        return {name for name, path in paths.items() if path.exists()}

    assert left(None) == left(5_000) == set(ages)
    assert left(4_500) == set(ages) - {"oldest"}
    assert left(1) == {"needed", "elsewhere"}
