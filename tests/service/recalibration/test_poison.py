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
