"""Training on images that stay in their files: the same as from memory, exact after an interruption, whole groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle
from tests.training.data.test_image_shards import as_parquet, as_tar, png
from training import TrainConfig, checkpoint, loop, train_bundle
from training.cli import app
from training.trained import Trained, learn

SMALL = TrainConfig(
    dataset="image_shards",
    model="lenet5",
    epochs=2,
    batch_size=5,
    validation_rows=6,
    reference_rows=12,
    crop=1,
    flip=True,
    erasing=0.5,
    accumulation=2,
)


def shards(folder: Path, pattern: str, **settings: Any) -> TrainConfig:
    return replace(SMALL, data=folder, data_settings={"files": pattern, "buffer": 8, **settings})


def weights(trained: Trained) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in trained.module.state_dict().values()]


def test_a_lazy_folder_gives_the_network_of_one_in_memory(tmp_path: Path) -> None:
    for row in range(40):
        path = tmp_path / ["cat", "dog"][row % 2] / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(row))
    config = replace(SMALL, dataset="image_folder", data=tmp_path, sampling="balanced")
    eager, lazy = (learn(replace(config, data_settings=each)) for each in ({}, {"lazy": True, "decoders": 3}))
    assert weights(eager) == weights(lazy)
    assert np.array_equal(eager.scored(eager.parts.certify).logits, lazy.scored(lazy.parts.certify).logits)
    assert eager.parts.sizes_and_digests() == lazy.parts.sizes_and_digests()


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_a_run_that_was_killed_within_an_epoch_goes_on_exactly(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (as_tar if kind == "tar" else as_parquet)(tmp_path)
    config = shards(tmp_path, f"*.{kind}")
    straight = learn(config)
    monkeypatch.setattr(loop, "SAVED_EVERY_S", 0.0)  # after every step
    keep, steps, real = tmp_path / "checkpoint.pt", 0, checkpoint.write

    def killed(*arguments: Any) -> None:
        nonlocal steps
        steps += 1
        real(*arguments)
        if steps in (2, 6):  # of 5 in an epoch
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            learn(config, keep=keep)
    # The number of decoders may change, the order may not.
    resumed = learn(shards(tmp_path, f"*.{kind}", decoders=1), keep=keep)
    assert steps == 10  # none was taken twice
    assert weights(resumed) == weights(straight)
    assert weights(learn(replace(config, seed=1))) != weights(straight)
    assert weights(learn(shards(tmp_path, f"*.{kind}", buffer=0))) != weights(straight)


def test_no_two_parts_share_a_group(tmp_path: Path) -> None:
    as_tar(tmp_path)
    config = replace(
        shards(tmp_path, "*.tar", group="patient"), reference_rows=20, fit_share=0.4, certify_share=0.3, test_rows=5
    )
    done = train_bundle(replace(config, name="mine"), tmp_path / "out", allow_poor=True)
    data, parts = config.load()
    assert data.groups is not None
    held = [parts.train, parts.validation, parts.fit, parts.certify, parts.gate, parts.feedback, parts.test]
    groups = [set(data.groups[rows].tolist()) for rows in held]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 8
    assert all(len(rows) % 5 == 0 and (len(rows) or rows is parts.feedback) for rows in held)
    reference = bundle.verify(done).reference
    for part, rows in (("fit", parts.fit), ("certify", parts.certify), ("gate", parts.gate)):
        assert np.array_equal(getattr(reference, part).group, data.groups[rows])


def test_progress_is_told_within_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training import console, progress

    as_tar(tmp_path)
    monkeypatch.setattr(console, "_BETWEEN_STEPS_S", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN_LINES_S", 0.0)
    typed = ["train", "--out", str(tmp_path / "out"), "--dataset", "image_shards", "--no-log", "--allow-poor"]
    typed += ["--data-setting", f"files={tmp_path}/*.tar", "--epochs", "1", "--reference-rows", "12"]
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 0, done.output
    for line in ("Reading: 4 of 4 shards", "Decoding: 0 of 40 images", "epoch 1 of 1, step 1 of 1"):
        assert line in done.stderr
