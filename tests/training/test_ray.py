"""Searches, studies and training on a Ray cluster of two raylets give what they give without Ray."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from select import select
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ray_cluster import Cluster, begin, ended, printed, two_nodes
from tests.waiting import PATIENCE_S, until
from training.cli import app
from training.console import USAGE

TINY = ["--dataset", "digits", "--train-rows", "100", "--reference-rows", "60", "--validation-rows", "80"]
TINY += ["--threads", "1", "--json"]
GRID = """
name: tiny
question: Which loss is best calibrated?
base: {epochs: 40, train_rows: 60, reference_rows: 60, threads: 1}
grid: {loss: [cross_entropy, focal]}
seeds: 1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from two_nodes()


@pytest.fixture(scope="module")
def commands(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """A process of Ray's environment that runs commands, and has imported all that they need only once."""
    with cluster.commands() as process:
        try:
            yield process
            process.communicate(timeout=PATIENCE_S)  # ends its input
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def without_ray(*typed: str) -> str:
    """Run `candor-train` in this process, which has imported PyTorch already; return what it printed."""
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a bundle, without the one that tells when it was made."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_two_processes_train_together_and_go_on_after_one_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    typed = ["train", *TINY, "--epochs", "20", "--no-log", "--keep", "run.pt"]
    on_ray = ["--out", "ray", "--ray", cluster.address, "--workers", "2"]
    running = cluster.start(tmp_path, "candor-train", *typed, *on_ray)
    until(lambda: (tmp_path / "run.pt").exists() or running.poll() is not None)
    workers = list(cluster.processes("RayTrainWorker"))
    os.kill(workers[0], signal.SIGKILL)
    ended(running)
    assert len(workers) == 2
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "training"]
    subprocess.run([sys.executable, *together, *typed, "--out", "here"], check=True, stdout=subprocess.DEVNULL)
    made = content(tmp_path / "ray" / "digits" / "1")
    assert len(made) > 5
    assert made == content(tmp_path / "here" / "digits" / "1")
    assert not (tmp_path / "run.pt").exists()
    assert [path.name for path in (tmp_path / "ray").iterdir()] == ["digits"]


def test_a_search_with_one_trial_at_a_time_is_that_without_ray(
    cluster: Cluster, commands: subprocess.Popen[str], tmp_path: Path
) -> None:
    typed = ["search", *TINY, "--epochs", "2", "--tune", "learning_rate=1e-4..1e2:log", "--trials", "2"]
    on_ray = ["--ray", cluster.address, "--workers", "1"]
    begin(commands, tmp_path, *typed, "--storage", "sqlite:///ray.db", *on_ray)
    there = json.loads(printed(commands))
    here = json.loads(without_ray(*typed, "--storage", "sqlite:///here.db"))
    assert [trial["nll"] < math.inf for trial in here["trials"]] == [True, False]
    assert there == here
    more = [*typed[:-1], "4", "--storage", "sqlite:///ray.db", "--ray", cluster.address]  # goes on, two at a time
    begin(commands, tmp_path, *more)
    assert len(json.loads(printed(commands))["trials"]) == 4


def test_where_no_cluster_answers_the_command_says_so(cluster: Cluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # listens, and says nothing
        port = taken.getsockname()[1]
        running = cluster.start(tmp_path, "candor-train", "train", *TINY, "--out", "out", "--ray", f"127.0.0.1:{port}")
        _, told = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == USAGE, told
    assert f"the Ray cluster 127.0.0.1:{port} does not answer" in told


def test_a_study_that_loses_a_node_has_the_cells_that_it_has_without_ray(
    cluster: Cluster, commands: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    begin(commands, tmp_path, "study", "grid.yaml", "--out", "ray", "--ray", cluster.address)
    until(lambda: any((tmp_path / "ray").rglob("*.pt")) or select([commands.stdout], [], [], 0)[0])
    cluster.lose_node()
    assert "2 of 2 cells done" in printed(commands)
    without_ray("study", "grid.yaml", "--out", "here")

    def results(out: str) -> list[Any]:
        found = [json.loads(path.read_text()) for path in sorted((tmp_path / out).rglob("result.json"))]
        for result in found:
            del result["seconds"]
            for epoch in result["epochs"]:
                del epoch["seconds"]
        return found

    assert results("ray") == results("here")
    assert len(results("ray")) == 2


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (["train", "--out", "out", "--ray", "auto"], "--ray needs Ray: python requirements/install.py ray"),
        (["train", "--out", "out", "--workers", "2"], "--workers belongs to --ray"),
        (["train", "--out", "out", "--ray", "auto", "--workers", "0"], "workers is 0, expected at least 1"),
        (["search", "--tune", "dropout=0..0.1", "--workers", "2"], "--workers belongs to --ray"),
        (["study", "lenet-birdcat", "--ray", "auto", "--workers", "0"], "workers is 0, expected at least 1"),
    ],
)
def test_what_cannot_work_is_refused(typed: Sequence[str], why: str) -> None:
    done = CliRunner().invoke(app, [*typed])
    assert done.exit_code == USAGE, done.output
    assert why in " ".join(done.stderr.split())
