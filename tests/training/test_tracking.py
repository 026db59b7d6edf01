"""`--track mlflow:URI`: a run there says what the bundle and the log say."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna import TrialPruned
from typer.testing import CliRunner

import bundle
from training import ConfigurationError, TrainConfig
from training.cli import app
from training.console import USAGE
from training.epochs import Epoch
from training.logs import read_log
from training.search import Search, _quiet, _study, ask, parse_knob, run
from training.search_console import Following
from training.tracking import end_killed, track_to

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow itself


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in files: a database's takes ten seconds to make."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file:{tmp_path}/mlruns"


def client(server: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

    return MlflowClient(tracking_uri=server)


def runs(server: str, experiment: str) -> list[Any]:
    there = client(server)
    return list(there.search_runs([there.get_experiment_by_name(experiment).experiment_id]))


def test_a_run_has_settings_epochs_and_the_bundle(server: str, tmp_path: Path) -> None:
    settings = ["--epochs", "2", "--train-rows", "60", "--reference-rows", "60", "--validation-rows", "40"]
    typed = [*settings, "--allow-poor", "--loss", "focal", "--coefficient", "gamma=2", "--log", str(tmp_path / "log")]
    done = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "out"), *typed, "--track", f"mlflow:{server}"])
    assert done.exit_code == 0, done.output
    made = bundle.verify(tmp_path / "out" / "digits" / "1")
    (run,) = runs(server, "digits")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "lenet5 focal 0")
    assert run.data.params["loss"] == "focal"
    assert json.loads(run.data.params["coefficients"]) == {"gamma": 2, "alpha": 0}  # the default of alpha too
    # What was left to the data and the machine is told as it was decided.
    resolved = {"model": "lenet5", "calibrator": "temperature", "device": "cpu", "reference_rows": "60", "epochs": "2"}
    assert {name: run.data.params[name] for name in resolved} == resolved
    assert int(run.data.params["threads"]) >= 1
    assert "data" not in run.data.params
    assert run.data.tags["candor.bundle"] == made.id
    logged = read_log(tmp_path / "log" / "epochs.jsonl")
    history = client(server).get_metric_history(run.info.run_id, "validation/nll")
    assert [(each.step, each.value) for each in history] == [
        (epoch["number"], pytest.approx(epoch["validation"]["nll"])) for epoch in logged
    ]
    for name, value in made.manifest.metrics.items():
        assert run.data.metrics[f"bundle/{name}"] == pytest.approx(value)
    kept = {Path(each.path).name for each in client(server).list_artifacts(run.info.run_id, "report")}
    assert kept == {path.name for path in (made.path / "report").iterdir()}


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (TrialPruned, "KILLED"), (ValueError, "FAILED")]
)
def test_a_run_that_does_not_finish_says_so(error: type[BaseException], status: str, server: str) -> None:
    with pytest.raises(error), track_to(f"mlflow:{server}", TrainConfig(), "digits", stops=(TrialPruned,), trial=3):
        raise error
    (run,) = runs(server, "digits")
    assert (run.info.status, run.data.tags["candor.trial"]) == (status, "3")


def test_a_server_that_fails_later_ends_no_run(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with track_to(f"mlflow:{server}", TrainConfig(), "digits") as tracker:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking.client import MlflowClient

        def gone(*_: object, **__: object) -> None:
            raise MlflowException("API request failed")

        with monkeypatch.context() as patched:
            patched.setattr(MlflowClient, "log_batch", gone)
            for number in (1, 2):
                tracker.epoch(Epoch(number, 2, 0.5, 0.5))
    assert capsys.readouterr().err.count("MLflow fails, and the run goes on: API request failed") == 1
    assert runs(server, "digits")[0].info.status == "FINISHED"


def test_a_store_of_artifacts_that_cannot_be_written_ends_no_run(
    server: str, tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with track_to(f"mlflow:{server}", TrainConfig(), "digits") as tracker:
        (artifacts,) = (tmp_path / "mlruns").glob("*/*/artifacts")
        (artifacts / "report").write_text("a file, where a folder cannot be made")
        tracker.bundle(trained)
    assert "MLflow fails, and the run goes on: [Errno" in capsys.readouterr().err
    assert runs(server, "digits")[0].info.status == "FINISHED"


def test_a_server_that_fails_before_a_trial_ends_the_search(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking.client import MlflowClient

    def gone(*_: object, **__: object) -> None:
        raise MlflowException("API request failed")

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", gone)
    with pytest.raises(ConfigurationError, match="MLflow cannot be used: API request failed"):
        end_killed(f"mlflow:{server}", "digits", trial=0)
    assert "the run goes on" not in capsys.readouterr().err


def test_a_search_has_a_run_for_each_trial(server: str, tmp_path: Path) -> None:
    settings = ["--epochs", "1", "--train-rows", "60", "--reference-rows", "60", "--validation-rows", "40"]
    tune = ["--tune", "dropout=0,0.3", "--trials", "2", "--storage", f"sqlite:///{tmp_path}/search.db"]
    done = CliRunner().invoke(app, ["search", *settings, *tune, "--track", f"mlflow:{server}"])
    assert done.exit_code == 0, done.output
    found = runs(server, "digits")
    assert {run.data.tags["candor.trial"] for run in found} == {"0", "1"}
    assert {run.data.params["dropout"] for run in found} <= {"0.0", "0.3", "0"}
    assert {run.data.params["model"] for run in found} == {"lenet5"}


def test_a_killed_trial_ends_in_mlflow_too_when_its_search_goes_on(server: str, tmp_path: Path) -> None:
    base = TrainConfig(epochs=1, train_rows=60, reference_rows=60, validation_rows=40)
    search = Search(base, [parse_knob("dropout=0,0.3")], f"sqlite:///{tmp_path}/search.db", 1, "digits")
    following = Following(search, f"mlflow:{server}", bars=False)
    with _quiet() as optuna:
        study = _study(search, optuna, following.lost)
        trial, settings = ask(study, search)
        study._storage.record_heartbeat(trial._trial_id)
        killed = following.trial(trial.number, base)
        killed.__enter__()  # and no exit
    with sqlite3.connect(tmp_path / "search.db") as database:
        database.execute("UPDATE trial_heartbeats SET heartbeat = '2026-01-01 00:00:00'")
    (again,) = run(search, following.trial, following.tell, following.lost)
    assert again.settings == settings
    ended = {each.info.run_name: each.info.status for each in runs(server, "digits")}
    assert ended == {"trial 0: auto cross_entropy 0": "KILLED", "trial 1: lenet5 cross_entropy 0": "FINISHED"}


def test_a_run_of_trees_has_their_parameters(server: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{value:.3f},{int(value + noise > 0)}" for value, noise in rng.normal(size=(400, 2))]
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *lines]))
    typed = ["train", "--out", str(tmp_path / "out"), "--dataset", "table", "--model", "hist_gradient_boosting"]
    typed += ["--data-setting", f"file={tmp_path}/table.csv", "--data-setting", "label=y", "--no-log", "--name", "t"]
    done = CliRunner().invoke(app, [*typed, "--allow-poor", "--track", f"mlflow:{server}"])
    assert done.exit_code == 0, done.output
    (run,) = runs(server, "t")
    assert run.data.params["library.library"]
    assert int(run.data.params["library.max_leaf_nodes"]) == 15
    assert int(run.data.params["reference_rows"]) == int(run.data.params["validation_rows"]) + 78  # 120 and 42


def test_a_server_that_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    typed = ["train", "--out", str(tmp_path / "out"), "--epochs", "1", "--no-log"]
    for uri in (f"file:{tmp_path}/mlruns", "nonsense://x"):
        done = CliRunner().invoke(app, [*typed, "--track", f"mlflow:{uri}"])
        assert done.exit_code == USAGE, done.output
        assert "MLflow cannot be used" in done.stderr
    assert not (tmp_path / "out").exists()
