"""Labels flipped at random or from above do not activate themselves, with the limits that hold by default."""

import pytest

from benchmarks.poison import SCENARIOS, recalibrated
from service.decisions.unattended import Limits

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
WORLDS = 12


@pytest.mark.parametrize(
    "name", ["poison: 5 % of labels flipped at random", "poison: 5 % at random, while fraud doubles"]
)
def test_labels_flipped_at_random_wait_for_a_person(name: str) -> None:
    gates = [recalibrated(BY_NAME[name], 20_000, 1_000 + world, "platt", Limits()) for world in range(WORLDS)]
    assert sum(gate is not None and gate.passed for gate in gates) > WORLDS / 2  # the gate itself cannot tell
    assert not any(gate is not None and gate.unattended for gate in gates)


@pytest.mark.parametrize(
    ("name", "most"),
    [("poison: the top-scored 5 % of frauds flipped", 2), ("poison: all frauds of the top-scored 5 % flipped", 0)],
)
def test_labels_flipped_from_above_seldom_activate(name: str, most: int) -> None:
    """A few frauds hidden at the top look like noise: docs/explanation/statistics.md says how often they pass."""
    gates = [recalibrated(BY_NAME[name], 20_000, 1_000 + world, "platt", Limits()) for world in range(WORLDS)]
    assert sum(gate is not None and gate.unattended for gate in gates) <= most
