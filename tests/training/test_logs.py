"""A run's log: one line an epoch, whatever happened in between, and the same for TensorBoard."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from training.epochs import Epoch, epoch_from
from training.evaluate import Evaluation
from training.logs import JSON_LINES, log_to, read_log

EPOCH = Epoch(1, 3, 0.5, 0.8, 1.25, 0.01, Evaluation(0.9, 0.3, 0.05, 1.5, 0.02, 0.01, 0.85, 0.95, 0.6, 0.4))


def test_every_epoch_is_a_line_that_reads_back(tmp_path: Path) -> None:
    epochs = [replace(EPOCH, number=number) for number in (1, 2, 3)]
    with log_to(tmp_path / "run") as log:
        for epoch in epochs:
            log(epoch)
            assert len(read_log(tmp_path / "run" / JSON_LINES)) == epoch.number  # at once, not at the end
    assert [epoch_from(document) for document in read_log(tmp_path / "run" / JSON_LINES)] == epochs


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    broken = replace(EPOCH, validation=Evaluation(1.0, 0.1, 0.0, 1.0, 0.0, 0.0, float("nan")))
    with log_to(tmp_path) as log:
        log(broken)
    (line,) = (tmp_path / JSON_LINES).read_text().splitlines()
    document = json.loads(line, parse_constant=pytest.fail)
    assert document["validation"]["refinement_auroc"] is None
    restored = epoch_from(document).validation
    assert restored is not None
    assert math.isnan(restored.refinement_auroc)
    assert math.isnan(restored.auroc)


def test_a_run_that_goes_on_has_one_log(tmp_path: Path) -> None:
    with log_to(tmp_path) as log:
        log(EPOCH)
        log(replace(EPOCH, number=2))
    with log_to(tmp_path) as log:
        log(replace(EPOCH, number=2, loss=9.0))  # from a checkpoint of the first epoch: it is repeated, not news
        log(replace(EPOCH, number=3))
    assert [(found["number"], found["loss"]) for found in read_log(tmp_path / JSON_LINES)] == [
        (1, 0.5),
        (2, 0.5),
        (3, 0.5),
    ]


def test_a_line_that_was_cut_short_is_written_anew(tmp_path: Path) -> None:
    with log_to(tmp_path) as log:
        log(EPOCH)
        log(replace(EPOCH, number=2))
    path = tmp_path / JSON_LINES
    path.write_text(path.read_text()[:-20])
    with log_to(tmp_path) as log:
        log(replace(EPOCH, number=2, loss=0.4))
    assert [(found["number"], found["loss"]) for found in read_log(path)] == [(1, 0.5), (2, 0.4)]


def test_tensorboard_gets_what_the_lines_say(tmp_path: Path) -> None:
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with log_to(tmp_path) as log:
        log(EPOCH)
        log(replace(EPOCH, number=2, loss=0.25, validation=None))
    events = board.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.5), (2, 0.25)]
    (nll,) = events.Scalars("validation/nll")
    assert nll.value == pytest.approx(0.3)
    assert len(events.Tags()["scalars"]) == 4 + 10
