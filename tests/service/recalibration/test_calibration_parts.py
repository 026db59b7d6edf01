import math

import numpy as np
import pytest
from scipy.special import expit

from calibrators import CALIBRATORS
from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.calibrated import Calibrated
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.solved import SolvedPolicy
from service.recalibration.calibration_parts import calibration_parts, largest_error

FRAUD = parse_policy(
    {
        "id": "block",
        "positive": "fraud",
        "bands": [{"action": "block", "when": {"min_probability": 0.5}}, {"action": "pass"}],
    }
)


def claims(rng: np.random.Generator, n: int, off: float, **columns: np.ndarray) -> Calibrated:
    """Return claims of which a tenth are fraud, with stated log-odds that are too low by `off`."""
    stated = rng.normal(-3.0, 1.5, n)
    label = (rng.random(n) < expit(stated + off)).astype(np.int64)
    logits = np.stack([np.zeros(n), stated], axis=1).astype(np.float32)
    identity = CALIBRATORS["identity"]().fit(logits, label)
    bands = (
        SolvedBand(action="block", threshold=Threshold.at(0.5, -math.inf), certificate=None),
        SolvedBand(action="pass", threshold=None, certificate=None),
    )
    solved = {"block": SolvedPolicy(FRAUD, 1, bands, False)}
    return Calibrated.of(identity, ("fine", "fraud"), Rows(logits=logits, label=label, **columns), solved)


def test_the_bound_reads_one_row_of_each_group() -> None:
    once = claims(np.random.default_rng(2), 400, 0.5)
    (expected,) = [part for part in calibration_parts(once, once, 0) if part["label"] == "fraud"]
    repeated = claims(np.random.default_rng(2), 400, 0.5, group=np.arange(400)).take(np.repeat(np.arange(400), 4))
    (found,) = [part for part in calibration_parts(repeated, repeated, 0) if part["label"] == "fraud"]
    assert found["rows"] == 1600
    assert found["after"]["upper"] == pytest.approx(expected["after"]["upper"], rel=1e-6)


def test_segments_have_parts_and_few_rows_a_large_bound() -> None:
    rng = np.random.default_rng(3)
    segment = np.where(np.arange(2000) % 2 == 0, "DE", "").astype(object)
    side = claims(rng, 2000, 0.0, segment=segment)
    parts = calibration_parts(side, side, 0)
    assert [(one["label"], one["segment"], one["rows"]) for one in parts] == [
        (None, None, 2000),
        ("fraud", None, 2000),
        (None, "DE", 1000),
        ("fraud", "DE", 1000),
    ]
    assert largest_error(parts) == max(one["after"]["upper"] for one in parts[:2]) < 0.2
    few = side.take(np.arange(100))
    assert 0.3 < largest_error(calibration_parts(few, few, 0)) < 1
