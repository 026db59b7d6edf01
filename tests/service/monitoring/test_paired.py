"""Evidence on which arm is better: what it says of known rows, and by simulation how often it is wrong."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from benchmarks.challenger_worlds import BETTER, LEVEL, NULLS, ONE_SIDED, decided
from service.errors import InputValueError
from service.monitoring.paired import Paired, boundary, log_evidence

WORLDS, ROWS = 250, 2_000


def added(differences: np.ndarray, *, bound: float = 1.0, level: float = LEVEL) -> Paired:
    paired = Paired(bound=bound, level=level)
    paired.add(differences, differences, time=np.arange(len(differences)))
    return paired


@pytest.mark.parametrize("name", [*NULLS, *ONE_SIDED])
def test_the_worse_arm_is_rarely_ever_named(name: str) -> None:
    world, arms = (NULLS | ONE_SIDED)[name], "challenger" if name in ONE_SIDED else "both"
    wrong = (decided(world, WORLDS, ROWS, seed=7, arms=arms) > 0).sum()
    assert wrong <= binom.isf(0.001, WORLDS, LEVEL)


def test_a_better_arm_is_found() -> None:
    after = decided(BETTER["log-odds off by 1, half positive"], 50, ROWS, seed=8, arms="challenger")
    assert (after > 0).mean() > 0.95


@given(arrays(np.float64, st.integers(1, 60), elements=st.floats(-1, 1)), st.sampled_from(range(14)))
def test_the_evidence_never_exceeds_bets_on_the_rows(differences: np.ndarray, step: int) -> None:
    """Fan's inequality: each term of the mixture is at most the capital of a bet that cannot go negative."""
    size = 0.8 * 0.5**step
    term = size * differences.sum() + (np.log1p(-size) + size) * (differences**2).sum()
    assert term <= np.log1p(size * differences).sum() + 1e-9


@given(st.floats(0.0, 1e6), st.floats(0.1, 50.0))
def test_the_boundary_is_where_the_evidence_reaches_the_threshold(squares: float, threshold: float) -> None:
    reached = boundary(squares, threshold)
    assert log_evidence(reached, squares) >= threshold
    assert log_evidence(reached * (1 - 1e-6) - 1e-9, squares) < threshold


def test_an_arm_is_named_exactly_when_the_interval_leaves_zero() -> None:
    rng = np.random.default_rng(3)
    for shift, rows in product((-0.2, 0.0, 0.2), (20, 200, 2_000)):
        paired = added(np.clip(rng.normal(shift, 0.3, rows), -1, 1))
        low, high = paired.interval(floor=1.0)
        now = {arm for arm in ("challenger", "active") if paired.evidence(arm) >= paired.fires_at}
        assert ("challenger" in now, "active" in now) == (high < 0, low > 0)


def test_the_interval_covers_a_mean_that_drifts_at_all_looks() -> None:
    rng, missed = np.random.default_rng(5), 0
    rates = 0.5 + 0.3 * np.sin(np.arange(ROWS) / 200)
    means = np.cumsum(2 * rates - 1) / np.arange(1, ROWS + 1)
    for _ in range(60):
        paired, outside = Paired(bound=1.0, level=LEVEL), False
        differences = np.where(rng.random(ROWS) < rates, 1.0, -1.0)
        for end in range(200, ROWS + 1, 200):
            part = slice(end - 200, end)
            paired.add(differences[part], differences[part], time=np.arange(end - 200, end))
            low, high = paired.interval(floor=1.0)
            outside |= not low <= means[end - 1] <= high
        missed += outside
    assert missed <= binom.isf(0.001, 60, LEVEL)


def test_rows_count_the_same_whole_or_in_parts() -> None:
    differences = np.random.default_rng(1).uniform(-1, 0.6, 9_000)
    parts = Paired(bound=1.0, level=LEVEL)
    for part in np.array_split(np.arange(9_000), 17):
        parts.add(differences[part], differences[part], time=part)
        parts = Paired.from_dict(parts.to_dict(), level=LEVEL)
    whole = added(differences)
    assert (parts.better, parts.decided_at, parts.rows) == (whole.better, whole.decided_at, 9_000)
    assert whole.better == "challenger"
    assert parts.interval(floor=1.0) == pytest.approx(whole.interval(floor=1.0))


def test_an_unknown_label_helps_neither_arm() -> None:
    paired = Paired(bound=1.0, level=LEVEL)
    low, high = np.full(500, -0.3), np.full(500, 0.1)
    paired.add(low, high, time=np.arange(500))
    assert paired.better is None
    assert paired.interval(floor=1.0)[0] < -0.3
    assert paired.interval(floor=1.0)[1] > 0.1


def test_a_decision_stays() -> None:
    paired = added(np.full(200, -0.5))
    named = paired.decided_at
    paired.add(np.full(2_000, 0.5), np.full(2_000, 0.5), time=np.arange(200, 2_200))
    assert (paired.better, paired.decided_at) == ("challenger", named)
    assert paired.evidence("active") > paired.fires_at


def test_without_rows_everything_is_possible() -> None:
    paired = Paired(bound=9.9, level=LEVEL)
    assert paired.interval(floor=1.0) == (-9.9, 9.9)
    assert paired.means() is None
    with pytest.raises(InputValueError):
        Paired(bound=0.0, level=LEVEL)
    with pytest.raises(InputValueError):
        Paired.from_dict({**paired.to_dict(), "low": math.nan}, level=LEVEL)
