"""Between logits and probabilities."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats
from calibrators.chunks import logit_chunks, row_chunks, row_sums
from calibrators.errors import CalibrationDataError
from calibrators.validation import as_matrix

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
# Candidate solutions that are tried to tell whether two arrays share memory.
_OVERLAP_WORK = 10_000


def softmax(logits: ArrayLike, out: Floats | None = None) -> Floats:
    """Turns logits into probabilities, exp(z_k) / Σ_j exp(z_j) in each row.

    Args:
        logits: (N, K), K ≥ 2; −inf gives a probability of exactly zero.
        out: (N, K) of the result's type to write to; it may be ``logits`` itself, but share memory with it in no other
            way. After an error its content is undefined.

    Returns:
        (N, K) in [0, 1], rows sum to one; float32 for float32 and float16 input, float64 for float64. Computed in
        float64 whatever the input.

    Raises:
        CalibrationDataError: NaN or +inf, a row of nothing but −inf, wrong shape or type.

    Example:
        >>> softmax([[0.0, float("-inf"), 0.0]])
        array([[0.5, 0. , 0.5]])
    """
    matrix = as_matrix(logits, "logits")
    result = result_array(matrix, out)
    for rows, chunk, maxima in logit_chunks(matrix):
        result[rows] = softmax_in_place(chunk, maxima)
    return result


def logits_from_probabilities(probabilities: ArrayLike) -> Floats:
    """Turns probabilities into logits, for whoever has nothing better: z = log p.

    Softmax brings the probabilities back, so calibrators see what they would have seen, up to what rounding to
    probabilities lost: a probability of zero becomes −inf, and no calibrator here makes it positive again but those
    that say so.

    Args:
        probabilities: (N, K) with entries of 0 or more, each row with a positive finite sum. Rows need not sum to one:
            the logits do not depend on their scale.

    Returns:
        (N, K); float32 for float32 and float16 input, float64 for float64.

    Raises:
        CalibrationDataError: A negative entry, NaN, infinity, or a row of zeros.

    Example:
        >>> logits_from_probabilities([[0.0, 1.0]])
        array([[-inf,   0.]])
    """
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
        with np.errstate(divide="ignore"):
            result[rows] = np.log(chunk, dtype=np.float64)
    return result


def softmax_in_place(logits: Doubles, maxima: Doubles) -> Doubles:
    """Overwrites one chunk of logits with its softmax.

    Args:
        logits: (n, K) float64; overwritten.
        maxima: (n, 1) finite row maxima.

    Returns:
        ``logits``, now probabilities.
    """
    with np.errstate(over="ignore"):
        np.subtract(logits, maxima, out=logits)
    np.exp(logits, out=logits)
    logits /= row_sums(logits)
    return logits


def log_softmax_in_place(logits: Doubles, maxima: Doubles) -> Doubles:
    """Overwrites one chunk of logits with log-probabilities; as `softmax_in_place`."""
    with np.errstate(over="ignore"):
        np.subtract(logits, maxima, out=logits)
    logits -= np.log(row_sums(np.exp(logits)))
    return logits


def normalise_in_place(chances: Doubles, logits: Doubles, maxima: Doubles) -> Doubles:
    """Divides each row of one-vs-rest chances by its sum; a row of nothing but zeros gets its softmax.

    Args:
        chances: (n, K), each in [0, 1]; overwritten.
        logits: (n, K) of the same rows.
        maxima: (n, 1) finite row maxima.

    Returns:
        ``chances``, now probabilities.
    """
    sums = np.add.reduce(chances, axis=1, keepdims=True)
    empty = sums[:, 0] == 0
    if empty.any():
        chances[empty] = softmax_in_place(logits[empty], maxima[empty])
        sums[empty] = 1
    chances /= sums
    return chances


def result_array(matrix: Floats, out: Floats | None) -> Floats:
    """Makes or checks the array that probabilities for ``matrix`` are written to.

    Raises:
        CalibrationDataError: ``out`` has another shape or type than the result, cannot be written to, or shares memory
            with ``matrix`` without being the same view of it: rows would be overwritten before they are read.
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
        raise CalibrationDataError("Wrong output array", where="out", found="read-only", expected="one to write to")
    if out is not matrix and np.may_share_memory(out, matrix) and _overlaps(out, matrix):
        raise CalibrationDataError(
            "Wrong output array",
            where="out",
            found="another view of the memory of the input",
            expected="memory of its own, or the very same view",
        )
    return out


def _overlaps(out: Floats, matrix: Floats) -> bool:
    """Whether arrays of one shape share memory, or it is too hard to tell, and are not the same view."""
    mine, other = out.__array_interface__, matrix.__array_interface__
    if out.dtype == matrix.dtype and mine["data"][0] == other["data"][0] and out.strides == matrix.strides:
        return False
    try:
        return np.shares_memory(out, matrix, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
