"""A year of an operator: whatever is tried, in at most a share delta of years is a certificate false."""

from __future__ import annotations

from scipy.stats import binom

from benchmarks.operator_year import DELTA, KINDS, false_certificates

WORLDS = 100


def test_a_year_of_looks_is_wrong_at_most_delta_of_the_time() -> None:
    found = false_certificates(WORLDS)
    for kind in KINDS:
        assert found[kind] <= binom.isf(0.001, WORLDS, DELTA), kind
    assert found["the rule's window"] > 0, "no level is used"
