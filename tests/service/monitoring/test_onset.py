import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from service.monitoring.onset import advance, first_stakes, log_evidence, onset_share, shares_left


def test_the_shares_of_all_onsets_sum_to_one() -> None:
    given = math.fsum(onset_share(k) for k in range(1, 2001))
    assert shares_left(0) == 1.0
    assert given + shares_left(2000) == pytest.approx(1.0, abs=1e-12)
    assert onset_share(10**9) > 0


def evidence(factors: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return W after the rows of `factors`, (T, J), as the module's formula says it."""
    rows = len(factors)
    staked = sum(
        weight * onset_share(k) * math.prod(factors[k - 1 :, j])
        for j, weight in enumerate(weights)
        for k in range(1, rows + 1)
    )
    return staked + shares_left(rows)


def test_the_recursion_is_the_double_sum() -> None:
    rng = np.random.default_rng(0)
    factors = rng.uniform(0.2, 3.0, (40, 5))
    weights = rng.dirichlet(np.ones(5))
    stakes = first_stakes((5,))
    assert log_evidence(stakes, np.log(weights), 0) == pytest.approx(0.0, abs=1e-14)
    for t in range(1, 41):
        advance(stakes, np.log(factors[t - 1]), t)
        assert log_evidence(stakes, np.log(weights), t) == pytest.approx(math.log(evidence(factors[:t], weights)))


@pytest.mark.parametrize(("rate", "mean"), [(0.3, 1.0), (0.2, None), (0.0, None)])
def test_the_mean_over_all_courses_is_one_at_the_edge_and_never_grows(rate: float, mean: float | None) -> None:
    tolerated, rows = 0.3, 8
    bets = np.array([0.5, 0.1])
    factor = {True: 1 + bets * (1 - tolerated) / tolerated, False: 1 - bets}
    means = np.zeros(rows + 1)
    means[0] = 1.0
    for course in itertools.product([True, False], repeat=rows):
        probability = math.prod(rate if error else 1 - rate for error in course)
        stakes = first_stakes((2,))
        for t, error in enumerate(course, 1):
            advance(stakes, np.log(factor[error]), t)
            means[t] += probability * math.exp(log_evidence(stakes, np.log([0.5, 0.5]), t))
    if mean is not None:
        np.testing.assert_allclose(means, mean, rtol=1e-12)
    else:
        assert (np.diff(means) < 0).all()


def test_many_worlds_at_once_are_the_same_as_one_by_one() -> None:
    factors = np.log(np.random.default_rng(1).uniform(0.5, 2.0, (30, 4, 3)))
    together = first_stakes((4, 3))
    single = [first_stakes((3,)) for _ in range(4)]
    for t, row in enumerate(factors, 1):
        advance(together, row, t)
        for world, stakes in enumerate(single):
            advance(stakes, row[world], t)
    np.testing.assert_array_equal(together, np.stack(single))


def test_a_hundred_thousand_rows_either_way_stay_finite() -> None:
    weights = np.zeros(1)
    for factor in (math.log(0.5), math.log(20.0)):
        stakes = first_stakes((1,))
        for t in range(1, 100_001):
            advance(stakes, np.array([factor]), t)
        found = float(log_evidence(stakes, weights, 100_000))
        assert math.isfinite(found)
        # Falling, only the onsets to come are left; rising, the first onset has all of it.
        expected = math.log(shares_left(100_000)) if factor < 0 else 100_000 * factor + math.log(onset_share(1))
        assert found == pytest.approx(expected, abs=0.06)
