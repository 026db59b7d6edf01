"""Two processes train the network that one would have trained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

_WORKER = """
import json, sys
import numpy as np, torch
from torch import nn
from training.determinism import deterministic
from training.loop import Rows, train
from training.losses import LOSSES, Criterion
from training.recipe import Recipe
from training.team import team

images = np.random.default_rng(0).integers(0, 256, (51, 2, 2, 3)).astype(np.uint8)
rows = Rows(images, (images[:, 0, 0, 0] > 127).astype(np.int64))
recipe = Recipe(epochs=4, batch_size=10, optimiser="sgd", learning_rate=0.1, patience=3)

class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 2)
    def forward(self, images):
        return self.linear(images.flatten(1).float() / 255)

with deterministic(0, 1), team("cpu") as together:
    module = Pixels()
    criterion = Criterion(LOSSES["cross_entropy"], {}, 51)
    seen = []
    outcome = train(module, criterion, rows, recipe, validation=rows, on_epoch=seen.append, team=together)
    if together.leads:
        assert len(seen) == len(outcome.epochs)
        document = {
            "size": together.size,
            "weights": torch.cat([p.detach().flatten() for p in module.parameters()]).tolist(),
            "loss": [epoch.loss for epoch in outcome.epochs],
            "accuracy": [epoch.accuracy for epoch in outcome.epochs],
            "learned": outcome.learned.tolist(),
            "nll": [epoch.validation.nll for epoch in outcome.epochs],
        }
        open(sys.argv[1], "w").write(json.dumps(document))
    else:
        assert not seen
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch was built without torch.distributed")
def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """51 rows in batches of 10: the last batch has one row, so that a process has none."""
    script = tmp_path / "worker.py"
    script.write_text(_WORKER, encoding="utf-8")
    found = []
    for processes in (1, 2):
        out = tmp_path / f"{processes}.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", str(processes), script, out),
            ],
            check=True,
            timeout=300,
            capture_output=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        found.append(json.loads(out.read_text(encoding="utf-8")))
    alone, pair = found
    assert (alone["size"], pair["size"]) == (1, 2)
    assert pair["accuracy"] == alone["accuracy"]
    assert pair["learned"] == alone["learned"]
    for name in ("weights", "loss", "nll"):
        np.testing.assert_allclose(pair[name], alone[name], rtol=1e-5, atol=1e-6)
