"""The diagrams of a report."""

from __future__ import annotations

import numpy as np

import bundle
from calibrators import CALIBRATORS
from training.diagrams import draw


def rows(n: int, seed: int) -> bundle.LabelledLogits:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 2
    return bundle.LabelledLogits((2 * logits).astype(np.float32), (logits + rng.gumbel(size=(n, 3))).argmax(axis=1))


def test_diagrams_are_svg_and_repeat_themselves() -> None:
    reference = bundle.Reference(rows(1000, 0), rows(900, 1), rows(100, 2))
    calibrator = CALIBRATORS["histogram"]().fit(reference.fit.logits, reference.fit.labels)
    diagrams = draw(reference, calibrator)
    assert draw(reference, calibrator) == diagrams
    for svg in diagrams.values():
        assert b"<svg" in svg[:600]
        assert b"<dc:date>" not in svg
