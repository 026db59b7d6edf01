"""Checkpoints: whole or absent, of one run, and nothing in them is run."""

from __future__ import annotations

import errno
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from training import ConfigurationError, checkpoint

RECIPE = {"epochs": 3, "milestones": (1, 2), "clip": None}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    state = {"weights": {"a": torch.arange(3.0)}, "best": None, "epochs": [{"loss": 0.5}]}
    path = tmp_path / "runs" / "checkpoint.pt"
    checkpoint.write(path, RECIPE, state)
    found = checkpoint.read(path, RECIPE)
    assert found is not None
    assert torch.equal(found["weights"]["a"], torch.arange(3.0))
    assert (found["best"], found["epochs"]) == (None, [{"loss": 0.5}])
    assert [entry.name for entry in path.parent.iterdir()] == ["checkpoint.pt"]


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path / "checkpoint.pt", RECIPE) is None


def test_one_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    checkpoint.write(path, RECIPE, {"epoch": 1})
    with pytest.raises((pickle.PicklingError, AttributeError)):
        checkpoint.write(path, RECIPE, {"epoch": lambda: 2})
    assert checkpoint.read(path, RECIPE) == {"epoch": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 20_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(checkpoint, "whole_file", lambda _: Full())
    with pytest.raises(OSError, match="No space left on device") as full:
        checkpoint.write(tmp_path / "checkpoint.pt", RECIPE, {"a": torch.zeros(10_000), "b": torch.ones(10_000)})
    assert "checkpoint.pt cannot be written" in str(full.value)


def test_every_difference_from_the_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    checkpoint.write(path, RECIPE, {})
    with pytest.raises(
        ConfigurationError, match=r"clip was None and is 1\.0; epochs was 3 and is 4; new was None and is 7"
    ):
        checkpoint.read(path, RECIPE | {"epochs": 4, "clip": 1.0, "new": 7})


class RanError(Exception):
    """Raised where a checkpoint's content is run."""


def run_it() -> None:
    raise RanError


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return run_it, ()


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    checkpoint.write(path, RECIPE, {"hostile": Hostile()})
    with pytest.raises(RanError):
        torch.load(path, weights_only=False)  # it would
    with pytest.raises(ConfigurationError, match="is not a valid checkpoint"):
        checkpoint.read(path, RECIPE)


def test_one_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"version": 99, "recipe": RECIPE, "state": {}}, path)
    with pytest.raises(ConfigurationError, match="of version 99, expected 3; remove it to start again"):
        checkpoint.read(path, RECIPE)
