"""Wrong labels, estimated from rows with two: the bound holds for unequal labellers and difficult rows."""

import numpy as np
import pytest
from scipy.stats import binom

from service.decisions.double_labels import LEVEL, LabelPairs, double_labels

WORLDS, ROWS = 2_000, 150


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda u: np.where(u < 0.1, 0.5, 0.0), lambda u: np.where(u < 0.1, 0.5, 0.0)),  # coins on difficult rows
        (lambda u: np.full_like(u, 0.05), lambda u: np.zeros_like(u)),  # the second is always right
        (lambda u: 0.4 * u**3, lambda u: 0.3 * (1 - u)),
    ],
)
def test_the_bound_fails_at_most_at_its_level(first, second) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    u = (np.arange(100_000) + 0.5) / 100_000
    worst = max(first(u).mean(), second(u).mean())
    row = rng.random((WORLDS, ROWS))
    wrong = [rng.random(row.shape) < side(row) for side in (first, second)]
    below = 0
    for one, other in zip(*wrong, strict=True):
        found = double_labels(LabelPairs(one.astype(np.int64), other.astype(np.int64), np.arange(ROWS)), 0)
        below += found.upper < worst
    assert below <= binom.isf(0.001, WORLDS, LEVEL), below


@pytest.mark.parametrize("second_is_right", [False, True])
def test_the_bound_holds_for_any_number_of_classes(second_is_right: bool) -> None:
    """Least favourable: on a tenth of the rows all four classes are as likely; the two-class formula needs p ≤ 1/2."""
    rng, below, rate = np.random.default_rng(3), 0, 0.1 * 0.75
    for _ in range(WORLDS):
        hard = rng.random(ROWS) < 0.1
        first, second = (np.where(hard, rng.integers(4, size=ROWS), 0) for _ in range(2))
        found = double_labels(LabelPairs(first, 0 * second if second_is_right else second, np.arange(ROWS)), 0)
        below += found.upper < rate
    assert 0.3 * LEVEL * WORLDS < below <= binom.isf(0.001, WORLDS, LEVEL), below


def test_the_estimate_is_right_where_both_are_alike() -> None:
    rng = np.random.default_rng(2)
    wrong = rng.random((2, 200_000)) < 0.03
    found = double_labels(LabelPairs(*wrong.astype(np.int64), np.arange(200_000)), 0)
    assert found.wrong == pytest.approx(0.03, abs=0.001)
    assert found.upper > 0.03


def test_of_each_group_one_row_counts_and_no_rows_say_nothing() -> None:
    one, other = np.zeros(50, np.int64), np.r_[np.ones(40, np.int64), np.zeros(10, np.int64)]
    found = double_labels(LabelPairs(one, other, np.r_[np.zeros(40, np.int64), np.arange(1, 11)]), 0)
    assert (found.rows, found.differ) == (11, 1)
    assert (double_labels(None, 0).rows, double_labels(None, 0).wrong, double_labels(None, 0).upper) == (0, None, 1.0)
    empty = np.empty(0, np.int64)
    assert double_labels(LabelPairs(empty, empty, empty), 0) == double_labels(None, 0)
