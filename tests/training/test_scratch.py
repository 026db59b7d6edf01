"""Arrays as large as a data set, in memory and in temporary files."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from training import DataError, scratch


def mapped(folder: Path) -> int:
    """Return how many files of a folder this process has mapped."""
    return Path("/proc/self/maps").read_text().count(str(folder))


@pytest.mark.parametrize("large", [0, 40, scratch.LARGE])
def test_rows_are_the_same_in_a_file(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(scratch, "LARGE", large)
    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    growing = scratch.Growing((3,), np.float32)
    for start in range(0, 10, 4):
        growing.add(rows[start : start + 4])
    found = growing.array()
    assert len(growing) == 10
    assert scratch.in_file(found) == (large < rows.nbytes)
    assert not scratch.in_file(rows)
    np.testing.assert_array_equal(found, rows)
    order = np.array([9, 0, 3, 3, 1])
    np.testing.assert_array_equal(scratch.taken(found, order), rows[order])
    np.testing.assert_array_equal(scratch.changed(found, lambda some: some * 2), rows * 2)
    np.testing.assert_array_equal(found, rows)
    assert sum(len(found[part]) for part in scratch.chunks(found)) == 10


def test_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LARGE", 0)
    assert scratch.Growing((3,), np.float32).array().shape == (0, 3)
    assert scratch.empty((0, 3), np.float32).shape == (0, 3)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux")
def test_a_file_has_no_name_and_goes_with_the_array(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    array = scratch.empty((1000, 10), np.float64)
    array[:] = 1
    assert mapped(tmp_path) == 1
    assert not any(tmp_path.iterdir())
    del array
    gc.collect()
    assert mapped(tmp_path) == 0


def test_a_folder_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    growing = scratch.Growing((), np.uint8)
    for attempt in (lambda: scratch.empty((3,), np.uint8), lambda: growing.add(np.zeros(3, np.uint8))):
        with pytest.raises(DataError, match=r"TMPDIR is .*none, expected a folder that can be written"):
            attempt()
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"cannot be written in .*gone: No such file or directory\.$"):
        scratch.empty((3,), np.uint8)


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError, match=r"No space left on device\. Free disk space there, or set TMPDIR"):
        scratch.empty((1000, 10), np.float64)
