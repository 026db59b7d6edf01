"""Closed forms against scipy's distributions."""

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from service.decisions.binomial import (
    critical_errors,
    labels_needed,
    lower_share,
    p_value,
    share_interval,
    upper_share,
)


def test_critical_errors_are_exact() -> None:
    n = np.concatenate([np.arange(0, 400), [1000, 10_000, 1_000_000]])
    for tolerance in (0.001, 0.05, 0.3, 0.9):
        for level in (0.05, 0.0083, 1e-5):
            critical = critical_errors(n, tolerance, level)
            held = critical >= 0
            assert np.all(binom.cdf(critical[held], n[held], tolerance) <= level)
            assert np.all((binom.cdf(critical + 1, n, tolerance) > level) | (n == 0))


def test_many_tests_of_few_numbers_of_rows_are_as_each_alone() -> None:
    n = np.random.default_rng(0).integers(50, 120, (20, 30))
    alone = [float(critical_errors(np.array(rows), 0.05, 0.05)) for rows in n.ravel()]
    assert critical_errors(n, 0.05, 0.05).ravel().tolist() == alone


@pytest.mark.parametrize("level", [1e-12, 1e-300, 5e-324, 0.0])
def test_the_smaller_the_level_the_fewer_errors_and_at_none_nothing_is_rejected(level: float) -> None:
    n = np.array([0, 1, 100, 13_282])
    critical = critical_errors(n, 0.1, level)
    assert np.all(critical <= critical_errors(n, 0.1, 0.05))
    assert np.all((critical == -1) | (level > 0))


def test_p_values_are_those_of_the_exact_test() -> None:
    for n, errors, tolerance in [(1, 0, 0.5), (59, 0, 0.05), (300, 7, 0.05), (300, 300, 0.9)]:
        expected = binomtest(errors, n, tolerance, alternative="less").pvalue
        assert p_value(np.array(errors), np.array(n), tolerance) == pytest.approx(expected, rel=1e-10)
    assert p_value(np.array(0), np.array(0), 0.05) == 1.0


def test_needed_labels_are_the_fewest() -> None:
    for n, errors, tolerance, level in [
        (10, 1, 0.05, 0.05),
        (100, 9, 0.05, 0.025),
        (0, 0, 0.1, 0.05),
        (7, 7, 0.3, 0.01),
    ]:
        more = labels_needed(n, errors, tolerance, level)
        assert binom.cdf(errors, n + more, tolerance) <= level < binom.cdf(errors, n + more - 1, tolerance)
    assert labels_needed(59, 0, 0.05, 0.05) == 0


def test_the_numbers_of_the_contract() -> None:
    assert labels_needed(0, 0, 1 - 0.95, 0.05) == 59
    assert labels_needed(0, 0, 1 - 0.95, 0.025) == 72
    assert labels_needed(0, 0, 1 - 0.9, 0.05) == 29
    assert labels_needed(0, 0, 0.001, 0.05) == 2995


@pytest.mark.parametrize("level", [0.05, 0.025, 1e-4])
def test_bounds_are_clopper_pearson(level: float) -> None:
    for count, of in [(0, 1), (0, 59), (3, 60), (60, 60), (999, 100_000)]:
        exact = binomtest(count, of).proportion_ci(1 - 2 * level, method="exact")
        assert lower_share(count, of, level) == pytest.approx(exact.low, abs=1e-12)
        assert upper_share(count, of, level) == pytest.approx(exact.high, abs=1e-12)
        if 0 < count < of:
            assert upper_share(count, of, level) == pytest.approx(beta.ppf(1 - level, count + 1, of - count))


def test_bounds_at_tiny_levels_are_exact() -> None:
    for level in (1e-20, 1e-30, 1e-300):
        assert binom.sf(4174, 5000, lower_share(4175, 5000, level)) == pytest.approx(level, rel=1e-6)
        assert binom.cdf(4175, 5000, upper_share(4175, 5000, level)) == pytest.approx(level, rel=1e-6)
        assert lower_share(1, 1000, level) == pytest.approx(level / 1000, rel=1e-6)


def test_without_rows_nothing_is_known() -> None:
    assert (lower_share(0, 0, 0.05), upper_share(0, 0, 0.05)) == (0.0, 1.0)


def test_a_test_succeeds_exactly_where_the_bound_keeps_the_promise() -> None:
    """One event per candidate, whatever the promise is: why a simultaneous band may be asked for any promise."""
    for n, errors in [(80, 1), (200, 9), (59, 0)]:
        bound = upper_share(errors, n, 0.01)
        assert (
            p_value(np.array(errors), np.array(n), bound + 1e-9)
            <= 0.01
            < p_value(np.array(errors), np.array(n), bound - 1e-9)
        )


@pytest.mark.parametrize(("share", "groups", "size"), [(0.5, 40, 1), (0.05, 60, 1), (0.98, 100, 1), (0.1, 200, 3)])
def test_the_interval_of_a_share_covers(share: float, groups: int, size: int) -> None:
    """Rows of a group agree in two of three cases, so that a group is worth little more than one row."""
    rng, covered = np.random.default_rng(groups), []
    group = np.repeat(np.arange(groups), size)
    for _ in range(1_000):
        shared = np.repeat(rng.random(groups) < share, size)
        hits = np.where(rng.random(groups * size) < 2 / 3, shared, rng.random(groups * size) < share)
        low, high = share_interval(hits, group)
        covered.append(low <= share <= high)
    assert np.mean(covered) >= 0.94


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson_where_groups_say_nothing() -> None:
    for hits in (0, 1, 30, 60):
        low, high = share_interval(np.arange(60) < hits, np.arange(60))
        if hits < 60:
            assert high >= upper_share(hits, 60, 0.025) - 1e-12
            assert high == pytest.approx(upper_share(hits, 60, 0.025), abs=0.01)
        assert low == pytest.approx(lower_share(hits, 60, 0.025), abs=0.01)
