"""Confidence intervals, and the interval of a mean difference of losses, clustered by group."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError, shown
from calibrators.metrics.rows import check_weight_kind, noise_weight, weighted_mean
from calibrators.validation import as_array, as_groups, as_weight, check_shape


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        estimate: The estimate.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage, such as 0.95.
    """

    estimate: float
    low: float
    high: float
    level: float


def paired_interval(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
    weight_kind: WeightKind = "importance",
) -> Interval:
    """Return the interval of the mean of ``first − second``, two losses (N,) of the same rows, clustered by group.

    ``groups`` (N,) are integers or strings, equal for rows that belong together; None: independent rows. The standard
    error adds up residuals within groups (cluster-robust), and Student's t with one degree of freedom less than there
    are groups gives the width. It suits differences with moderate tails; it is too narrow for a rare class, whose few
    rows carry the difference.

    Raises:
        CalibrationDataError: Wrong shapes, values or options, or fewer than two groups.

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
    check_weight_kind(sample_weight, weight_kind)
    cluster = as_groups(groups, rows)
    if weight is not None:
        kept = weight > 0
        difference, weight = difference[kept], weight[kept]
        cluster = None if cluster is None else as_groups(cluster[kept], len(weight))
    base = np.ones(len(difference)) if weight is None else weight
    estimate = weighted_mean(difference, weight)
    if cluster is None:
        count = check_clusters(independent_rows(weight, len(difference), weight_kind))
        noise = noise_weight(weight, len(difference), weight_kind)
        variance = float(noise @ (difference - estimate) ** 2) / base.sum() ** 2
    else:
        influence = np.bincount(cluster, base * (difference - estimate)) / base.sum()
        count = check_clusters(len(influence))
        variance = float(influence @ influence)
    error = math.sqrt(variance * count / (count - 1))
    reach = float(scipy.special.stdtrit(count - 1, (1 + level) / 2)) * error
    return Interval(estimate, estimate - reach, estimate + reach, level)


def independent_rows(weight: Doubles | None, rows: int, kind: WeightKind) -> int:
    """Return the number of rows; a row seen w times counts w times."""
    return rows if weight is None or kind == "importance" else int(weight.sum())


def check_level(level: float) -> None:
    """Refuse a coverage outside (0, 1)."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise CalibrationDataError("Bad option", where="level", found=shown(level), expected="a number in (0, 1)")


def check_clusters(count: int) -> int:
    """Refuse fewer than two independent groups."""
    if count < 2:
        raise CalibrationDataError(
            "Too few rows", where="groups", found=f"{count} independent group(s)", expected="2 or more"
        )
    return count


def _losses(values: ArrayLike, name: str, shape: tuple[int, ...] | None) -> Doubles:
    losses = as_array(values, name)
    if losses.dtype.kind not in "fiu":
        raise CalibrationDataError("Wrong type", where=name, found=f"of type {losses.dtype}", expected="numbers")
    losses = losses.astype(np.float64, copy=False)
    check_shape(losses, (losses.size,) if shape is None else shape, name)
    if not np.isfinite(losses).all():
        row = int(np.argmin(np.isfinite(losses)))
        raise CalibrationDataError(
            "Bad loss", where=f"{name}[{row}]", found=str(losses[row]), expected="a finite number"
        )
    return losses
