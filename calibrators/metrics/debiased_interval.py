"""Confidence interval of the squared calibration error, by inverting a test.

Near zero neither the normal approximation nor the percentile bootstrap holds: the debiased estimate is a quadratic
form there, skewed, and its first-order variance vanishes with the gaps. With h the vector of √share · gap, about
normal with mean η and covariance S, |h|² has cumulants 2 tr S² + 4 η'Sη (variance) and 8 tr S³ + 24 η'S²η (third)
about its mean, at η = 0 and far from it; a shifted gamma distribution with these gives the p-values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from calibrators.arrays import Doubles, Labels
from calibrators.binning import Scheme, bin_edges, bin_index
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError
from calibrators.metrics.bin_totals import check_bins
from calibrators.metrics.rows import TopLabels, noise_weight

# At zero the test is one-sided, so that a calibrated model is rejected with probability 1 − level exactly and
# the interval is never empty; from this many standard deviations of the null on, it has two equal tails.
_DEVIATIONS_TO_TWO_TAILS = 2.0


@dataclass(frozen=True, slots=True)
class _Spread:
    """Gaps over bins, and how they scatter; B bins with rows.

    Attributes:
        estimate: Unbiased estimate of the squared error, from pairs of independent rows.
        gaps: (B,) h.
        covariance: (B, B) S.
    """

    estimate: float
    gaps: Doubles
    covariance: Doubles


def debiased_interval(
    rows: TopLabels, cluster: Labels | None, level: float, bins: int, scheme: Scheme, weight_kind: WeightKind
) -> tuple[float, float, float]:
    """Return estimate and interval (low, high) of Σ share · gap² over the bins.

    ``cluster`` (N,) numbers the rows' groups from zero; None: independent rows.

    Raises:
        CalibrationDataError: Bad options, or no bin with two independent rows.
    """
    check_bins(bins, scheme)
    spread = _spread(rows, cluster, bins, scheme, weight_kind)
    gaps, square = spread.gaps, spread.covariance @ spread.covariance
    second, third = float(np.trace(square)), float(np.vdot(square, spread.covariance))
    if second == 0:
        return spread.estimate, max(spread.estimate, 0.0), max(spread.estimate, 0.0)
    length = float(gaps @ gaps)
    # η'Sη and η'S²η of a hypothesised error, in the direction of the observed gaps.
    along = float(gaps @ spread.covariance @ gaps) / length
    along_square = float(gaps @ square @ gaps) / length
    ramp = _DEVIATIONS_TO_TWO_TAILS * math.sqrt(2 * second)

    def below(truth: float) -> float:
        """Return the probability of an estimate as low as the observed one."""
        variance = 2 * second + 4 * truth * along
        skewed = 8 * third + 24 * truth * along_square
        shape = 4 * variance**3 / skewed**2
        return float(
            scipy.special.gammainc(shape, max(shape + (spread.estimate - truth) * math.sqrt(shape / variance), 0.0))
        )

    def lower_tail(truth: float) -> float:
        return (1 - level) / 2 * min(1.0, truth / ramp)

    def above(truth: float) -> float:
        """Return a negative number if the estimate is too high for this truth."""
        return level + lower_tail(truth) - below(truth)

    def under(truth: float) -> float:
        """Return a negative number if the estimate is too low for this truth."""
        return below(truth) - lower_tail(truth)

    return spread.estimate, _crossing(above), _crossing(under)


def _spread(rows: TopLabels, cluster: Labels | None, bins: int, scheme: Scheme, weight_kind: WeightKind) -> _Spread:
    places = bin_index(rows.confidence, bin_edges(rows.confidence, bins, scheme, rows.weight))
    index = np.unique(places, return_inverse=True)[1]
    size = int(index.max()) + 1
    residuals = rows.confidence.astype(np.float64) - rows.correct
    weight = np.ones(len(index)) if rows.weight is None else rows.weight
    total = weight.sum()
    share = np.bincount(index, weight, size) / total
    mean = np.bincount(index, weight * residuals, size) / total
    gaps = mean / np.sqrt(share)
    # A row's effect on h, up to a constant: through its bin's mean and its bin's share.
    moves = (residuals - (mean / share)[index] / 2) / np.sqrt(share)[index]
    products: Doubles
    if cluster is None:
        noise = noise_weight(rows.weight, len(index), weight_kind) / total**2
        products = np.diag(np.bincount(index, noise * moves**2, size).astype(np.float64))
        crossed, every = np.bincount(index, noise * moves, size), float(noise.sum())
        own, pairs = np.bincount(index, noise * residuals**2, size), np.bincount(index, noise, size)
    else:
        count = int(cluster.max()) + 1

        def summed(values: Doubles) -> scipy.sparse.csr_array[np.float64]:
            return scipy.sparse.csr_array((weight * values / total, (cluster, index)), shape=(count, size))

        moved, mass = summed(moves), np.bincount(cluster, weight, count) / total
        products, crossed, every = (moved.T @ moved).toarray(), moved.T @ mass, float(mass @ mass)
        own, pairs = (
            np.asarray(part.multiply(part).sum(axis=0)) for part in (summed(residuals), summed(np.ones(len(index))))
        )
    half = gaps / 2
    covariance = products - np.outer(crossed, half) - np.outer(half, crossed) + every * np.outer(half, half)
    free = share**2 - pairs
    known = free > 1e-9 * share**2
    if not known.any():
        raise CalibrationDataError(
            "Too few rows",
            where="probabilities",
            found="without two independent rows in any bin",
            expected="more rows or fewer bins",
        )
    # Residuals about a bin's own mean are too small by the share of independent pairs.
    scale = np.sqrt(np.divide(share**2, free, out=np.ones(size), where=known))
    estimate = float(share[known] @ ((mean**2 - own)[known] / free[known]))
    return _Spread(estimate, gaps, covariance * np.outer(scale, scale))


def _crossing(test: Callable[[float], float]) -> float:
    """Return where a monotone function changes its sign in [0, 1]; else the end nearer to it."""
    first, last = test(0.0), test(1.0)
    if first * last >= 0:
        return 0.0 if abs(first) <= abs(last) else 1.0
    return float(scipy.optimize.brentq(test, 0.0, 1.0, xtol=1e-15, rtol=1e-10))
