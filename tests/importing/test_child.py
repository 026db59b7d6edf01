"""What ends the child of an import becomes a refusal, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

from . import graphs

START = "from importing.cli import isolate\nisolate()\nimport os, signal, tempfile, time\ntempfile.mkdtemp()\n"


def begin(code: str, folder: Path, *, before: str = "") -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", before + START + code],
        env={"TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )


OPEN = "from importing.model import OnnxModel\nOnnxModel(open({!r}, 'rb').read(), 'it')"


def test_a_model_that_crashes_onnx_runtime_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "crash.onnx"
    path.write_bytes(graphs.crashing())
    running = begin(OPEN.format(str(path)), tmp_path / "temporary")
    _, told = running.communicate()
    assert running.returncode == 2
    assert "Refused: The model or the rows crash the import." in told
    assert "signal SIGSEGV" in told
    assert list((tmp_path / "temporary").glob("candor-*")) == []


def test_a_model_that_takes_too_long_to_open_is_refused(tmp_path: Path) -> None:
    model, rows = tmp_path / "slow.onnx", tmp_path / "rows.csv"
    model.write_bytes(graphs.slow_to_open(2000, 1000))
    rows.write_text("x,y\n0,a\n1,b\n")
    options = ["onnx", str(model), "--name", "slow", "--validation", str(rows), "--label", "y"]
    code = f"import importing.model\nimporting.model.OPENING_S = 0.3\nfrom importing.cli import app\napp({options})"
    running = begin(code, tmp_path / "temporary")
    _, told = running.communicate(timeout=60)  # all products take ten minutes
    assert (running.returncode, told.count("Refused")) == (2, 1)
    assert "takes longer than 0.3 s to open" in told
    assert list((tmp_path / "temporary").glob("candor-*")) == []


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 2, "probably because memory ran out"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + 15, ""),
        ("raise SystemExit(5)", 5, ""),
    ],
)
def test_other_ends_keep_their_status(tmp_path: Path, code: str, status: int, told: str) -> None:
    running = begin(code, tmp_path / "temporary")
    _, complaint = running.communicate()
    assert (running.returncode, told in complaint, bool(complaint)) == (status, True, bool(told))
    assert list((tmp_path / "temporary").glob("candor-*")) == []


@pytest.mark.parametrize("send", [os.kill, os.killpg])  # the parent alone, or all as a terminal does
def test_an_interrupt_of_the_parent_ends_the_import_once(tmp_path: Path, send: Any) -> None:
    code = "from importing.cli import refusing\nwith refusing():\n print('begun', flush=True)\n time.sleep(60)"
    running = begin(code, tmp_path / "temporary")
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    send(running.pid, signal.SIGINT)
    assert running.communicate(timeout=30) == ("", "Interrupted. Nothing was written.\n")
    assert running.returncode == 130
    assert list((tmp_path / "temporary").glob("candor-*")) == []


def test_an_interrupt_while_the_parent_forks_ends_both(tmp_path: Path) -> None:
    early = "import os, signal\nos.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    running = begin("time.sleep(60)", tmp_path / "temporary", before=early)
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == 130
    assert list((tmp_path / "temporary").glob("candor-*")) == []


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    running = begin("print('begun', flush=True)\ntime.sleep(60)", tmp_path / "temporary")
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGKILL)
    assert running.communicate() == ("", "")  # the child held the pipes, too
    until(lambda: not list((tmp_path / "temporary").glob("candor-*")), "its temporary files stay")


def test_an_interrupt_at_the_very_end_of_an_import_is_one(tmp_path: Path) -> None:
    one_processor = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"  # nothing between the two
    running = begin("os.kill(os.getppid(), signal.SIGINT)\nos._exit(130)", tmp_path / "temporary", before=one_processor)
    _, told = running.communicate()
    assert (running.returncode, told) == (130, "")
