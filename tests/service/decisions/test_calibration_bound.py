from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom

from service.decisions.calibration_bound import EDGES, upper_error

Stated = Callable[[np.random.Generator, int], np.ndarray]
Truth = Callable[[np.ndarray], np.ndarray]


def rare_region(share: float) -> Stated:
    """Return stated probabilities between 0.05 and 0.25, but 0.95 in a share of the rows."""
    return lambda rng, n: np.where(rng.random(n) < share, 0.95, rng.uniform(0.05, 0.25, n))


def spread(rng: np.random.Generator, n: int) -> np.ndarray:
    return expit(rng.normal(-2.0, 2.0, n))


WORLDS: dict[str, tuple[int, Stated, Truth]] = {
    "1 % of the rows far off": (400, rare_region(0.01), lambda p: np.where(p > 0.9, 0.15, p)),
    "0.5 % of the rows far off": (400, rare_region(0.005), lambda p: np.where(p > 0.9, 0.15, p)),
    "often unseen": (400, rare_region(0.002), lambda p: np.where(p > 0.9, 0.0, p)),
    "shifted by 0.04": (500, lambda rng, n: rng.uniform(0.05, 0.9, n), lambda p: p + 0.04),
    "log-odds too low": (500, spread, lambda p: expit(logit(p) + 0.7)),
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_bound_is_below_the_true_error_rarely(world: str) -> None:
    n, stated, truth = WORLDS[world]
    population = stated(np.random.default_rng(1), 1_000_000)
    at = np.searchsorted(EDGES[1:-1], population, side="right")
    gap = np.bincount(at, truth(population) - population, len(EDGES) - 1)
    true = np.sqrt((gap**2 / np.maximum(np.bincount(at, minlength=len(gap)), 1)).sum() / len(population))
    rng, worlds, below = np.random.default_rng(2), 600, 0
    for _ in range(worlds):
        p = stated(rng, n)
        below += upper_error(p, rng.random(n) < truth(p), 0.025) < true
    assert below <= binom.isf(0.001, worlds, 0.025)


@pytest.mark.parametrize(("n", "bound"), [(500, 0.28), (2_000, 0.13), (10_000, 0.05)])
def test_a_calibrated_model_has_the_bound_that_the_docs_state(n: int, bound: float) -> None:
    rng = np.random.default_rng(3)
    found = [upper_error(p := expit(rng.normal(0, 2, n)), rng.random(n) < p, 0.025) for _ in range(20)]
    assert np.median(found) == pytest.approx(bound, abs=0.01)


@pytest.mark.parametrize("event", [False, True])
def test_one_bin_of_rows_pays_for_the_bins_without(event: bool) -> None:
    n = 1_000
    certain = upper_error(np.full(n, float(event)), np.full(n, event), 0.025)
    unseen = 1 - (0.2 * 0.025 / 2**10) ** (1 / n)
    assert np.sqrt(0.98**2 * unseen) < certain < np.sqrt(unseen + 0.02**2)
