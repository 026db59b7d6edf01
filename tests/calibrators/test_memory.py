"""Fits to a memory map add little memory of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

ROWS, CLASSES = 32_768, 512
ALLOWED_MB = 36

FIT = textwrap.dedent(
    """
    import sys, threading
    import numpy as np
    from calibrators import CALIBRATORS

    def anonymous_mb():
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024

    name, folder = sys.argv[1:3]
    logits, labels = np.load(folder + "/logits.npy", mmap_mode="r"), np.load(folder + "/labels.npy")
    weight = np.load(folder + "/weight.npy") if sys.argv[3] == "weighted" else None
    options = {"candidates": ["identity", "temperature"]} if name == "auto" else {}
    CALIBRATORS[name](**options).fit(np.eye(3), np.arange(3))
    before, peak, done = anonymous_mb(), 0, threading.Event()

    def watch():
        global peak
        while not done.wait(0.002):
            peak = max(peak, anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    CALIBRATORS[name](**options).fit(logits, labels, weight)
    done.set()
    watcher.join()
    print(peak - before)
    """
)


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """64 MB of logits, with labels and with weights of which some are zero."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    block = rng.normal(0, 2, (1024, CLASSES)).astype(np.float32)
    logits = np.lib.format.open_memmap(folder / "logits.npy", mode="w+", dtype=np.float32, shape=(ROWS, CLASSES))
    for start in range(0, ROWS, len(block)):
        logits[start : start + len(block)] = block
    logits.flush()
    drawn = np.argmax(block / 1.5 + rng.gumbel(size=block.shape), axis=1)
    np.save(folder / "labels.npy", np.resize(drawn, ROWS).astype(np.uint16))
    np.save(folder / "weight.npy", rng.integers(0, 3, ROWS).astype(np.float64))
    return folder


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
@pytest.mark.parametrize(
    ("name", "weighted"),
    [
        ("temperature", "weighted"),
        ("structured_vector", "weighted"),
        ("ensemble_temperature", "plain"),
        ("prior_shift", "plain"),
        ("auto", "weighted"),
    ],
)
def test_a_fit_adds_little_memory(name, weighted, large):
    command = [sys.executable, "-c", FIT, name, str(large), weighted]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < ALLOWED_MB
