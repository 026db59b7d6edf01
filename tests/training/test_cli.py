"""The command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle
import training.logs
from calibrators import CALIBRATORS
from tests.waiting import PATIENCE_S
from training import TrainConfig
from training.cli import app
from training.console import FAILED, INTERRUPTED, REFUSED, USAGE
from training.data import DATASETS, split
from training.epochs import Epoch, OnEpoch
from training.losses import LOSSES, cross_entropy
from training.models import MODELS
from training.trees import TREES

TINY = ["--epochs", "1", "--train-rows", "60", "--reference-rows", "60", "--no-log", "--allow-poor"]
runner = CliRunner()


def run(*arguments: object) -> tuple[int, str, str]:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_train_prints_where_the_bundle_is(tmp_path: Path) -> None:
    code, out, _ = run("train", "--out", tmp_path, "--name", "mine", "--resize", *TINY)
    assert code == 0
    assert str(tmp_path / "mine" / "1") in out
    assert "if calibrated" in out
    assert bundle.verify(tmp_path / "mine" / "1").manifest.input.resize


def test_every_setting_has_an_option(tmp_path: Path) -> None:
    """What is typed is what is done, and the bundle says so."""
    options = {
        "--loss": "focal",
        "--coefficient": "gamma=2",
        "--optimiser": "sgd",
        "--learning-rate": "0.02",
        "--schedule": "step",
        "--milestone": "1",
        "--step-factor": "5",
        "--weight-decay": "1e-4",
        "--clip": "1",
        "--crop": "1",
        "--mixup": "0.2",
        "--validation-rows": "40",
        "--patience": "2",
        "--precision": "bfloat16",
    }
    typed = [part for option, value in options.items() for part in (option, value)]
    code, out, _ = run("train", "--out", tmp_path, *TINY, "--epochs", "2", "--flip", "--centred", "--json", *typed)
    assert code == 0
    manifest = json.loads(out)["manifest"]
    record = manifest["training"]
    assert manifest["architecture"]["config"] == {"dropout": 0.0, "centred": True}
    assert record["loss"] == {"name": "focal", "coefficients": {"gamma": 2.0}}
    assert record["optimiser"] == "sgd"
    assert record["recipe"]["milestones"] == [1]
    told = {"step_factor": 5, "weight_decay": 1e-4, "clip": 1, "crop": 1, "mixup": 0.2, "patience": 2, "flip": True}
    assert {name: record["recipe"][name] for name in told} == told
    assert record["splits"]["validation"]["rows"] == 40


def test_no_setting_is_without_an_option() -> None:
    _, out, _ = run("train", "--help")
    names = {field.metadata.get("name", field.name) for field in fields(TrainConfig)}
    for name in names - {"by_data"}:  # which lists the options not typed
        assert f"--{name.replace('_', '-').removesuffix('s')}" in out, name


def test_a_run_is_logged_and_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = [part for part in TINY if part != "--no-log"]
    keep = tmp_path / "checkpoint.pt"
    settings = [*tiny, "--epochs", "3", "--validation-rows", "40", "--keep", keep]
    log = Path("runs/digits-auto-cross_entropy-0.1")
    real = training.logs.log_to

    @contextmanager
    def stopping(folder: Path) -> Iterator[OnEpoch]:
        with real(folder) as note:

            def on_epoch(epoch: Epoch) -> None:
                note(epoch)
                if epoch.number == 2:
                    raise KeyboardInterrupt

            yield on_epoch

    with monkeypatch.context() as patched:
        patched.setattr(training.logs, "log_to", stopping)
        code, _, err = run("train", "--out", "out", *settings)
    assert code == INTERRUPTED
    assert "the same command continues from" in err
    assert keep.exists()
    with (log / "epochs.jsonl").open("a", encoding="utf-8") as lines:
        lines.write('{"number": 3, "lo')  # as a kill in the middle of a line leaves it
    assert run("train", "--out", "out", *settings)[0] == 0
    assert not keep.exists()
    assert [epoch["number"] for epoch in training.logs.read_log(log / "epochs.jsonl")] == [1, 2, 3]
    assert list(log.glob("events.out.tfevents.*"))
    Path(f"{log}.copy").mkdir()  # is not the folder of a run
    # A run that begins has a folder of its own, or the one that is wished for.
    for wish, folder in (([], log.with_suffix(".2")), (["--log", "log"], Path("log"))):
        assert run("train", "--out", "out", *tiny, *wish)[0] == 0
        assert (folder / "epochs.jsonl").exists()


def test_list_names_what_there_is() -> None:
    code, out, _ = run("list")
    assert code == 0
    for name in (*DATASETS, *MODELS, *TREES, *LOSSES, *CALIBRATORS):
        assert name in out
    assert "vocabulary_size" in out


def test_a_class_that_no_training_row_is_of_is_told(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (121, 8, 8, 1)).astype(np.uint8)
    labels = np.append(np.arange(120) % 2, 2)
    kept = tmp_path / "own.npz"
    for seed in range(20):  # until the one image of the third class is held out
        parts = split(labels, seed=seed, train_rows=60, reference_rows=60, fit_share=0.5, certify_share=0.45)
        if 2 not in labels[parts.train]:
            break
    np.savez(kept, images=images, labels=labels, label_names=np.array(["cat", "dog", "[emu]"]))
    typed = [*TINY, "--dataset", "arrays", "--data-setting", f"file={kept}", "--seed", seed]
    code, _, err = run("train", "--out", tmp_path / "out", *typed)
    assert code == 0
    assert "no training rows for [emu]: the network cannot recognise it" in err


def test_json_is_one_document(trained: Path) -> None:
    code, out, _ = run("report", trained, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["bundle"] == str(trained)
    assert document["id"] == bundle.verify(trained).id
    assert document["manifest"]["model"] == "digits"
    assert "null" in document["report"]["after"]["ece"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "nope"], "digits"),
        (["--epochs", "0"], "at least 1"),
        (["--learning-rate", "-1"], "positive"),
        (["--name", "../escape"], "lower-case"),
        (["--calibrator", "nope"], "temperature"),
        (["--loss", "focal", "--coefficient", "gamma=two"], "gamma is 'two', expected a number"),
        (["--reference-rows", "3000"], "--train-rows 0"),
        (["--sampling", "nope"], "'--sampling': 'nope' is not one of 'plain',"),
    ],
)
def test_settings_that_cannot_work(
    tmp_path: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logged = [part for part in TINY if part != "--no-log"]
    code, out, err = run("train", "--out", tmp_path / "out", *logged, *arguments)
    assert code == USAGE
    assert said in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []  # no bundle, and no log of a run that never began


def test_a_diverging_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "broken", lambda logits, labels: cross_entropy(logits, labels) * float("nan"))
    code, _, err = run("train", "--out", tmp_path / "out", *TINY, "--loss", "broken")
    assert code == FAILED
    assert "epoch 1, step 1" in err
    assert not (tmp_path / "out").exists()


def test_report_copies_the_diagrams(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "[/red]" / "digits" / "1"))  # no markup, whatever it looks like
    code, out, _ = run("report", folder, "--to", tmp_path / "report")
    assert code == 0
    assert "ECE, 15 bins" in out
    assert str(folder) in out
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == bundle.verify(trained).report
    svgs = list((tmp_path / "report").glob("*.svg"))
    assert len(svgs) == 4
    for svg in svgs:
        assert ET.parse(svg).getroot().tag.endswith("svg")


def test_report_of_a_damaged_bundle_names_the_file(trained: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(trained, tmp_path / "digits" / "1"))
    data = bytearray((damaged / "reference.npz").read_bytes())
    data[100] ^= 1
    (damaged / "reference.npz").write_bytes(data)
    for arguments in (["report", damaged], ["calibrate", damaged], ["report", tmp_path / "nowhere"]):
        code, out, err = run(*arguments)
        assert code == REFUSED
        assert out == ""
        assert "reference.npz" in err or "nowhere" in err


def test_calibrate_writes_the_next_version(trained: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(trained, tmp_path / "digits" / "1")
    code, out, _ = run("calibrate", copied, "--calibrator", "identity", "--json")
    assert code == 0
    assert json.loads(out)["bundle"] == str(tmp_path / "digits" / "2")


@pytest.mark.parametrize("command", [[], ["train"], ["export"], ["calibrate"], ["report"]])
def test_help_is_there(command: list[str]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Usage" in out


def test_epochs_are_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    code, _, err = run("train", "--out", tmp_path, *TINY, "--epochs", "2", "--validation-rows", "40")
    assert code == 0
    assert "Training the default model on digits: epoch 1 of 2, loss " in err
    assert "Training the default model on digits: epoch 2 of 2, loss " in err
    assert "validation accuracy" in err


@pytest.mark.parametrize("ends_by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_and_says_so(tmp_path: Path, ends_by: signal.Signals) -> None:
    code = (
        "import signal\n"
        "import training.trained\n"
        # A job in the background of a shell is started with interrupts ignored; this one listens all the same.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "real = training.trained.train\n"
        "def told(*args, **kwargs):\n"
        "    print('training', flush=True)\n"
        "    return real(*args, **kwargs)\n"
        "training.trained.train = told\n"
        "from training.__main__ import main\n"
        "main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", "--out", str(tmp_path / "out"), "--epochs", "100000", "--no-log"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "training\n"
        process.send_signal(ends_by)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == INTERRUPTED
    assert "interrupted" in err
    assert not (tmp_path / "out").exists()
