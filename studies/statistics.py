"""Means over seeds, tests of their differences, and the power of these tests."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

FEWEST_FLIPPED, MOST_FLIPPED = 6, 20  # pairs: fewer cannot reach 5 %, more take long, and change little
MOST_PAIRS = 200


@dataclass(frozen=True)
class Spread:
    """Values of several seeds.

    Attributes:
        values: One for each seed.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """Sample standard deviation, divisor n − 1; NaN for one value."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


def spread(values: Sequence[float | None], scale: float = 1.0) -> Spread | None:
    """Return the finite values times `scale`; None if there are none."""
    known = tuple(scale * value for value in values if value is not None and math.isfinite(value))
    return Spread(known) if known else None


@dataclass(frozen=True)
class Comparison:
    """Mean difference of pairs, by the paired t-test.

    Attributes:
        difference: Mean of the first minus mean of the second.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p_value: Two-sided; exact if differences are normally distributed.
        deviation: Sample standard deviation of the differences.
        pairs: Number of pairs.
        sign_flips: Two-sided p-value of the exact sign-flip test, which needs symmetry alone; None where no outcome of
            it can be below 5 %.
    """

    difference: float
    low: float
    high: float
    p_value: float
    deviation: float
    pairs: int
    sign_flips: float | None = None


def paired(first: Spread | None, second: Spread | None) -> Comparison | None:
    """Compare two numbers of each pair, such as a seed's with two losses, by their differences.

    None if there are fewer than two pairs, the numbers do not belong together, or the differences do not vary.

    Example:
        >>> compared = paired(Spread((1.0, 2.0, 4.0)), Spread((2.0, 4.0, 7.0)))
        >>> round(compared.difference, 3), round(compared.p_value, 3)
        (-2.0, 0.074)
    """
    if first is None or second is None or len(first.values) < 2 or len(first.values) != len(second.values):
        return None
    count = len(first.values)
    differences = Spread(tuple(one - other for one, other in zip(first.values, second.values, strict=True)))
    error = differences.deviation / math.sqrt(count)
    # Equal differences, such as those of accuracies before and after scaling, vary by rounding alone.
    if error <= 1e-12 * max(map(abs, (*first.values, *second.values, 1.0))):
        return None
    mean = differences.mean
    width = float(stats.t.ppf(0.975, count - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    flips = sign_flips(differences.values) if FEWEST_FLIPPED <= count <= MOST_FLIPPED else None
    return Comparison(mean, mean - width, mean + width, p_value, differences.deviation, count, flips)


def sign_flips(differences: Sequence[float]) -> float:
    """Return the share of all assignments of signs whose mean is as far from zero as the one found.

    References:
        Fisher 1935, The design of experiments, section 21.

    Example:
        >>> sign_flips([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        0.03125
    """
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= abs(sum(differences)) * (1 - 1e-12)))


def power(effect: float, deviation: float, pairs: int, alpha: float = 0.05) -> float:
    """Return the chance that the paired t-test finds a true mean difference.

    Args:
        effect: The true mean difference.
        deviation: Standard deviation of the differences, positive.
        pairs: Number of pairs, at least 2.
        alpha: Level of the test.

    Example:
        >>> round(power(effect=1.0, deviation=1.0, pairs=10), 2)
        0.8
    """
    freedom = pairs - 1
    limit = float(stats.t.ppf(1 - alpha / 2, freedom))
    centre = abs(effect) / deviation * math.sqrt(pairs)
    # The noncentral t by its definition, over evenly likely variances: scipy's fails far from zero.
    bounds = limit * _deviations(freedom)
    return float(np.mean(stats.norm.sf(bounds - centre) + stats.norm.cdf(-bounds - centre)))


@functools.cache
def _deviations(freedom: int) -> NDArray[np.float64]:
    """Return 2,000 evenly likely values of an estimated standard deviation of true size 1."""
    evenly = (np.arange(2000) + 0.5) / 2000
    deviations: NDArray[np.float64] = np.sqrt(stats.chi2.ppf(evenly, freedom) / freedom)
    return deviations


def detectable(deviation: float, pairs: int, alpha: float) -> float:
    """Return the smallest true mean difference that the paired t-test finds with power 0.8.

    Example:
        >>> round(detectable(deviation=1.0, pairs=10, alpha=0.05), 1)
        1.0
    """
    return deviation * float(optimize.brentq(lambda effect: power(effect, 1.0, pairs, alpha) - 0.8, 0.0, 1000.0))


def pairs_for(effect: float, deviation: float, alpha: float = 0.05, wanted: float = 0.8) -> int | None:
    """Return the fewest pairs with this power; None if `MOST_PAIRS` do not give it.

    Example:
        >>> pairs_for(effect=1.0, deviation=1.0)
        10
    """
    counts = range(2, MOST_PAIRS + 1)
    return next((count for count in counts if power(effect, deviation, count, alpha) >= wanted), None)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple testing: without any effect, the smallest is below 5 % at most 5 % of the time.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.

    Example:
        >>> holm([0.04, 0.01, 0.03])
        [0.06, 0.03, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
