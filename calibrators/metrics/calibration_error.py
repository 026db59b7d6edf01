"""Binned calibration errors: plug-in (ECE, RMS, maximum), class by class, and debiased."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from calibrators.arrays import ArrayLike, Doubles
from calibrators.binning import Scheme
from calibrators.effective_rows import WeightKind
from calibrators.metrics.bin_totals import BinTotals, bin_totals, check_bins
from calibrators.metrics.class_totals import class_totals
from calibrators.metrics.rows import TopLabels, check_weight_kind, noise_weight, top_labels
from calibrators.validation import check_choice

Norm: TypeAlias = Literal[1, 2, "max"]
NORMS: tuple[Norm, ...] = (1, 2, "max")
DEBIASED_NORMS = (1, 2)


def expected_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    norm: Norm = 1,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> float:
    """Distance between confidence and accuracy over bins of confidence (ECE).

    It is biased upwards on finite data: a perfectly calibrated model scores above zero. Print it beside the null mean
    and quantile that `calibration_test` gives for the same rows.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins.
        scheme: ``"width"``: equal width over [0, 1]; ``"mass"``: equal numbers of rows, ties never split.
        norm: 1: Σ share · |gap|; 2: √(Σ share · gap²); ``"max"``: the largest |gap|, whatever the bin's size.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        positive: None: the predicted label; a class: its probability, against whether it is the true one.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Naeini, Cooper, Hauskrecht (2015); Guo et al. (2017), eq. 3 and 5; norm 2: Kumar, Liang, Ma (2019), section 2.

    Example:
        >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_bins(bins, scheme)
    check_choice(norm, NORMS, "norm")
    return binned_error(top_labels(probabilities, labels, sample_weight, predicted, positive), bins, scheme, norm)


def classwise_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    norm: Norm = 1,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over the classes of the calibration error of each class's probability.

    A class that the labels lack counts as any other: its probabilities should be near zero. Biased upwards, as
    `expected_calibration_error` is.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins for each class.
        scheme: ``"width"`` or ``"mass"``.
        norm: 1, 2 or ``"max"``, within each class.
        sample_weight: (N,) importance weights of 0 or more, or None.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Kull et al. (2019), Beyond temperature scaling, section 2.

    Example:
        >>> round(classwise_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_bins(bins, scheme)
    check_choice(norm, NORMS, "norm")
    classes = class_totals(probabilities, labels, bins, scheme, sample_weight)
    return float(np.mean([_combined(totals, norm) for totals in classes]))


def debiased_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
    *,
    norm: Literal[1, 2] = 2,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    weight_kind: WeightKind = "importance",
) -> float:
    """Calibration error less what noise adds to it; by default the **squared** error.

    ``norm=2``: Σ share · (gap² − variance of the bin's accuracy). What noise adds to gap² on average is taken off, so
    the estimate scatters about the truth, and about zero for a calibrated model: a negative value is no fault.
    `bootstrap_interval` gives its interval.

    ``norm=1``: 2 Σ share · |gap| − Σ share · E|gap + normal noise of that variance|, the expected calibration error
    less its bias as a parametric bootstrap has it, in closed form. An absolute value has no unbiased estimate: where a
    bin's gap is zero, 2 − √2 = 59 % of the bias stays, and less the larger the gap. `bootstrap_interval` refuses it.

    A bin of one row says nothing about its noise and is left out. With importance weights the noise is that of per-row
    influence and the Kish effective number of rows.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins.
        scheme: ``"width"`` or ``"mass"``.
        sample_weight: (N,) weights of 0 or more, or None.
        norm: 2, in squared probability, or 1, in probability.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        positive: None: the predicted label; a class: its probability, against whether it is the true one.
        weight_kind: ``"importance"``, or ``"frequency"``: whole numbers, how often each row was seen.

    Returns:
        At most 1; may be negative.

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Kumar, Liang, Ma (2019), Verified uncertainty calibration, definition 4.1 (debiased estimator); norm 1: as the
        authors' code has it, by resampling.

    Example:
        >>> round(debiased_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        -0.09
    """
    check_bins(bins, scheme)
    check_choice(norm, DEBIASED_NORMS, "norm")
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    check_weight_kind(sample_weight, weight_kind)
    importance = rows.weight is not None and weight_kind == "importance"
    noise = noise_weight(rows.weight, len(rows.correct), weight_kind) if importance else None
    totals = bin_totals(rows, bins, scheme, noise)
    effective = totals.weight**2 / totals.noise
    kept = effective > 1 + 1e-9
    effective, weight = effective[kept], totals.weight[kept]
    right = totals.correct[kept] / weight
    gap = totals.confidence[kept] / weight - right
    influence = (totals.noise_correct[kept] * (1 - 2 * right) + totals.noise[kept] * right**2) / weight**2
    # About a mean that the rows themselves give, influence falls short of the variance by this share on average, where
    # all rows of a bin are equally likely to be right; without weights it is (n − 1) / n.
    found = 1 - 2 * totals.noise_weight[kept] / (weight * totals.noise[kept]) + 1 / effective
    variance = np.maximum(influence, 0.0) / found
    debiased = gap**2 - variance if norm == 2 else 2 * np.abs(gap) - mean_distance(gap, np.sqrt(variance))
    return float(weight @ debiased / totals.weight.sum())


def mean_distance(centre: Doubles, deviation: Doubles) -> Doubles:
    """E|X| of normal variables X with the given means and standard deviations of 0 or more."""
    standard = np.divide(centre, deviation, out=np.zeros_like(centre), where=deviation > 0)
    spread = deviation * math.sqrt(2 / math.pi) * np.exp(-0.5 * standard**2)
    return np.where(deviation > 0, spread + centre * special.erf(standard / math.sqrt(2)), np.abs(centre))


def binned_error(rows: TopLabels, bins: int, scheme: Scheme, norm: Norm) -> float:
    """The plug-in calibration error of rows that have been read."""
    return _combined(bin_totals(rows, bins, scheme), norm)


def _combined(totals: BinTotals, norm: Norm) -> float:
    difference = totals.confidence - totals.correct
    return float(combine_gaps(difference / totals.weight, totals.weight / totals.weight.sum(), norm))


def combine_gaps(gaps: Doubles, share: Doubles, norm: Norm) -> Doubles:
    """Combines gaps (…, B) of bins that hold the given shares (B,) of all weight into one error (…)."""
    if norm == 1:
        return np.asarray(np.abs(gaps) @ share)
    if norm == 2:
        return np.asarray(np.sqrt(gaps**2 @ share))
    return np.asarray(np.abs(gaps).max(axis=-1))
