"""Bounds for the mean of clustered differences, corrected for skewness."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray


def upper_bound(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], worst: NDArray[np.float64], level: float
) -> NDArray[np.float64]:
    """Return a one-sided upper bound of a mean difference that is valid even if the harm is in few rows.

    A pseudo-group, in which every label is the worst possible one, is added to the sample. The t-bound is then
    corrected for skewness. Positive skewness (harm in few rows) uses the second-order term that makes the bound nearly
    exact for a Poisson number of equal losses; negative skewness uses Hall's transformation.

    Args:
        sums: Sum of the differences of each of G ≥ 2 groups, shape (…, G).
        sizes: Rows in each group, shape (…, G).
        worst: Largest sum of any group if its labels were the worst for the candidate, at least 0, shape (…).
        level: Probability in (0, 0.5) that the bound is below the mean.

    Returns:
        Upper bounds, shape (…).

    References:
        Hall, P. (1992). On the removal of skewness by transformation. JRSS B 54, 221–228.

    Example:
        >>> differences = np.linspace(-0.3, 0.1, 400)
        >>> upper_bound(differences, np.ones(400), np.array(0.2), 0.025).round(4)
        np.float64(-0.0878)
    """
    pseudo = np.mean(sizes, axis=-1, keepdims=True)
    sums = np.concatenate([sums, np.asarray(worst)[..., None]], axis=-1)
    sizes = np.concatenate([sizes, pseudo], axis=-1)
    mean, error, skewness = _moments(sums, sizes)
    quantile = float(scipy.special.stdtrit(sums.shape[-1] - 1, 1.0 - level))
    poisson = quantile + skewness * (quantile**2 - 1.0) / 3.0
    return mean + error * np.where(skewness > 0, poisson, -_hall(-quantile, skewness))


def interval(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], level: float = 0.05
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a two-sided interval of a mean difference, clustered by group and corrected for skewness.

    Args:
        sums: Sum of the differences of each of G ≥ 2 groups, shape (…, G).
        sizes: Rows in each group, shape (…, G).
        level: One minus the coverage.

    Returns:
        Lower and upper ends, each of shape (…).

    References:
        Hall, P. (1992). On the removal of skewness by transformation. JRSS B 54, 221–228.
    """
    mean, error, skewness = _moments(sums, sizes)
    quantile = float(scipy.special.stdtrit(sums.shape[-1] - 1, 1.0 - level / 2))
    return mean - error * _hall(quantile, skewness), mean - error * _hall(-quantile, skewness)


def _moments(
    sums: NDArray[np.float64], sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the ratio estimate of the mean, its standard error, and the skewness of the estimate."""
    groups, rows = sums.shape[-1], sizes.sum(axis=-1)
    mean = sums.sum(axis=-1) / rows
    residuals = sums - mean[..., None] * sizes
    squares = (residuals**2).sum(axis=-1)
    error = np.sqrt(squares * groups / (groups - 1)) / rows
    skewness = np.divide((residuals**3).sum(axis=-1), squares**1.5, out=np.zeros_like(squares), where=squares > 0)
    return mean, error, skewness


def _hall(quantile: float, skewness: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the t statistic whose Hall transform is the quantile; `skewness` is that of the estimate."""
    some = np.where(np.abs(skewness) < 1e-9, 1e-9, skewness)
    return 3.0 / some * (np.cbrt(1.0 + some * (quantile - some / 6.0)) - 1.0)
