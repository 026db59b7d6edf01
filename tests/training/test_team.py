"""Two processes train the network that one would have trained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this PyTorch was built without torch.distributed"
)

_WORKER = """
import json, sys, weakref
from pathlib import Path
import numpy as np, torch
from torch import nn
from training import ConfigurationError
from training.determinism import deterministic
from training.loop import Rows, train
from training.losses import LOSSES, Criterion
from training.recipe import Recipe
from training.team import team

folder = Path(sys.argv[1])

images = np.random.default_rng(0).integers(0, 256, (51, 2, 2, 3)).astype(np.uint8)
rows = Rows(images, (images[:, 0, 0, 0] > 127).astype(np.int64))

class Pixels(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.linear = nn.Linear(12, 2)
        self.dropout = nn.Dropout(dropout)
    def forward(self, images):
        return self.linear(self.dropout(images.flatten(1).float() / 255))

def learn(together, loss, dropout, keep=None, stop=None):
    module, criterion, seen = Pixels(dropout), Criterion(LOSSES[loss], {}, 51), []
    parts = {"average": 0.5, "accumulation": 2}
    recipe = Recipe(epochs=4, batch_size=10, optimiser="sgd", learning_rate=0.1, patience=3, **parts)
    def on_epoch(epoch):
        seen.append(epoch)
        if epoch.number == stop:
            raise KeyboardInterrupt
    try:
        outcome = train(
            module, criterion, rows, recipe, validation=rows, keep=keep, on_epoch=on_epoch, team=together
        )
    except KeyboardInterrupt:
        sys.exit(3)
    assert together.leads or not seen
    return {
        "size": together.size,
        "weights": torch.cat([p.detach().flatten() for p in module.parameters()]).tolist(),
        "loss": [epoch.loss for epoch in outcome.epochs],
        "accuracy": [epoch.accuracy for epoch in outcome.epochs],
        "learned": outcome.learned.tolist(),
        "nll": [epoch.validation.nll for epoch in outcome.epochs],
        "met": [] if criterion.history is None else criterion.history.passes.tolist(),
        "new": len(seen),
    }

def found(together, what):
    if what == "learn":
        return learn(together, "cross_entropy", 0.0)
    if what == "refuse":
        try:
            train(Pixels(0.0), Criterion(LOSSES["cross_entropy"], {}, 51), rows, Recipe(batch_size=1), team=together)
        except ConfigurationError as error:
            return {"error": str(error)}
    keep = folder / "checkpoint.pt" if what in ("interrupt", "resume") else None
    return learn(together, "correctness_ranking", 0.3, keep, 2 if what == "interrupt" else None)

with team("cpu") as together:
    group = weakref.ref(torch.distributed.group.WORLD) if together.size > 1 else lambda: None
    for what in sys.argv[2:]:
        with deterministic(0, 1):
            answer = found(together, what)
        if together.leads:
            (folder / f"{what}-{together.size}.json").write_text(json.dumps(answer))
assert group() is None, "the threads of the group outlive it, and may abort the process at its end"
"""


def torchrun(folder: Path, processes: int, *what: str, fails: bool = False) -> None:
    """Let a team, or one process, do one thing after the other, each from the same seed; imports take most of it."""
    script = folder / "worker.py"
    script.write_text(_WORKER, encoding="utf-8")
    together = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    ended = subprocess.run(
        [sys.executable, *(together if processes > 1 else ()), script, folder, *what],
        check=False,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert (ended.returncode != 0) == fails, ended.stderr


def answer(folder: Path, what: str, processes: int = 2) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{what}-{processes}.json").read_text())
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes did before they were interrupted."""
    folder = tmp_path_factory.mktemp("pair")
    torchrun(folder, 2, "learn", "straight", "refuse", "interrupt", fails=True)
    return folder


def test_two_processes_do_what_one_does(pair: Path) -> None:
    """51 rows in batches of 10: the last batch has eleven, so that one process has a row more than the other."""
    torchrun(pair, 1, "learn")
    alone, two = answer(pair, "learn", 1), answer(pair, "learn")
    assert (alone["size"], two["size"]) == (1, 2)
    assert two["accuracy"] == alone["accuracy"]
    assert two["learned"] == alone["learned"]
    for name in ("weights", "loss", "nll"):
        np.testing.assert_allclose(two[name], alone[name], rtol=1e-5, atol=1e-6)


def test_a_team_that_was_interrupted_goes_on_to_the_same_result(pair: Path) -> None:
    """With dropout, which each process draws by itself, and a loss that remembers each row."""
    straight = answer(pair, "straight")
    assert (pair / "checkpoint.pt").exists()
    assert not (pair / "interrupt-2.json").exists()
    torchrun(pair, 2, "resume")
    resumed = answer(pair, "resume")
    assert resumed.pop("new") == straight.pop("new") - 2
    assert resumed == straight
    assert set(straight["met"]) == {len(straight["loss"])}  # every row once an epoch, whoever met it


def test_batches_with_fewer_rows_than_processes_are_refused(pair: Path) -> None:
    assert (
        "batches of 1 and 51 rows in total, expected at least one row for each of 2 processes"
        in answer(pair, "refuse")["error"]
    )
