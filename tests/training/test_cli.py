"""The command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bundle
from training.cli import FAILED, INTERRUPTED, REFUSED, USAGE, app
from training.losses import LOSSES, cross_entropy

TINY = ["--epochs", "1", "--train-rows", "60", "--reference-rows", "60"]
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
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, arguments: list[str], said: str) -> None:
    code, out, err = run("train", "--out", tmp_path / "out", *TINY, *arguments)
    assert code == USAGE
    assert said in err
    assert out == ""
    assert not (tmp_path / "out").exists()


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


def test_ctrl_c_leaves_nothing_and_says_so(tmp_path: Path) -> None:
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
        "from training.cli import main\n"
        "main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", "--out", str(tmp_path / "out"), "--epochs", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "interrupted" in err
    assert not (tmp_path / "out").exists()
