"""The test of two samples is exact, finds drift, and Holm's procedure keeps the level over columns and windows."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from service.decisions.levels import level_of
from service.monitoring.homogeneity import evidence, index_without_drift, rejected, stability_index


@pytest.mark.parametrize(("totals", "drawn"), [((3, 2, 4), 4), ((1, 5), 2), ((2, 0, 2, 1), 3), ((6,), 2)])
def test_the_mean_of_the_e_value_is_1_over_all_splits(totals: tuple[int, ...], drawn: int) -> None:
    total = np.array(totals)
    mean = splits = 0.0
    for traffic in product(*(range(most + 1) for most in totals)):
        if sum(traffic) == drawn:
            ways = math.prod(map(math.comb, totals, traffic))
            mean += ways * math.exp(evidence(total - np.array(traffic), np.array(traffic)))
            splits += ways
    assert mean / splits == pytest.approx(1.0, abs=1e-12)


def test_the_alarm_keeps_its_level_over_columns_and_windows() -> None:
    """Worlds of three windows and four columns, of rare bins too; all windows share the reference."""
    rng, worlds, alpha = np.random.default_rng(7), 60, 0.2
    columns = [np.full(5, 0.2), np.array([0.97, 0.02, 0.01]), np.array([0.5, 0.5]), np.full(12, 1 / 12)]
    false = 0
    for _ in range(worlds):
        reference = [rng.multinomial(80, shares) for shares in columns]
        false += any(
            rejected(
                [
                    evidence(counts, rng.multinomial(150, shares))
                    for counts, shares in zip(reference, columns, strict=True)
                ],
                level_of(alpha, window),
            ).any()
            for window in (1, 2, 3)
        )
    assert binomtest(false, worlds, alpha, alternative="greater").pvalue > 0.001


@pytest.mark.parametrize(("window", "shift"), [(1, 1 / 3), (365, 0.45)])
def test_a_shift_of_one_column_is_found(window: int, shift: float) -> None:
    """An index of about 0.1 or 0.2, in one of 30 columns, with 1,500 reference rows and 2,000 of traffic."""
    rng = np.random.default_rng(8)
    edges = norm.ppf(np.arange(1, 10) / 10)
    shifted = np.diff([0, *norm.cdf(edges - shift), 1])
    clean = [evidence(*(rng.multinomial(n, [0.1] * 10) for n in (1500, 2000))) for _ in range(29)]
    for _ in range(10):
        reference, traffic = rng.multinomial(1500, [0.1] * 10), rng.multinomial(2000, shifted)
        found = rejected([*clean, evidence(reference, traffic)], level_of(0.025, window))
        assert found.tolist() == [False] * 29 + [True]


def test_a_missing_value_where_none_was_is_found() -> None:
    assert evidence(np.array([500, 500, 0]), np.array([500, 500, 40])) > 10
    assert evidence(np.array([1000]), np.array([2000])) == 0


def test_the_index_without_drift_is_what_samples_have() -> None:
    rng = np.random.default_rng(9)
    pairs = [(rng.multinomial(900, [0.1] * 10), rng.multinomial(1200, [0.1] * 10)) for _ in range(300)]
    mean = np.mean([stability_index(*pair) for pair in pairs])
    assert mean == pytest.approx(index_without_drift(*pairs[0]), rel=0.1)
