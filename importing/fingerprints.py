"""Rows with equal inputs, found by a 64-bit number for each row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.rows import ImageFile, Rows


def fingerprints(rows: Rows) -> NDArray[np.uint64]:
    """Return a number for each row's inputs and scores: equal for equal rows, the same on every machine.

    Args:
        rows: N rows; missing values are equal to one another. Rows of scores alone are all different: two inputs may
            have one score.

    Returns:
        uint64 (N,). Different rows differ but for a chance of some N²/2⁶⁵.
    """
    if not rows.features:
        return _mixed(np.arange(len(rows), dtype=np.uint64))
    return of_columns([*rows.features.values(), *([] if rows.scores is None else rows.scores.T)])


def of_columns(columns: Iterable[NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a number for each row of these columns, (N, …) each, as `fingerprints`."""
    total = np.zeros(1, np.uint64)
    for values in columns:
        total = _mixed(total ^ _of_column(values))
    return total


def _of_column(values: NDArray[Any]) -> NDArray[np.uint64]:
    if values.ndim == 1 and values.dtype.kind in "biuf":
        numbers = values.astype(np.float64) + 0.0  # −0 becomes 0
        numbers[np.isnan(numbers)] = np.nan
        return _mixed(numbers.view(np.uint64))
    if values.dtype == np.object_:
        return _of_objects(values.tolist())
    return np.fromiter((_of_object(row.tobytes()) for row in values), np.uint64, len(values))


def _of_objects(values: Iterable[str | ImageFile | None]) -> NDArray[np.uint64]:
    known: dict[str | ImageFile | None, int] = {}
    places = [known.setdefault(value, len(known)) for value in values]
    return np.array([_of_object(value) for value in known], np.uint64)[places]


def _of_object(value: str | bytes | ImageFile | None) -> int:
    match value:
        case None:
            data = b"none"
        case str():
            data = b"s" + value.encode("utf-8", "surrogatepass")
        case bytes():
            data = b"b" + value
        case _:
            data = b"i" + value.sha256.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection that spreads each bit over all."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
