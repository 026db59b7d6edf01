"""Read large matrices a few rows or columns at a time, and check their values on the way.

A chunk holds about 64 k entries, so it and its temporaries stay in the second-level cache, and a pass over an input of
any size adds a few MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles, Floats, Labels
from calibrators.errors import CalibrationDataError

AnyFloats = TypeVar("AnyFloats", Floats, Doubles)

CHUNK_ENTRIES = 65_536
_MOST_ENTRIES = 2_097_152
_FEW_CLASSES, _MANY_ROWS = 32, 64


def row_chunks(rows: int | range, classes: int, entries: int = CHUNK_ENTRIES) -> Iterator[slice]:
    """Yield slices of about ``entries`` entries, in order, over a range or number of rows of ``classes`` entries."""
    span = range(rows) if isinstance(rows, int) else rows
    step = max(1, entries // classes)
    for start in span[::step]:
        yield slice(start, min(start + step, span.stop))


def row_maxima(chunk: AnyFloats) -> AnyFloats:
    """Return the largest entry (n, 1) of each row (n, K); NaN if the row has one."""
    rows, classes = chunk.shape
    if classes > _FEW_CLASSES or rows < _MANY_ROWS:
        reduced: AnyFloats = np.maximum.reduce(chunk, axis=1, keepdims=True)
        return reduced
    # numpy walks short rows one by one; columns are several times faster.
    maxima: AnyFloats = np.maximum(chunk[:, 0], chunk[:, 1])
    for k in range(2, classes):
        np.maximum(maxima, chunk[:, k], out=maxima)
    return maxima[:, None]


def row_sums(chunk: AnyFloats) -> AnyFloats:
    """Return the sum (n, 1) of each row (n, K), the same to the last bit for any number of rows."""
    rows, classes = chunk.shape
    # From eight entries on, numpy adds up a row in a different order.
    if classes >= 8 or rows < _MANY_ROWS:
        reduced: AnyFloats = np.add.reduce(chunk, axis=1, keepdims=True)
        return reduced
    sums: AnyFloats = chunk[:, 0] + chunk[:, 1]
    for k in range(2, classes):
        sums += chunk[:, k]
    return sums[:, None]


def raise_to_floor(logits: Doubles, maxima: Doubles, floor: float) -> Doubles:
    """Raise float64 logits (n, K), in place, until no class has a softmax share below ``floor``, above 0.

    Shares refer to the row's sum before; the order of the classes stays, ties apart.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        lowest = maxima + (np.log(row_sums(np.exp(logits - maxima))) + np.log(floor))
    np.maximum(logits, lowest, out=logits)
    return logits


def check_maxima(maxima: Floats, chunk: Floats, start: int) -> None:
    """Refuse a chunk of logits with NaN, +inf, or a row with only −inf.

    The row maximum alone tells: NaN and +inf win every comparison in it.

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
    """Refuse a row whose own label has a probability of zero: no map of finite logits gives it a finite NLL.

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
            found="-inf, or below the row's largest by more than the type's range, for the row's own label",
            expected="a finite logit within the type's range of the row's largest",
        )


def logit_chunks(
    logits: Floats, single: bool = False, rows_at_once: int = 1
) -> Iterator[tuple[slice, Doubles, Doubles]]:
    """Yield row slices, their logits (n, K), a fresh float64 array, and the row maxima (n, 1).

    With ``single`` the logits are float32. Chunks have ``rows_at_once`` or more rows, as far as 16 MiB allow.

    Raises:
        CalibrationDataError: NaN, +inf, or a row with only −inf.
    """
    count, classes = logits.shape
    step = max(1, CHUNK_ENTRIES // classes, min(rows_at_once, _MOST_ENTRIES // classes))
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        chunk = cast("Doubles", logits[rows].astype(np.float32 if single else np.float64, order="C"))
        maxima = row_maxima(chunk)
        check_maxima(maxima, chunk, rows.start)
        yield rows, chunk, maxima


_SUM_TOLERANCE = {np.dtype(np.float16): 2e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4}


def probability_chunks(
    probabilities: Floats, span: range | None = None, entries: int = CHUNK_ENTRIES
) -> Iterator[tuple[slice, Floats]]:
    """Yield row slices and views (n, K) of their probabilities, after checking that each row is a distribution.

    Args:
        probabilities: (N, K) probabilities.
        span: Consecutive rows to read; None for all.
        entries: Entries of a chunk, about.

    Raises:
        CalibrationDataError: NaN, an entry outside [0, 1], or a row that does not sum to 1 within 1e-4 (0.02 for
            float16).
    """
    for rows, chunk, sums in _with_sums(probabilities, span, entries):
        _check(chunk, sums, rows.start)
        yield rows, chunk


def top_class_chunks(
    probabilities: Floats, span: range, entries: int
) -> Iterator[tuple[slice, Floats, npt.NDArray[np.intp]]]:
    """Yield what `probability_chunks` yields, and each row's first class of largest probability (n,)."""
    unsigned = np.dtype(f"u{probabilities.itemsize}")
    for rows, chunk, sums in _with_sums(probabilities, span, entries):
        # The bits of a float, read as a whole number, order floats from 0 as their values do, and any with a sign or
        # NaN above them: one pass finds the largest and shows that no entry is negative.
        top = np.argmax(chunk.view(unsigned), axis=1)
        if not (chunk[np.arange(len(top)), top].min() > 0 and _sum_to_one(chunk, sums)):
            _check(chunk, sums, rows.start)
            top = np.argmax(chunk, axis=1)  # a row has a zero with a sign
        yield rows, chunk, top


def _with_sums(probabilities: Floats, span: range | None, entries: int) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield row slices, views (n, K) of their probabilities and the rows' sums (n,)."""
    count, classes = probabilities.shape
    ones = np.ones(classes, np.float64 if probabilities.dtype == np.float64 else np.float32)
    for rows in row_chunks(count if span is None else span, classes, entries):
        chunk = probabilities[rows]
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = chunk.astype(np.float32) if chunk.dtype == np.float16 else chunk
            # A product with ones takes half the time of a sum over long rows.
            sums = row_sums(numbers)[:, 0] if classes < _FEW_CLASSES else np.vecdot(numbers, ones)
        yield rows, chunk, sums


def _sum_to_one(chunk: Floats, sums: Floats) -> bool:
    return bool(np.abs(sums - 1).max() <= _SUM_TOLERANCE[chunk.dtype])


def _check(chunk: Floats, sums: Floats, start: int) -> None:
    """Raise CalibrationDataError unless each row is a distribution; it names the first entry or row at fault."""
    if np.minimum.reduce(chunk, axis=None) >= 0 and _sum_to_one(chunk, sums):
        return
    bad = ~((chunk >= 0) & (chunk <= 1))
    if bad.any():
        row, column = divmod(int(np.argmax(bad)), chunk.shape[1])
        raise CalibrationDataError(
            "Bad probability",
            where=f"probabilities[{start + row}, {column}]",
            found=str(chunk[row, column]),
            expected="a number from 0 to 1",
        )
    row = int(np.argmax(np.abs(sums - 1)))
    raise CalibrationDataError(
        "Not a distribution",
        where=f"probabilities[{start + row}]",
        found=f"a row that sums to {sums[row]:.6g}",
        expected="a sum of 1",
    )


# Size of the columns held at once; a memory map of K classes is read N · K · itemsize / 32 MiB times.
_BLOCK_BYTES = 32 * 2**20


def class_columns(matrix: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield each class k = 0 … K−1 and its contiguous column (N,), valid until the next is requested.

    A column of a large matrix touches every page of memory, so as many classes as fit into 32 MiB are read at once.
    """
    rows, classes = matrix.shape
    width = min(max(1, _BLOCK_BYTES // (max(rows, 1) * matrix.itemsize)), classes)
    block = np.empty((width, rows), matrix.dtype)
    for first in range(0, classes, width):
        last = min(first + width, classes)
        for part in row_chunks(rows, classes):
            block[: last - first, part] = matrix[part, first:last].T
        for k in range(first, last):
            yield k, block[k - first]
