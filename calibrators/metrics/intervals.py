"""Confidence intervals, clustered by group, for the metrics where they cover."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.errors import CalibrationDataError
from calibrators.metrics.calibration_error import (
    classwise_calibration_error,
    debiased_calibration_error,
    debiased_statistic,
    expected_calibration_error,
)
from calibrators.metrics.refinement import auroc_statistic, refinement_auroc
from calibrators.metrics.rows import check_rows, top_labels, weighted_mean
from calibrators.metrics.scoring import accuracy, brier_score, log_losses, negative_log_likelihood, squared_errors
from calibrators.validation import as_groups, as_weight, check_count


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        estimate: The estimate itself.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage, such as 0.95.
    """

    estimate: float
    low: float
    high: float
    level: float


def bootstrap_interval(
    metric: Callable[..., float],
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a metric; whole groups are drawn where rows are not independent.

    Covers for `negative_log_likelihood`, `brier_score`, `accuracy`, `refinement_auroc` and
    `debiased_calibration_error` (at 95 %, some 96 % where a model is clearly miscalibrated, up to 99 % where it hardly
    is). The plug-in errors are refused: they are biased upwards, twice so when resampled, and the interval would miss
    the truth; give them the null distribution of `calibration_test` instead.

    Args:
        metric: One of those, or ``functools.partial`` of one with its options (``bins``, ``scheme``, ``predicted``).
        probabilities: (N, K), rows sum to one.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        groups: (N,) integers or strings, equal for rows that belong together, or None: every row on its own.
        level: Coverage, in (0, 1).
        resamples: Number of bootstrap samples.
        seed: Seed of their draws.

    Returns:
        The metric on all rows, and its interval.

    Raises:
        CalibrationDataError: A metric without a valid interval, fewer than two groups, an infinite loss, wrong shapes,
            types, values or options; or more than 1 % of the samples leave the metric undefined.

    References:
        Efron (1979); clusters: Davison, Hinkley (1997), Bootstrap methods and their application, section 3.8.

    Example:
        >>> import numpy as np
        >>> p = np.tile([[0.8, 0.2]], (100, 1))
        >>> interval = bootstrap_interval(brier_score, p, np.arange(100) % 5 == 0, resamples=200)
        Traceback (most recent call last):
        calibrators.errors.CalibrationDataError: Wrong type: labels is of type bool; expected integers
        >>> interval = bootstrap_interval(brier_score, p, (np.arange(100) % 5 == 0).astype(int), resamples=200)
        >>> interval.low < 0.32 < interval.high
        True
    """
    check_level(level)
    check_count(resamples, "resamples")
    check_count(seed, "seed", least=0)
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    estimate = metric(matrix, truth, sample_weight=weight)
    if not math.isfinite(estimate):
        raise CalibrationDataError(
            "No interval", where="the metric", found=f"{estimate} on these rows", expected="a finite value"
        )
    statistic = _statistic(metric, matrix, truth)
    cluster = as_groups(groups, len(truth))
    count = _check_clusters(len(truth) if cluster is None else int(cluster.max()) + 1)
    base = np.ones(len(truth)) if weight is None else weight
    rng = np.random.default_rng(seed)
    values = np.empty(resamples)
    for i in range(resamples):
        drawn = np.bincount(rng.integers(count, size=count), minlength=count)
        values[i] = statistic(base * (drawn if cluster is None else drawn[cluster]))
    undefined = np.isnan(values)
    if undefined.mean() > 0.01:
        raise CalibrationDataError(
            "No interval",
            where="the metric",
            found=f"undefined in {int(undefined.sum())} of {resamples} bootstrap samples",
            expected="more rows of the rarer kind",
        )
    low, high = np.quantile(values[~undefined], [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level)


def paired_interval(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
) -> Interval:
    """Interval for the mean of ``first − second``, two losses of the same rows, clustered by group.

    The standard error adds up residuals within groups (cluster-robust), and Student's t with one degree of freedom
    less than there are groups gives the width. Right for differences with moderate tails; for a rare class, whose few
    rows carry the difference, it is too narrow, and a bound that always holds is wanted instead.

    Args:
        first: (N,) finite losses, N ≥ 2.
        second: (N,) finite losses of the same rows.
        groups: (N,) integers or strings, equal for rows that belong together, or None: every row on its own.
        sample_weight: (N,) importance weights of 0 or more, or None.
        level: Coverage, in (0, 1).

    Raises:
        CalibrationDataError: Wrong shapes or values, or fewer than two groups.

    References:
        Liang, Zeger (1986), Longitudinal data analysis using generalized linear models.

    Example:
        >>> paired_interval([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
        Interval(estimate=1.0, low=1.0, high=1.0, level=0.95)
    """
    check_level(level)
    difference = _losses(first, "first", None) - _losses(second, "second", np.shape(first))
    rows = len(difference)
    weight = as_weight(sample_weight, rows)
    cluster = as_groups(groups, rows)
    if weight is not None:
        kept = weight > 0
        difference, weight = difference[kept], weight[kept]
        cluster = None if cluster is None else as_groups(cluster[kept], len(weight))
    base = np.ones(len(difference)) if weight is None else weight
    estimate = weighted_mean(difference, weight)
    influence = base * (difference - estimate) / base.sum()
    if cluster is not None:
        influence = np.bincount(cluster, influence)
    count = _check_clusters(len(influence))
    error = math.sqrt(float(influence @ influence) * count / (count - 1))
    reach = float(special.stdtrit(count - 1, (1 + level) / 2)) * error
    return Interval(estimate, estimate - reach, estimate + reach, level)


def _statistic(metric: Callable[..., float], probabilities: Floats, labels: Labels) -> Callable[[Doubles], float]:
    """The metric as a function of weights alone, with all that does not depend on them done once."""
    options = dict(metric.keywords) if isinstance(metric, functools.partial) else {}
    function = metric.func if isinstance(metric, functools.partial) else metric
    if function is negative_log_likelihood:
        return _mean(log_losses(probabilities, labels))
    if function is brier_score:
        return _mean(squared_errors(probabilities, labels))
    # Resampled counts come in as importance weights: a row drawn twice is one row of twice the influence, so that the
    # debiased error takes off the noise of the sample and that of the resampling both.
    rows = top_labels(probabilities, labels, None, options.pop("predicted", None))
    if function is accuracy:
        return _mean(rows.correct.astype(np.float64))
    if function is refinement_auroc:
        return auroc_statistic(rows)
    if function is debiased_calibration_error:
        return debiased_statistic(rows, **options)
    if function in (expected_calibration_error, classwise_calibration_error):
        raise CalibrationDataError(
            "No interval covers a plug-in calibration error",
            where="metric",
            found=function.__name__,
            expected="calibration_test for its null distribution, or debiased_calibration_error",
        )
    raise CalibrationDataError(
        "Unknown metric",
        where="metric",
        found=repr(function),
        expected="negative_log_likelihood, brier_score, accuracy, refinement_auroc or debiased_calibration_error",
    )


def _mean(values: Doubles) -> Callable[[Doubles], float]:
    # Only rows of weight zero can be infinite here: the metric on all rows was finite.
    finite = np.where(np.isfinite(values), values, 0.0)
    return lambda weight: float(finite @ weight / weight.sum())


def check_level(level: float) -> None:
    """Refuses a coverage outside (0, 1)."""
    if not 0 < level < 1:
        raise CalibrationDataError("Bad option", where="level", found=repr(level), expected="a number in (0, 1)")


def _check_clusters(count: int) -> int:
    if count < 2:
        raise CalibrationDataError(
            "Too few rows", where="groups", found=f"{count} independent group(s)", expected="2 or more"
        )
    return count


def _losses(values: ArrayLike, name: str, shape: tuple[int, ...] | None) -> Doubles:
    losses = np.asarray(values, dtype=np.float64)
    if losses.ndim != 1 or (shape is not None and losses.shape != shape):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=f"an array of shape {losses.shape}", expected=f"shape {shape or '(rows,)'}"
        )
    if not np.isfinite(losses).all():
        row = int(np.argmin(np.isfinite(losses)))
        raise CalibrationDataError(
            "Bad loss", where=f"{name}[{row}]", found=str(losses[row]), expected="a finite number"
        )
    return losses
