"""`candor-train search`: what was tuned is what is found, and an interruption costs one trial."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy.exc import IntegrityError
from typer.testing import CliRunner

import bundle
from tests.service.conftest import new_postgresql
from training import ConfigurationError, DivergedError, TrainConfig, search
from training.cli import app
from training.console import INTERRUPTED, USAGE
from training.epochs import Epoch, OnEpoch
from training.search import Knob, Search, Trial, configured, parse_knob, run
from training.trained import learn

BASE = TrainConfig(epochs=2, train_rows=60, reference_rows=60, validation_rows=80)
KNOBS = (parse_knob("learning_rate=1e-4..0.05:log"), parse_knob("batch_size=16..64"))
TYPED = ["--epochs", "2", "--train-rows", "60", "--reference-rows", "60", "--validation-rows", "80"]


def following(_: int, __: TrainConfig) -> Any:
    return nullcontext(lambda _: None)


def ran(given: Search, follow: Callable[[int, TrainConfig], Any] = following) -> tuple[list[Trial], list[Trial]]:
    """Return the trials of this call in order, and all of the storage, the best first."""
    here: list[Trial] = []
    found = run(given, follow, here.append)
    return here, found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """Four trials in one go."""
    storage = f"sqlite:///{tmp_path_factory.mktemp('search')}/search.db"
    return ran(Search(BASE, KNOBS, storage, 4, "digits"))[0]


def test_a_value_is_that_of_the_network_with_these_settings(whole: list[Trial]) -> None:
    trial = whole[2]
    outcome = learn(configured(BASE, trial.settings)).outcome
    assert outcome.epochs[-1].validation is not None
    assert trial.value == pytest.approx(outcome.epochs[-1].validation.nll, rel=1e-6)
    assert len({each.settings["learning_rate"] for each in whole}) == 4
    assert all(isinstance(each.settings["batch_size"], int) for each in whole)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_interrupted_search_goes_on_where_it_stopped(kind: str, whole: list[Trial], tmp_path: Path) -> None:
    addresses = new_postgresql() if kind == "postgresql" else iter([f"sqlite:///{tmp_path}/search.db"])
    with contextmanager(lambda: addresses)() if kind == "postgresql" else nullcontext(next(addresses)) as storage:
        given = Search(BASE, KNOBS, storage, 4, "digits")

        @contextmanager
        def interrupted(number: int, config: TrainConfig) -> Iterator[OnEpoch]:
            def on_epoch(epoch: Epoch) -> None:
                if number == 2:
                    raise KeyboardInterrupt

            yield on_epoch

        here: list[Trial] = []
        with pytest.raises(KeyboardInterrupt):
            run(given, interrupted, here.append)
        done = [trial for trial in here if trial.value is not None]
        assert [trial.settings for trial in done] == [trial.settings for trial in whole[:2]]
        again, found = ran(given)
        assert again[0].settings == whole[2].settings
        assert again[0].value == pytest.approx(whole[2].value)
        assert len(again) == 2
        assert len(found) == 4
        assert found[0].value == min(trial.value for trial in found if trial.value is not None)
        assert ran(given)[0] == []
        with pytest.raises(ConfigurationError, match="epochs was 2 and is 3; give this one another --study"):
            ran(replace(given, base=replace(BASE, epochs=3)))


def test_a_hopeless_trial_stops_and_one_that_diverges_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_START_UP", 1)
    knob = Knob("learning_rate", (0.003, 0.004, 0.005, 1e-7, 1e6))
    base = replace(BASE, epochs=5, batch_size=8)
    epochs: dict[int, int] = {}

    @contextmanager
    def counted(number: int, _: TrainConfig) -> Iterator[OnEpoch]:
        yield lambda epoch: epochs.update({number: epoch.number})

    given = Search(base, [knob], f"sqlite:///{tmp_path}/search.db", 10, "digits")
    trials, found = ran(given, counted)
    by_step = {step: [each for each in trials if each.settings["learning_rate"] == step] for step in knob.choices}
    assert all(by_step.values()), "ten draws hit each of the five choices"
    assert all("in epoch" in each.why or "after epoch" in each.why for each in by_step[1e6])
    assert all(each.value is None for each in by_step[1e6])
    stopped = [each for each in by_step[1e-7] if each.value is None]
    assert stopped
    assert all("worse than half" in each.why and epochs[each.number] < 5 for each in stopped)
    assert found[0].settings["learning_rate"] in (0.003, 0.004, 0.005)
    with pytest.raises(DivergedError, match="no trial came to its end"):
        ran(replace(given, knobs=[Knob("learning_rate", (1e6,))], trials=1, name="bad"))


def test_the_command_prints_a_command_that_gives_the_same_network(tmp_path: Path) -> None:
    storage = ["--storage", f"sqlite:///{tmp_path}/search.db", "--study", "mine"]
    tune = ["--tune", "loss=focal", "--tune", "coefficients.gamma=1,2.5", "--tune", "dropout=0.1..0.3"]
    typed = ["search", *storage, *tune, *TYPED, "--trials", "2", "--out", str(tmp_path / "out"), "--name", "mine"]
    done = CliRunner().invoke(app, [*typed, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    best = document["trials"][0]
    assert len(document["trials"]) == 2
    assert best["nll"] <= document["trials"][1]["nll"]
    made = bundle.verify(tmp_path / "out" / "mine" / "1")
    assert made.manifest.training is not None
    assert made.manifest.training.loss == bundle.Loss(
        name="focal", coefficients={"gamma": best["settings"]["coefficients.gamma"]}
    )
    command = shlex.split(document["command"])
    again = CliRunner().invoke(app, [*command[1:3], str(tmp_path / "again"), *command[4:], "--no-log", "--json"])
    assert again.exit_code == 0, again.output
    assert bundle.verify(tmp_path / "again" / "mine" / "1").model_bytes == made.model_bytes


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["--tune", "learning=1..2"], "'learning' cannot be tuned, expected one of: .*learning_rate"),
        (["--tune", "seed=1..2"], "'seed' cannot be tuned"),
        (["--tune", "dropout"], "names no values"),
        (["--tune", "dropout=0.5..0.1"], "ascending order"),
        (["--tune", "dropout=0..0.1:log"], "begins above 0"),
        (["--tune", "dropout=0..1.5", "--validation-rows", "0"], "leave no validation rows"),
        (["--tune", "dropout=0..0.1", "--tune", "dropout=0.2"], "a setting has two --tune, expected one"),
        (["--tune", "dropout=0..0.1", "--objective", "loss"], "objective is 'loss', expected one of: nll"),
        (["--tune", "dropout=0..0.1", "--storage", "mysql://u:hush@h/d"], "storage is 'mysql://…@h/d'"),
        (["--tune", "dropout=0..0.1", "--storage", "sqlite:////no/such/folder/x.db"], "unable to open database file"),
        (["--tune", "dropout=0..0.1", "--track", "wandb:x"], "track is 'wandb:x', expected mlflow:URI"),
    ],
)
def test_what_cannot_work_is_refused(typed: list[str], why: str, tmp_path: Path) -> None:
    storage = ["--storage", f"sqlite:///{tmp_path}/search.db"]
    done = CliRunner().invoke(app, ["search", *storage, "--trials", "1", *TYPED, *typed])
    assert done.exit_code == USAGE, done.output
    assert "hush" not in done.stderr
    with pytest.raises(ConfigurationError, match=why):
        raise ConfigurationError(done.stderr)


def test_a_search_may_begin_again_after_refused_values(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/search.db"
    with pytest.raises(ConfigurationError, match="unknown loss 'oops'"):
        ran(Search(BASE, [parse_knob("loss=oops")], storage, 1, "digits"))
    assert len(ran(Search(BASE, [parse_knob("loss=focal")], storage, 1, "digits", "accuracy"))[1]) == 1


def test_processes_may_begin_a_database_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, failures = optuna.create_study, [IntegrityError("CREATE TABLE", None, Exception("already exists"))]

    def beaten(**settings: Any) -> Any:
        if failures:
            raise failures.pop()
        return make(**settings)

    monkeypatch.setattr(search, "_AGAIN_S", 0)
    monkeypatch.setattr(optuna, "create_study", beaten)
    assert len(ran(Search(BASE, KNOBS, f"sqlite:///{tmp_path}/search.db", 1, "digits"))[1]) == 1


def test_ctrl_c_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "_reporting", lambda *_: interrupted)
    storage = f"sqlite:///{tmp_path}/search.db"
    done = CliRunner().invoke(app, ["search", "--storage", storage, *TYPED, "--tune", "dropout=0..0.1"])
    assert done.exit_code == INTERRUPTED
    assert "the same command continues the search" in done.stderr
