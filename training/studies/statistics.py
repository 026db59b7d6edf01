"""Means over seeds, and whether they differ."""

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
        """Their mean."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """Their sample standard deviation, divisor n − 1; NaN for one value."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


def spread(values: Sequence[float | None], scale: float = 1.0) -> Spread | None:
    """The values that are numbers, times `scale`; None where there are none."""
    known = tuple(scale * value for value in values if value is not None and math.isfinite(value))
    return Spread(known) if known else None


@dataclass(frozen=True)
class Comparison:
    """Difference of two means, by Welch's test.

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


def welch(first: Spread, second: Spread) -> Comparison | None:
    """Compare two means whose variances may differ; None where one has fewer than two values, or nothing varies.

    Example:
        >>> compared = welch(Spread((1.0, 2.0, 3.0)), Spread((4.0, 6.0, 8.0)))
        >>> round(compared.difference, 3), round(compared.p_value, 3)
        (-4.0, 0.055)
    """
    if min(len(first.values), len(second.values)) < 2 or first.deviation == second.deviation == 0:
        return None
    # scipy's own test warns where one side hardly varies, as accuracies of few seeds may.
    noises = [side.deviation**2 / len(side.values) for side in (first, second)]
    variance = sum(noises)
    freedom = variance**2 / sum(
        noise**2 / (len(side.values) - 1) for noise, side in zip(noises, (first, second), strict=True)
    )
    difference, error = first.mean - second.mean, math.sqrt(variance)
    width = float(stats.t.ppf(0.975, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    return Comparison(difference, difference - width, difference + width, p_value)
