"""Exact binomial tests and bounds, and the number of labels that a promise needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray


def critical_errors(n: NDArray[np.int64], tolerance: float, level: float) -> NDArray[np.float64]:
    """Return the largest number of errors with which n rows reject "the error rate exceeds the tolerance".

    Args:
        n: Numbers of rows, any shape.
        tolerance: Largest error rate q in (0, 1) that keeps the promise.
        level: Level of the one-sided exact binomial test.

    Returns:
        Largest c with P(Binomial(n, q) ≤ c) ≤ level; −1 if even 0 errors do not reject.

    Example:
        >>> critical_errors(np.array([58, 59, 71, 72]), 0.05, 0.05)
        array([-1.,  0.,  0.,  0.])
    """
    if not level > 0:
        return np.full(np.shape(n), -1.0)  # a part of delta may round to 0: no test rejects
    n = np.asarray(n)
    if n.size > 1 and (low := int(n.min())) + n.size > (high := int(n.max())) + 1:  # fewer numbers than entries
        return critical_errors(np.arange(low, high + 1), tolerance, level)[n - low]
    z = float(scipy.special.ndtri(level))
    guess = n * tolerance + z * np.sqrt(n * tolerance * (1 - tolerance)) + (z**2 - 1) * (1 - 2 * tolerance) / 6 - 0.5
    critical: NDArray[np.float64] = np.clip(np.floor(guess), -1.0, n - 1.0)
    while True:
        up = p_value(critical + 1, n, tolerance) <= level
        down = (critical >= 0) & (p_value(critical, n, tolerance) > level)
        if not (up | down).any():
            return critical
        critical += up.astype(np.float64) - down


def p_value(errors: NDArray[Any], n: NDArray[Any], tolerance: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P(Binomial(n, q) ≤ errors); 1 without rows. Shapes broadcast."""
    rows = np.maximum(n, 1).astype(np.int64)
    return np.where(n > 0, scipy.special.bdtr(np.maximum(errors, 0.0), rows, tolerance), 1.0)


def labels_needed(n: int, errors: int, tolerance: float, level: float) -> int:
    """Return how many more rows, none of them an error, the test needs to succeed.

    Args:
        n: Rows in the denominator so far.
        errors: Errors among them.
        tolerance: Largest error rate q that keeps the promise.
        level: Level of the test.

    Returns:
        The smallest such number; 0 if the test already succeeds.

    Example:
        >>> labels_needed(0, 0, 0.05, 0.05), labels_needed(0, 0, 0.05, 0.025)
        (59, 72)
    """
    if scipy.special.bdtr(errors, max(n, 1), tolerance) <= level and n:
        return 0
    low, high = n, max(2 * n, 1)
    while scipy.special.bdtr(errors, high, tolerance) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if scipy.special.bdtr(errors, middle, tolerance) <= level else (middle, high)
    return high - n


def upper_share(count: int, of: int, level: float) -> float:
    """Return the exact one-sided upper bound of a share.

    Args:
        count: Rows with the property, 0 … `of`.
        of: All rows.
        level: Maximum probability in (0, 1) that the bound is below the share.

    Returns:
        A share in (0, 1]; 1 without rows.

    References:
        Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of
        the binomial. Biometrika 26, 404–413.

    Example:
        >>> round(upper_share(0, 59, 0.05), 3), upper_share(3, 3, 0.05)
        (0.05, 1.0)
    """
    return float(upper_shares(np.array(count), of, level))


def upper_shares(count: NDArray[Any], of: NDArray[Any] | int, level: float) -> NDArray[np.float64]:
    """Return `upper_share` of each count. Shapes broadcast."""
    return np.where(count < of, scipy.special.betainccinv(count + 1.0, np.maximum(of - count, 1.0), level), 1.0)


def lower_share(count: int, of: int, level: float) -> float:
    """Return the exact one-sided lower bound of a share; 0 without rows. See `upper_share`.

    Example:
        >>> lower_share(0, 59, 0.05), round(lower_share(59, 59, 0.05), 3)
        (0.0, 0.95)
    """
    return float(scipy.special.betaincinv(count, of - count + 1.0, level)) if count else 0.0


def share_interval(hits: NDArray[np.bool_], group: NDArray[np.intp]) -> tuple[float, float]:
    """Return a two-sided 95 % interval of a share among grouped rows: Clopper and Pearson's, with the effective rows.

    The effective number of rows is the number of independent rows with the same variance as the groups' sums, at most
    the number of rows. If all rows are hits, or none is, it is the number of groups.

    Args:
        hits: Whether each row has the property, shape (N,), N ≥ 1.
        group: Group numbers, from 0, shape (N,).

    References:
        Korn, E. L. and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of
        positive counts estimated from survey data. Survey Methodology 24, 193–201.

    Example:
        >>> low, high = share_interval(np.arange(20) < 15, np.arange(20))
        >>> round(low, 2), round(high, 2)
        (0.48, 0.92)
        >>> share_interval(np.array([True, True]), np.array([4, 4]))
        (0.025, 1.0)
    """
    rows = np.bincount(group)
    rows = rows[rows > 0]
    groups, share, tail = len(rows), float(hits.mean()), 0.025
    effective = float(groups)
    if 0 < share < 1:
        pulls = np.bincount(group, hits - share)
        variance = float(pulls @ pulls) / len(hits) ** 2 * groups / max(groups - 1, 1)
        quantiles = (
            float(scipy.special.ndtri(1 - tail)),
            float(scipy.special.stdtrit(max(groups - 1, 1), 1 - tail)),
        )
        effective = share * (1 - share) / variance * (quantiles[0] / quantiles[1]) ** 2 if variance > 0 else 1.0
        effective = min(effective, float(len(hits)))
    found = share * effective
    low = float(scipy.special.betaincinv(found, effective - found + 1, tail)) if share > 0 else 0.0
    high = float(scipy.special.betaincinv(found + 1, effective - found, 1 - tail)) if share < 1 else 1.0
    return low, high
