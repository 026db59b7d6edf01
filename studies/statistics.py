"""Means over seeds and tests of their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


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
    """Difference of two means, by a t-test.

    Attributes:
        difference: Mean of the first minus mean of the second.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p_value: Two-sided.
    """

    difference: float
    low: float
    high: float
    p_value: float


def welch(first: Spread | None, second: Spread | None) -> Comparison | None:
    """Compare two means whose variances may differ; None if either has fewer than two values, or nothing varies.

    Example:
        >>> compared = welch(Spread((1.0, 2.0, 3.0)), Spread((4.0, 6.0, 8.0)))
        >>> round(compared.difference, 3), round(compared.p_value, 3)
        (-4.0, 0.055)
    """
    if first is None or second is None or min(len(first.values), len(second.values)) < 2:
        return None
    if first.deviation == second.deviation == 0:
        return None
    # scipy's own test warns if one side hardly varies, as accuracies of few seeds may.
    noises = [side.deviation**2 / len(side.values) for side in (first, second)]
    variance = sum(noises)
    freedom = variance**2 / sum(
        noise**2 / (len(side.values) - 1) for noise, side in zip(noises, (first, second), strict=True)
    )
    return _by_t(first.mean - second.mean, math.sqrt(variance), freedom)


def paired(first: Spread | None, second: Spread | None) -> Comparison | None:
    """Compare two numbers of each network, such as before and after scaling, by their differences.

    None if there are fewer than two networks, the two do not belong to the same ones, or the differences do not vary.

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
    return _by_t(differences.mean, error, count - 1)


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


def _by_t(difference: float, error: float, freedom: float) -> Comparison:
    """Compare by a difference, its standard error and degrees of freedom."""
    width = float(stats.t.ppf(0.975, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    return Comparison(difference, difference - width, difference + width, p_value)
