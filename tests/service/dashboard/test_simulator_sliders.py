"""Sliders of the simulator."""

from __future__ import annotations

import numpy as np

from service.dashboard.simulator import _sliders
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows


def test_bands_that_decide_by_amounts_have_no_slider() -> None:
    costs = {"false_positive": 5, "false_negative": "1 + amount"}
    bands = [
        {"action": "block", "when": {"cost": costs}},
        {"action": "check", "when": {"min_probability": 0.3}},
        {"action": "allow"},
    ]
    p = np.linspace(0, 1, 50, dtype=np.float32)
    rows = ScoredRows(probability=p, score=p, positive=p > 0.5)
    policy = parse_policy({"id": "money", "positive": "fraud", "bands": bands})
    solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="reference")
    assert [slider["action"] for slider in _sliders(solved, solved)] == ["check"]
