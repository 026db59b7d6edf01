"""Grids: cells run once, go on after an interruption, and are shared between workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from studies.cell import Cell
from studies.claims import LostClaimError, claim
from studies.grid import Grid, work
from studies.registry import STUDIES
from studies.results import RESULT, RESULTS, read_result, read_results, write_results
from studies.run_cell import CHECKPOINT, run_cell
from studies.study import Scale
from studies.workers import run
from training import TrainConfig
from training.epochs import Epoch, OnEpoch
from training.errors import ConfigurationError

TINY = TrainConfig(epochs=3, train_rows=200, reference_rows=200, validation_rows=50)


def tiny(seed: int = 0, **settings: Any) -> Cell:
    return Cell("tiny", f"cell@{seed}", replace(TINY, seed=seed, **settings), {"validation_sizes": [50, 100]})


def silent(*_: object) -> None:
    """Hears nothing."""


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    epochs = [{**epoch, "seconds": 0.0} for epoch in result["epochs"]]
    return {**result, "epochs": epochs, "seconds": None}


def interrupted_after(epochs: int) -> OnEpoch:
    def on_epoch(epoch: Epoch) -> None:
        if epoch.number == epochs:
            raise KeyboardInterrupt

    return on_epoch


def test_a_cell_goes_on_after_an_interruption_to_the_same_result(tmp_path: Path) -> None:
    cell = tiny()
    straight = run_cell(cell, tmp_path / "straight", None, silent)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, tmp_path / "broken", None, interrupted_after(2))
    folder = cell.folder(tmp_path / "broken")
    assert (folder / CHECKPOINT).exists()
    assert not (folder / RESULT).exists()
    seen: list[int] = []
    again = run_cell(cell, tmp_path / "broken", None, lambda epoch: seen.append(epoch.number))
    assert seen == [3]
    assert without_time(again) == without_time(straight)
    assert not (folder / CHECKPOINT).exists()
    logs = [(tmp_path / side / "tiny" / cell.key / "epochs.jsonl").read_text() for side in ("straight", "broken")]
    assert [line.count("\n") for line in logs] == [3, 3]


def test_an_interruption_gives_the_cell_back_at_once(tmp_path: Path) -> None:
    def tell(event: str, *_: str) -> None:
        if event == "epoch":
            raise KeyboardInterrupt

    grid = Grid([tiny()], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        work(grid, tell)
    assert grid.state(grid.cells[0]) == "begun"
    assert work(grid, silent) == 1
    assert grid.state(grid.cells[0]) == "done"


def test_a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    grid = Grid([tiny()], tmp_path)
    assert work(grid, silent) == 1
    before = (grid.cells[0].folder(tmp_path) / RESULT).read_bytes()
    assert work(grid, silent) == 0
    assert (grid.cells[0].folder(tmp_path) / RESULT).read_bytes() == before


def test_two_workers_share_a_grid(tmp_path: Path) -> None:
    grid = Grid([tiny(seed) for seed in range(4)], tmp_path)
    events: list[tuple[str, str]] = []
    assert run(grid, 2, lambda event, key, _: events.append((event, key)))
    done = [key for event, key in events if event == "done"]
    assert sorted(done) == [cell.key for cell in grid.cells]  # each once
    assert sum(event == "epoch" for event, _ in events) == 4 * TINY.epochs  # and no epoch twice
    assert not list(tmp_path.rglob("claim.*"))
    assert not list(tmp_path.rglob("*.unfinished"))


# As a machine that loses its power.
TAKE_AND_DIE = """
import os, sys
from pathlib import Path
from studies.claims import claim
with claim(Path(sys.argv[1])):
    os._exit(0)
"""


def test_a_claim_of_a_process_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TAKE_AND_DIE, tmp_path], check=True)
    with claim(tmp_path) as taken:
        assert taken is not None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": "HOST", "process": "1"}'])
def test_a_claim_that_cannot_be_read_is_not_taken_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "claim.1").write_text(content.replace("HOST", socket.gethostname()))
    with claim(tmp_path) as taken:
        assert taken is None


def test_a_silent_worker_of_another_machine_is_waited_for(tmp_path: Path) -> None:
    grid = Grid([tiny()], tmp_path, stale_s=0.5, heartbeat_s=0.1)
    folder = grid.cells[0].folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "claim.1").write_text(json.dumps({"host": "elsewhere", "process": 1, "id": "x"}))
    os.utime(folder / "claim.1", (time.time() - 0.4,) * 2)
    assert work(grid, silent) == 1


def test_a_stale_claim_is_taken_over_and_a_live_one_is_not(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TAKE_AND_DIE, tmp_path], check=True)
    owner = json.loads((tmp_path / "claim.1").read_text())
    (tmp_path / "claim.1").write_text(json.dumps(owner | {"host": "elsewhere"}))
    with claim(tmp_path) as taken:
        assert taken is None  # it may still be alive
    os.utime(tmp_path / "claim.1", (1e9, 1e9))
    with claim(tmp_path) as taken, claim(tmp_path) as second:
        assert taken is not None
        assert second is None


def test_an_owner_that_slept_sees_that_it_lost_its_cell(tmp_path: Path) -> None:
    with claim(tmp_path, heartbeat_s=1e6) as sleeper:
        assert sleeper is not None
        sleeper.check()
        os.utime(tmp_path / "claim.1", (1e9, 1e9))
        with claim(tmp_path) as other:
            assert other is not None
            with pytest.raises(LostClaimError, match="another worker"):
                sleeper.check()


def test_a_stale_cell_of_a_grid_is_finished_by_another_worker(tmp_path: Path) -> None:
    grid = Grid([tiny()], tmp_path)
    folder = grid.cells[0].folder(tmp_path)
    folder.mkdir(parents=True)
    with claim(folder):
        assert work(grid, silent) == 0
    (folder / "claim.1").touch()
    assert work(grid, silent) == 0
    os.utime(folder / "claim.1", (1e9, 1e9))
    assert work(grid, silent) == 1


def test_a_failed_cell_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    bad = tiny(1, optimiser="sgd", learning_rate=1e6)
    grid = Grid([bad, tiny(0)], tmp_path)
    told: list[tuple[str, str]] = []
    assert work(grid, lambda event, key, _: told.append((event, key))) == 1
    assert ("failed", bad.key) in told
    assert [grid.state(cell) for cell in grid.cells] == ["failed", "done"]
    reason = json.loads((bad.folder(tmp_path) / "failure.json").read_text())
    assert reason["error"] == "DivergedError"
    assert "learning rate" in reason["reason"]
    grid.forget_failures()
    assert grid.state(bad) != "failed"


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path) -> None:
    work(Grid([tiny()], tmp_path), silent)
    with pytest.raises(ConfigurationError, match="epochs was 3 and is 4"):
        Grid([tiny(epochs=4)], tmp_path).check()
    Grid([tiny(data=tmp_path)], tmp_path).check()  # where the data lie does not matter


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema is 9"),
        (lambda text: text.replace('"ece":', '"was":'), r"test\.none\.ece is None"),
        (lambda text: "[]", "schema is 'list'"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path: Path, finished: Path, damage: Callable[[str], str], said: str) -> None:
    cell = tiny()
    path = cell.folder(tmp_path) / RESULT
    path.parent.mkdir(parents=True)
    path.write_text(damage(finished.read_text()))
    with pytest.raises(ConfigurationError, match=said) as error:
        read_result(cell, tmp_path)
    assert str(path) in str(error.value)
    assert "remove it" in str(error.value)


def test_finished_cells_are_taken_from_a_report(tmp_path: Path, finished: Path) -> None:
    result = json.loads(finished.read_text())
    write_results(tmp_path / "docs" / RESULTS, [result])
    grid = Grid([tiny(0), tiny(1)], tmp_path / "out")
    assert grid.take(read_results(tmp_path / "docs")) == 1
    assert [grid.state(cell) for cell in grid.cells] == ["done", "to do"]
    assert grid.results() == [result]
    assert grid.take(read_results(tmp_path / "docs")) == 0
    other = Grid([tiny(0, epochs=5)], tmp_path / "other")
    with pytest.raises(ConfigurationError, match="epochs was 3 and is 5"):
        other.take(read_results(tmp_path / "docs"))


def test_a_network_that_another_study_trained_alike_is_taken(tmp_path: Path, finished: Path) -> None:
    result = json.loads(finished.read_text())
    write_results(tmp_path / RESULTS, [result])
    config = tiny(0).config
    cells = [
        Cell("another", tiny(0).key, config),
        Cell("another", "called-otherwise", config),
        Cell("another", "measures-more", config, {"largest_logits": True}),
        Cell("another", "trained-otherwise", tiny(0, epochs=5).config),
    ]
    grid = Grid(cells, tmp_path / "out")
    assert grid.take(read_results(tmp_path)) == 2
    assert [grid.state(cell) for cell in cells] == ["done", "done", "to do", "to do"]
    for cell, taken in zip(cells, grid.results(), strict=False):
        assert taken == {**result, "cell": cell.document()}


def test_a_result_from_before_a_setting_is_still_the_cells(tmp_path: Path, finished: Path) -> None:
    """Settings that came later had their defaults; another value makes another cell."""
    result = json.loads(finished.read_text())
    for name in ("accumulation", "deterministic", "model_settings", "sampling"):
        del result["cell"]["config"][name]
    write_results(tmp_path / RESULTS, [result])
    assert Grid([tiny(0)], tmp_path / "out").take(read_results(tmp_path)) == 1
    other = Grid([tiny(0, accumulation=2)], tmp_path / "other")
    with pytest.raises(ConfigurationError, match="accumulation was 1 and is 2"):
        other.take(read_results(tmp_path))


def test_a_damaged_list_of_results_names_its_line(tmp_path: Path, finished: Path) -> None:
    line = json.dumps(json.loads(finished.read_text()))
    (tmp_path / RESULTS).write_text(f"{line}\n{line[:-9]}\n")
    with pytest.raises(ConfigurationError, match="line 2 is damaged"):
        read_results(tmp_path)


def test_the_logits_that_are_kept_give_the_metrics(finished: Path) -> None:
    """Accuracy, NLL, Brier score and ECE, computed anew from their definitions."""
    result = json.loads(finished.read_text())
    with np.load(finished.parent / "logits.npz") as arrays:
        logits, labels = arrays["test_logits"].astype(np.float64), arrays["test_labels"]
        assert len(arrays["learned"]) == result["rows"]["train"] == 200
        assert len(arrays["calibration_labels"]) == result["rows"]["calibration"] == 200
    for name, temperature in (("none", 1.0), ("temperature", result["temperature"])):
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        probabilities = powers / powers.sum(axis=1, keepdims=True)
        confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
        places = np.ceil(confidence * 15)
        gaps = [abs((confidence - right)[places == place].sum()) for place in range(16)]
        one_hot = np.eye(10)[labels]
        expected = {
            "accuracy": right.mean(),
            "nll": -np.log(probabilities[np.arange(len(labels)), labels]).mean(),
            "brier": ((probabilities - one_hot) ** 2).sum(axis=1).mean(),
            "ece": sum(gaps) / len(labels),
        }
        found = result["test"][name]
        assert {metric: found[metric] for metric in expected} == pytest.approx(expected, rel=1e-4)


def test_a_rerun_of_brents_search_agrees_with_ours(finished: Path) -> None:
    result = json.loads(finished.read_text())
    assert result["temperature_brent"] == pytest.approx(result["temperature"], rel=1e-3)


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_of_a_study_has_a_name_of_its_own(name: str, scale: Any, tmp_path: Path) -> None:
    cells = STUDIES[name].cells(scale, None)
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert all(cell.study == name for cell in cells)
    assert len(STUDIES[name].cells(scale, 1)) < len(cells) or scale == "full"
    Grid(cells, tmp_path).check()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a finished cell."""
    out = tmp_path_factory.mktemp("finished")
    run_cell(tiny(), out, None, silent)
    return tiny().folder(out) / RESULT
