"""Reading large matrices a few rows at a time, checking values on the way.

A chunk holds about 64 k entries, so that it and its temporaries stay in the second-level cache; whatever the size of
the input, a pass over it adds a few MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

import numpy as np

from calibrators.arrays import Doubles, Floats, Labels
from calibrators.errors import CalibrationDataError

AnyFloats = TypeVar("AnyFloats", Floats, Doubles)

CHUNK_ENTRIES = 65_536
_FEW_CLASSES, _MANY_ROWS = 32, 64


def row_chunks(rows: int, classes: int) -> Iterator[slice]:
    """Yields slices that cover ``rows`` rows of ``classes`` entries, in order."""
    step = max(1, CHUNK_ENTRIES // classes)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def row_maxima(chunk: AnyFloats) -> AnyFloats:
    """Largest entry (n, 1) of each row of a chunk (n, K), NaN where there is one."""
    rows, classes = chunk.shape
    if classes > _FEW_CLASSES or rows < _MANY_ROWS:
        reduced: AnyFloats = np.maximum.reduce(chunk, axis=1, keepdims=True)
        return reduced
    # numpy walks short rows one by one; down the columns it is several times faster.
    maxima: AnyFloats = np.maximum(chunk[:, 0], chunk[:, 1])
    for k in range(2, classes):
        np.maximum(maxima, chunk[:, k], out=maxima)
    return maxima[:, None]


def row_sums(chunk: AnyFloats) -> AnyFloats:
    """Sum (n, 1) of each row of a chunk (n, K); the same to the last bit whatever the number of rows."""
    rows, classes = chunk.shape
    # From eight entries on, numpy adds up a row in another order than one by one.
    if classes >= 8 or rows < _MANY_ROWS:
        reduced: AnyFloats = np.add.reduce(chunk, axis=1, keepdims=True)
        return reduced
    sums: AnyFloats = chunk[:, 0] + chunk[:, 1]
    for k in range(2, classes):
        sums += chunk[:, k]
    return sums[:, None]


def check_maxima(maxima: Floats, chunk: Floats, start: int) -> None:
    """Refuses a chunk of logits with NaN, +inf, or a row of nothing but −inf.

    The row maximum alone tells: NaN wins every comparison in it, and so does +inf.

    Args:
        maxima: Row maxima of ``chunk``, any shape.
        chunk: (n, K) logits.
        start: Number of the chunk's first row, for the message.

    Raises:
        CalibrationDataError: Naming the first entry at fault.
    """
    if maxima.size == 1 and -np.inf < maxima.item() < np.inf:
        return
    if maxima.size == 0 or (
        -np.inf < np.minimum.reduce(maxima, axis=None) and np.maximum.reduce(maxima, axis=None) < np.inf
    ):
        return
    row = int(np.argmax(~np.isfinite(maxima.reshape(-1))))
    if maxima.reshape(-1)[row] == -np.inf:
        raise CalibrationDataError(
            "Impossible row", where=f"logits[{start + row}]", found="-inf in every column", expected="a finite logit"
        )
    column = int(np.argmax(np.isnan(chunk[row]) | (chunk[row] == np.inf)))
    raise CalibrationDataError(
        "Bad logit",
        where=f"logits[{start + row}, {column}]",
        found=str(chunk[row, column]),
        expected="a finite number, or -inf for a probability of zero",
    )


def check_label_logits(label_logits: Floats, labels: Labels, start: int) -> None:
    """Refuses a row whose own label has a probability of zero: no map of finite logits gives it a finite NLL.

    Args:
        label_logits: (n,) logit of each row's own label, or its distance from the row's largest.
        labels: (N,) all labels.
        start: Number of the first of the n rows.

    Raises:
        CalibrationDataError: Naming the first row at fault.
    """
    impossible = label_logits == -np.inf
    if impossible.any():
        row = start + int(np.argmax(impossible))
        raise CalibrationDataError(
            "Impossible label",
            where=f"logits[{row}, {labels[row]}]",
            found="a probability of zero for the row's own label: -inf, or beyond the type's range below the largest",
            expected="a finite logit there, no farther below the row's largest than the type can say",
        )


def logit_chunks(logits: Floats, single: bool = False) -> Iterator[tuple[slice, Doubles, Doubles]]:
    """Reads logits chunk by chunk as float64.

    Args:
        logits: (N, K) of any floating point type; −inf allowed.
        single: Read them as float32 instead.

    Yields:
        The rows, their logits (n, K) float64 (a fresh array, free to write to), and the row maxima (n, 1).

    Raises:
        CalibrationDataError: NaN, +inf, or a row of nothing but −inf.
    """
    count, classes = logits.shape
    step = max(1, CHUNK_ENTRIES // classes)
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        chunk = cast("Doubles", logits[rows].astype(np.float32 if single else np.float64, order="C"))
        maxima = row_maxima(chunk)
        check_maxima(maxima, chunk, rows.start)
        yield rows, chunk, maxima


_SUM_TOLERANCE = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4}


def probability_chunks(probabilities: Floats) -> Iterator[tuple[slice, Floats]]:
    """Reads probabilities chunk by chunk, checking that each row is a distribution.

    Args:
        probabilities: (N, K), each entry in [0, 1]; rows sum to 1 within 1e-4 (0.02 for float16).

    Yields:
        The rows, and their probabilities (n, K), a view.

    Raises:
        CalibrationDataError: NaN, an entry outside [0, 1], or a row that does not sum to one.
    """
    tolerance = _SUM_TOLERANCE[probabilities.dtype]
    classes = probabilities.shape[1]
    ones = np.ones(classes, np.float64 if probabilities.dtype == np.float64 else np.float32)
    for rows in row_chunks(*probabilities.shape):
        chunk = probabilities[rows]
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = chunk.astype(np.float32) if chunk.dtype == np.float16 else chunk
            # A product with ones takes half the time of a sum over long rows.
            sums = row_sums(numbers)[:, 0] if classes < _FEW_CLASSES else np.vecdot(numbers, ones)
            usable = np.minimum.reduce(chunk, axis=None) >= 0 and np.abs(sums - 1).max() <= tolerance
        if not usable:
            bad = ~((chunk >= 0) & (chunk <= 1))
            if bad.any():
                row, column = divmod(int(np.argmax(bad)), classes)
                raise CalibrationDataError(
                    "Bad probability",
                    where=f"probabilities[{rows.start + row}, {column}]",
                    found=str(chunk[row, column]),
                    expected="a number from 0 to 1",
                )
            row = int(np.argmax(np.abs(sums - 1)))
            raise CalibrationDataError(
                "Not a distribution",
                where=f"probabilities[{rows.start + row}]",
                found=f"a row that sums to {sums[row]:.6g}",
                expected="a sum of 1",
            )
        yield rows, chunk
