"""The calibration error of a calibrated model on the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.binning import Scheme, bin_edges, bin_index
from calibrators.effective_rows import WeightKind
from calibrators.metrics.bin_totals import check_bins
from calibrators.metrics.calibration_error import NORMS, Norm, binned_error, combine_gaps
from calibrators.metrics.rows import TopLabels, check_weight_kind, top_labels
from calibrators.validation import check_choice, check_count, check_resamples

_ROWS_DRAWN_SINGLY = 4_096
_CELLS_PER_UNIT = 2_048
_DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class CalibrationTest:
    """A calibration error beside its distribution under perfect calibration.

    Attributes:
        error: The observed error.
        p_value: Share of calibrated worlds with an error at least as large, counting the observed one; in (0, 1].
        null_mean: Mean error of calibrated worlds at this sample size.
        null_quantile: Their 95 % quantile.
        resamples: Number of calibrated worlds drawn.
    """

    error: float
    p_value: float
    null_mean: float
    null_quantile: float
    resamples: int

    @property
    def warning(self) -> str | None:
        """A warning if the error is above the 95 % quantile of calibrated worlds; None otherwise."""
        return above_null(self.error, self.null_quantile)


def above_null(error: float, null_quantile: float, label: str | None = None) -> str | None:
    """Return a warning if a calibration error is above the 95 % quantile of calibrated worlds; None otherwise.

    Args:
        error: The error.
        null_quantile: The quantile.
        label: Class whose probability it is about; None for the predicted label.

    >>> above_null(0.0103, 0.0099)
    'Not calibrated: the ECE is 1.03%. On these rows, 95 % of calibrated models have less than 0.99%.'
    """
    if error <= null_quantile:
        return None
    digits = next((each for each in (1, 2, 3) if f"{error:.{each}%}" != f"{null_quantile:.{each}%}"), 4)
    of_class = "" if label is None else f" for {label!r}"
    return (
        f"Not calibrated{of_class}: the ECE is {error:.{digits}%}. On these rows, 95 % of calibrated models have less "
        f"than {null_quantile:.{digits}%}."
    )


def calibration_test(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    norm: Norm = 1,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    resamples: int = 1_000,
    seed: int = 0,
    weight_kind: WeightKind = "importance",
) -> CalibrationTest:
    """Test whether an expected calibration error is more than noise, by drawing labels from the probabilities.

    In each of ``resamples`` worlds every judged label is right with exactly its confidence; the same rows, bins and
    weights give that world's error. So the level is exact for any number of rows: if every confidence holds, P(p-value
    ≤ α) ≤ α. With frequency weights a row is drawn as often as it was seen. Above 4,096 rows without importance
    weights, rows of one bin whose confidences differ by less than 1/2048 are drawn together. A large p-value is not a
    proof of calibration: the data may be few.

    References:
        Bröcker, Smith (2007), Increasing the reliability of reliability diagrams (consistency resampling);
        Vaicenavicius et al. (2019), Evaluating model calibration in classification, section 5.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.uniform(0.5, 1.0, 1000)
        >>> result = calibration_test(np.stack([p, 1 - p], axis=1), (rng.random(1000) > p).astype(int))
        >>> result.p_value > 0.05, 0.01 < result.null_mean < result.null_quantile < 0.06
        (True, True)
    """
    check_bins(bins, scheme)
    check_choice(norm, NORMS, "norm")
    check_resamples(resamples)
    check_count(seed, "seed", least=0)
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    check_weight_kind(sample_weight, weight_kind)
    error = binned_error(rows, bins, scheme, norm)
    null = null_errors(rows, bins, scheme, norm, resamples, seed, weight_kind)
    # The slack counts a world that equals the observed one up to rounding as equal.
    extreme = int(np.count_nonzero(null >= error - 1e-12))
    return CalibrationTest(
        error, (1 + extreme) / (1 + resamples), float(null.mean()), float(np.quantile(null, 0.95)), resamples
    )


def null_errors(
    rows: TopLabels,
    bins: int,
    scheme: Scheme,
    norm: Norm,
    resamples: int,
    seed: int,
    weight_kind: WeightKind = "importance",
) -> Doubles:
    """Return errors (resamples,) of worlds in which every confidence is right; arguments as `calibration_test`."""
    index = bin_index(rows.confidence, bin_edges(rows.confidence, bins, scheme, rows.weight))
    confidence, weight = rows.confidence.astype(np.float64), rows.weight
    counts = np.ones(len(index), np.int64)
    if weight is not None and weight_kind == "frequency":
        counts, weight = weight.astype(np.int64), None
    if weight is None and len(index) > _ROWS_DRAWN_SINGLY:
        cell = index * (_CELLS_PER_UNIT + 1) + (confidence * _CELLS_PER_UNIT).astype(np.intp)
        firsts, cell = np.unique(cell, return_inverse=True)
        stated = np.bincount(cell, counts * confidence)
        counts = np.bincount(cell, counts).astype(np.int64)
        index, chance = firsts // (_CELLS_PER_UNIT + 1), np.minimum(stated / counts, 1.0)
    else:
        order = np.argsort(index, kind="stable")
        index, chance, counts = index[order], confidence[order], counts[order]
        weight = None if weight is None else weight[order]
    weight = np.ones(len(counts)) if weight is None else weight
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    total = np.add.reduceat(weight * counts, starts)
    expected = weight * chance * counts
    rng = np.random.default_rng(seed)
    errors = np.empty(resamples)
    step = max(1, _DRAWS_AT_ONCE // len(index))
    for first in range(0, resamples, step):
        worlds = errors[first : first + step]
        shape = (len(worlds), len(index))
        hits = rng.random(shape) < chance if counts.max() == 1 else rng.binomial(counts, chance, shape)
        gaps = np.add.reduceat(expected - weight * hits, starts, axis=1) / total
        worlds[:] = combine_gaps(gaps, total / total.sum(), norm)
    return errors
