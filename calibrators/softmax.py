"""Convert between logits and probabilities."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats
from calibrators.chunks import logit_chunks, row_chunks, row_sums
from calibrators.errors import CalibrationDataError, shown
from calibrators.validation import as_matrix

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
PROBABILITY_FLOOR = 1e-4
"""Times 1 / K: the smallest probability of a class in `logits_from_probabilities`, and in comparisons of log losses."""
# Limit on the work of deciding whether two arrays share memory.
_OVERLAP_WORK = 10_000


def softmax(logits: ArrayLike, out: Floats | None = None) -> Floats:
    """Convert logits to probabilities, exp(z_k) / Σ_j exp(z_j) in each row.

    Args:
        logits: (N, K), K ≥ 2; −inf gives a probability of exactly zero.
        out: (N, K) array of the result's type to write to: ``logits`` itself, or memory that does not overlap it. After
            an error its content is undefined.

    Returns:
        (N, K) in [0, 1], rows sum to one; float32 for float32 and float16 input, float64 for float64. Computed in
        float64.

    Raises:
        CalibrationDataError: NaN or +inf, a row with only −inf, wrong shape or type.

    Example:
        >>> softmax([[0.0, float("-inf"), 0.0]])
        array([[0.5, 0. , 0.5]])
    """
    matrix = as_matrix(logits, "logits")
    result = result_array(matrix, out)
    for rows, chunk, maxima in logit_chunks(matrix):
        result[rows] = softmax_in_place(chunk, maxima)
    return result


def logits_from_probabilities(probabilities: ArrayLike, floor: float = PROBABILITY_FLOOR) -> Floats:
    """Convert probabilities to logits, z = log p, if the model's own logits are not available.

    Shares below floor / K are raised to it: a label with a probability of zero has no finite log loss, and no fit. For
    models that give many zeros the floor decides more than the method. A forest of T trees cannot tell 0 from 1 / T:
    choose K / (2 T).

    Args:
        probabilities: (N, K) entries of 0 or more; each row has a positive finite sum, which need not be one.
        floor: From 0 to 1; the smallest share of a class is floor / K. With 0, a probability of zero becomes −inf, and
            only calibrators that say so make it positive again.

    Returns:
        (N, K); float32 for float32 and float16 input, float64 for float64.

    Raises:
        CalibrationDataError: A negative entry, NaN, infinity, a row of zeros, or a floor outside [0, 1].

    Example:
        >>> logits_from_probabilities([[0.0, 1.0]]).round(4)
        array([[-9.9035,  0.    ]])
        >>> logits_from_probabilities([[0.0, 1.0]], floor=0)
        array([[-inf,   0.]])
    """
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor <= 1:
        raise CalibrationDataError("Bad option", where="floor", found=shown(floor), expected="a number from 0 to 1")
    matrix = as_matrix(probabilities, "probabilities")
    result = result_array(matrix, None)
    for rows in row_chunks(*matrix.shape):
        chunk = matrix[rows]
        bad = ~((chunk >= 0) & (chunk < np.inf))
        bad[:, 0] |= ~chunk.any(axis=1)
        if bad.any():
            row, column = divmod(int(np.argmax(bad)), matrix.shape[1])
            raise CalibrationDataError(
                "Bad probability",
                where=f"probabilities[{rows.start + row}, {column}]",
                found=f"{chunk[row, column]} in a row whose largest entry is {chunk[row].max()}",
                expected="a number from 0 to 1, and one above 0 in each row",
            )
        shares = chunk.astype(np.float64)
        if floor > 0:
            np.maximum(shares, np.add.reduce(shares, axis=1, keepdims=True) * (floor / shares.shape[1]), out=shares)
        with np.errstate(divide="ignore"):
            result[rows] = np.log(shares, out=shares)
    return result


def softmax_in_place(logits: Doubles, maxima: Doubles) -> Doubles:
    """Overwrite a chunk of float64 logits (n, K) with finite row maxima (n, 1) by its softmax, and return it."""
    with np.errstate(over="ignore"):
        np.subtract(logits, maxima, out=logits)
    np.exp(logits, out=logits)
    logits /= row_sums(logits)
    return logits


def log_softmax_in_place(logits: Doubles, maxima: Doubles) -> Doubles:
    """Overwrite a chunk of logits with log-probabilities; as `softmax_in_place`."""
    with np.errstate(over="ignore"):
        np.subtract(logits, maxima, out=logits)
    logits -= np.log(row_sums(np.exp(logits)))
    return logits


def normalise_in_place(chances: Doubles, logits: Doubles, maxima: Doubles) -> Doubles:
    """Divide each row of one-vs-rest chances (n, K) by its sum, in place; a row of zeros gets its softmax."""
    sums = np.add.reduce(chances, axis=1, keepdims=True)
    empty = sums[:, 0] == 0
    if empty.any():
        chances[empty] = softmax_in_place(logits[empty], maxima[empty])
        sums[empty] = 1
    chances /= sums
    return chances


def result_array(matrix: Floats, out: Floats | None) -> Floats:
    """Return ``out``, checked, or a new array for the probabilities of ``matrix``.

    Raises:
        CalibrationDataError: ``out`` has the wrong shape or type, is read-only, or overlaps ``matrix`` without being
            the same view: rows would be overwritten before they are read.
    """
    dtype = _DOUBLE if matrix.dtype == _DOUBLE else _SINGLE
    if out is None:
        return np.empty(matrix.shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != matrix.shape or out.dtype != dtype:
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise CalibrationDataError(
            "Wrong output array", where="out", found=found, expected=f"{dtype} of shape {matrix.shape}"
        )
    if not out.flags.writeable:
        raise CalibrationDataError("Wrong output array", where="out", found="read-only", expected="a writable array")
    if out is not matrix and np.may_share_memory(out, matrix) and _overlaps(out, matrix):
        raise CalibrationDataError(
            "Wrong output array",
            where="out",
            found="another view of the memory of the input",
            expected="separate memory, or the input itself",
        )
    return out


def _overlaps(out: Floats, matrix: Floats) -> bool:
    """Return whether arrays of one shape share memory without being the same view; True if undecided."""
    mine, other = out.__array_interface__, matrix.__array_interface__
    if out.dtype == matrix.dtype and mine["data"][0] == other["data"][0] and out.strides == matrix.strides:
        return False
    try:
        return np.shares_memory(out, matrix, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
