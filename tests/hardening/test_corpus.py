"""What fuzzing found worth keeping is answered, or refused in the service's own words (tests/hardening/fuzz)."""

from __future__ import annotations

import pytest

from tests.hardening.fuzz.corpus import read_corpus, reduced
from tests.hardening.fuzz.seeds import seeds
from tests.hardening.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore")  # NumPy and Pillow warn of what they then refuse or read
def test_every_input_is_answered_or_refused(target: str) -> None:
    inputs = [*seeds(target), *read_corpus(target)]
    for data in inputs:
        TARGETS[target](data)  # raises what is neither an answer nor a refusal
    assert len(inputs) >= 60


def test_of_inputs_that_go_the_same_way_the_smallest_is_kept() -> None:
    feedback = [b"\x02\x01" + b'{"reference": "%s", "label": "7"}' % (b"a" * length) for length in (1, 5, 9)]
    refused = b"\x02\x01{"
    assert reduced("json", [*feedback, refused]) == [refused, feedback[0]]
