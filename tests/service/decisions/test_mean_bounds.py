import numpy as np
import pytest
from scipy.stats import binom, chi2

from service.decisions.gate import MIXED
from service.decisions.mean_bounds import interval, upper_bound


def at_most(violations: int, level: float, worlds: int) -> bool:
    return bool(violations <= binom.isf(0.001, worlds, level))


def test_the_bound_is_nearly_that_of_a_poisson_number_of_equal_losses() -> None:
    for seen in (0, 1, 3, 10, 25, 100):
        sums = np.zeros(100_000)
        sums[:seen] = 1.0
        bound = float(upper_bound(sums, np.ones_like(sums), np.array(1.0), 0.025)) * len(sums)
        exact = chi2.isf(0.025, 2 * seen + 2) / 2
        assert 0.99 * exact < bound < 1.07 * exact + 0.3


def test_the_interval_is_that_of_student_without_skewness() -> None:
    sums = np.concatenate([np.linspace(-1, 1, 200)])
    low, high = interval(sums, np.ones(200))
    half = 1.9719565 * sums.std(ddof=1) / np.sqrt(200)
    assert (low, high) == pytest.approx((-half, half), rel=1e-5)


RARE = [(0.005, 0.5, 8000, 4000), (0.01, 0.5, 4000, 8000), (0.05, 0.5, 1000, 20_000), (0.1, 0.01, 500, 20_000)]


@pytest.mark.parametrize(("rate", "factor", "n", "worlds"), RARE)
def test_harm_to_a_rare_class_at_the_margin_passes_at_most_alpha(
    rate: float, factor: float, n: int, worlds: int
) -> None:
    rng = np.random.default_rng(n)
    active, candidate = ((1 - MIXED) * p + MIXED / 2 for p in (rate, rate * factor))
    loss, gain = np.log(active / candidate), np.log((1 - active) / (1 - candidate))
    harm = rate * loss + (1 - rate) * gain
    # The bound depends on the number of positives alone, so every possible number is computed once.
    counts = rng.binomial(n, rate, worlds)
    bounds = {}
    for count in np.unique(counts):
        sums = np.full(n, gain)
        sums[:count] = loss
        bounds[count] = upper_bound(sums, np.ones(n), np.array(loss), 0.025)
    passed = sum(count >= 25 and bounds[count] < harm for count in counts)
    assert at_most(passed, 0.025, worlds), passed / worlds


@pytest.mark.parametrize(
    ("share", "chance", "loss", "n"),
    [(0.05, 0.04, 4.0, 366), (0.02, 0.5, 1.0, 366), (1.0, 0.01, 5.0, 1000), (1.0, 0.002, 5.0, 1000)],
)
def test_harm_in_few_rows_passes_at_most_alpha_where_a_t_bound_fails(
    share: float, chance: float, loss: float, n: int
) -> None:
    rng, worlds, margin = np.random.default_rng(n), 20_000, 0.002
    gain = (margin - share * chance * loss) / (1 - share * chance)
    counts = rng.binomial(n, share * chance, worlds)
    passed = naive = 0
    for count, times in zip(*np.unique(counts, return_counts=True), strict=True):
        sums = np.full(n, gain)
        sums[:count] = loss
        passed += times * bool(upper_bound(sums, np.ones(n), np.array(loss), 0.025) < margin)
        naive += times * bool(sums.mean() + 1.96 * sums.std(ddof=1) / np.sqrt(n) < margin)
    assert at_most(passed, 0.025, worlds), passed / worlds
    assert naive / worlds > 0.05
