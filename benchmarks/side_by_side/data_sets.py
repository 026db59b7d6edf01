"""Three data sets of float32 logits with true probabilities softmax(logits / 1.5)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.packages.job import TEMPERATURE, Floats, Labels


def write(folder: Path) -> None:
    """Write a.npz, b.npz and c.npz; the same on every machine."""
    rng = np.random.default_rng(0)
    for name, rows, classes in (("a", 5_000, 10), ("b", 25_000, 1_000)):
        logits = rng.normal(0, 3, (rows, classes)).astype(np.float32)
        labels = np.empty(rows, np.int64)
        for start in range(0, rows, 1_000):
            part = logits[start : start + 1_000]
            labels[start : start + 1_000] = np.argmax(part / TEMPERATURE + rng.gumbel(size=part.shape), axis=1)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    # Two classes, 4 % of class 1.
    margin = rng.normal(-7.0, 3.0, 1_000_000)
    labels = (rng.random(len(margin)) < 1 / (1 + np.exp(-margin / TEMPERATURE))).astype(np.int64)
    shift = rng.normal(0, 1, len(margin))
    np.savez(folder / "c.npz", logits=np.stack([shift, shift + margin], axis=1).astype(np.float32), labels=labels)


def read(folder: Path, name: str) -> tuple[Floats, Labels]:
    with np.load(folder / f"{name}.npz") as held:
        return held["logits"], held["labels"]
