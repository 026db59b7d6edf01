"""Binned calibration errors: plug-in (ECE, RMS, maximum), class by class, and debiased."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
import scipy

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
    """Return the distance between confidence and accuracy over bins of confidence (ECE), in [0, 1].

    ``norm`` 1 is Σ share · |gap|; 2 is √(Σ share · gap²); ``"max"`` is the largest |gap|, for bins of any size.

    The error is biased upwards on finite data: a perfectly calibrated model scores above zero. Print it beside the null
    mean and quantile from `calibration_test` on the same rows.

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
    """Return the mean over classes of the calibration error of each class's probability, in [0, 1].

    ``norm`` is that of `expected_calibration_error`, within each class, and so is the upward bias. A class without
    labels counts too: its probabilities should be near zero.

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
    """Return the calibration error minus the part that noise adds; by default the **squared** error. At most 1.

    ``norm=2``: Σ share · (gap² − variance of the bin's accuracy). The estimate scatters about the truth, and about zero
    for a calibrated model, so a negative value is normal. `bootstrap_interval` gives its interval.

    ``norm=1``: 2 Σ share · |gap| − Σ share · E|gap + normal noise of that variance|, the ECE minus its bias by a
    parametric bootstrap, in closed form. An absolute value has no unbiased estimate: at a gap of zero 2 − √2 = 59 % of
    the bias stays, less at larger gaps. `bootstrap_interval` refuses it.

    A bin of one row says nothing about its noise and is left out. With importance weights the noise comes from per-row
    influence and the Kish effective number of rows.

    References:
        Kumar, Liang, Ma (2019), Verified uncertainty calibration, definition 4.1 (debiased estimator); norm 1: as in
        the authors' code, by resampling.

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
    # Around a mean estimated from the same rows, influence underestimates the variance by this factor on average, if
    # all rows of a bin are equally likely to be right; without weights it is (n − 1) / n.
    found = 1 - 2 * totals.noise_weight[kept] / (weight * totals.noise[kept]) + 1 / effective
    variance = np.maximum(influence, 0.0) / found
    debiased = gap**2 - variance if norm == 2 else 2 * np.abs(gap) - mean_distance(gap, np.sqrt(variance))
    return float(weight @ debiased / totals.weight.sum())


def mean_distance(centre: Doubles, deviation: Doubles) -> Doubles:
    """Return E|X| of normal variables X with these means and standard deviations of 0 or more."""
    standard = np.divide(centre, deviation, out=np.zeros_like(centre), where=deviation > 0)
    spread = deviation * math.sqrt(2 / math.pi) * np.exp(-0.5 * standard**2)
    return np.where(deviation > 0, spread + centre * scipy.special.erf(standard / math.sqrt(2)), np.abs(centre))


def binned_error(rows: TopLabels, bins: int, scheme: Scheme, norm: Norm) -> float:
    """Return the plug-in calibration error of rows already read."""
    return _combined(bin_totals(rows, bins, scheme), norm)


def _combined(totals: BinTotals, norm: Norm) -> float:
    difference = totals.confidence - totals.correct
    return float(combine_gaps(difference / totals.weight, totals.weight / totals.weight.sum(), norm))


def combine_gaps(gaps: Doubles, share: Doubles, norm: Norm) -> Doubles:
    """Combine gaps (…, B) of bins with shares (B,) of all weight into one error (…)."""
    if norm == 1:
        return np.asarray(np.abs(gaps) @ share)
    if norm == 2:
        return np.asarray(np.sqrt(gaps**2 @ share))
    return np.asarray(np.abs(gaps).max(axis=-1))
