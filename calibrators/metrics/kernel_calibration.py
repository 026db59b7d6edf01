"""Kernel calibration error of whole distributions, without bins, for any number of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.chunks import probability_chunks
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import check_rows, check_weight_kind
from calibrators.validation import check_count, check_resamples

_ROWS_A_BLOCK = 512


@dataclass(frozen=True, slots=True)
class KernelCalibrationTest:
    """A kernel calibration error beside its distribution under perfect calibration.

    Attributes:
        error: Unbiased estimate of the squared kernel calibration error; scatters about 0 for a calibrated model.
        p_value: Share of calibrated worlds with an error at least as large, counting the observed one; in (0, 1].
        null_quantile: The 95 % quantile of the error in calibrated worlds.
        width: Width of the kernel.
    """

    error: float
    p_value: float
    null_quantile: float
    width: float


def kernel_calibration_test(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    width: float | None = None,
    resamples: int = 199,
    seed: int = 0,
    weight_kind: WeightKind = "importance",
) -> KernelCalibrationTest:
    """Test the calibration of the whole distribution instead of the top label alone.

    With r_i the residual (one-hot label − probabilities) and k(p, q) = exp(−‖p − q‖₂ / width), the error is the mean
    over pairs of different rows of k(p_i, p_j) · r_i · r_j. It is above zero if nearby probabilities are off in the
    same direction, and its mean is zero for a calibrated model. Pairs come from random blocks of 512 rows, so the cost
    is linear in N: 0.3 ms per resample and block. ``width`` defaults to the median distance between the rows of the
    first block.

    The null draws labels from the probabilities for the same rows and weights, so the level is exact. A large p-value
    is not a proof of calibration: the data may be few.

    Raises:
        CalibrationDataError: Also for fewer than two rows.

    References:
        Widmann, Lindsten, Zachariah (2019), Calibration tests in multi-class classification, section 4 and lemma 2;
        blocks: Zaremba, Gretton, Blaschko (2013), B-tests.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.dirichlet([1, 1, 1], 400)
        >>> labels = (rng.random((400, 1)) > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
        >>> kernel_calibration_test(p, labels).p_value > 0.05
        True
        >>> kernel_calibration_test(p[:, ::-1], labels).p_value
        0.005
    """
    check_resamples(resamples)
    check_count(seed, "seed", least=0)
    if width is not None and not 0 < width < math.inf:
        raise CalibrationDataError("Bad option", where="width", found=repr(width), expected="a number above 0")
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    check_weight_kind(sample_weight, weight_kind)
    for _ in probability_chunks(matrix):
        pass  # checks every value
    rows = np.arange(len(truth)) if weight is None else np.flatnonzero(weight)
    if weight is not None and weight_kind == "frequency":
        rows, weight = np.repeat(rows, weight[rows].astype(np.int64)), None
    if len(rows) < 2:
        raise CalibrationDataError(
            "Too few rows", where="probabilities", found=f"{len(rows)} row(s)", expected="2 or more"
        )
    rng = np.random.default_rng(seed)
    scale = 0.0 if width is None else float(width)
    if len(rows) > _ROWS_A_BLOCK:
        # Rows may be sorted by label.
        rows = rng.permutation(rows)
    sums, pairs = np.zeros(1 + resamples), 0.0
    for block in np.array_split(rows, -(-len(rows) // _ROWS_A_BLOCK)):
        values = matrix[block].astype(np.float64)
        values /= values.sum(axis=1, keepdims=True)
        distance = _distances(values)
        if scale == 0:
            apart = distance[~np.eye(len(block), dtype=np.bool_)]
            scale = float(np.median(apart)) or float(apart.mean()) or 1.0
        products = np.ones_like(distance) if weight is None else np.outer(weight[block], weight[block])
        np.fill_diagonal(products, 0)
        pairs += float(products.sum())
        products *= np.exp(-distance / scale)
        sums += _quadratic_forms(products, values, truth[block], resamples, rng)
    error, null = float(sums[0] / pairs), sums[1:] / pairs
    # The slack counts a world that equals the observed one up to rounding as equal.
    extreme = int(np.count_nonzero(null >= error - 1e-12))
    return KernelCalibrationTest(error, (1 + extreme) / (1 + resamples), float(np.quantile(null, 0.95)), scale)


def _distances(values: Floats) -> Doubles:
    """Return Euclidean distances (n, n) between rows."""
    squares = np.vecdot(values, values)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0)))


def _quadratic_forms(
    products: Doubles, values: Doubles, truth: Labels, resamples: int, rng: np.random.Generator
) -> Doubles:
    """Return Σ products_ij · r_i · r_j (1 + resamples,), for the true labels and then for labels drawn from the values.

    With y the labels, r_i · r_j = 1[y_i = y_j] − p_i[y_j] − p_j[y_i] + p_i · p_j.
    """
    smoothed = products @ values
    constant = float(np.vdot(smoothed, values))
    cumulated, place = np.cumsum(values, axis=1)[:, :-1], np.arange(len(values))
    sums = np.empty(1 + resamples)
    for world in range(1 + resamples):
        labels = truth if world == 0 else np.count_nonzero(rng.random((len(values), 1)) > cumulated, axis=1)
        same = np.equal.outer(labels, labels)
        sums[world] = np.vdot(products, same.astype(np.float64)) - 2 * smoothed[place, labels].sum() + constant
    return sums
