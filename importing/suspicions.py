"""Inputs that look wrong: empty, constant, identifiers, or giving the label away; and repeated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.fingerprints import fingerprints
from importing.rows import Rows
from importing.rows.values import missing

MANY_IDS = 50
_FEW_ROWS = 5
_EXACT = 2**24  # up to which float32 has all whole numbers
_SENTENCE = 3  # spaces in an average text that is not an identifier
_SAMPLE = 10_000  # rows that rule most columns out quickly


def column_warnings(rows: Rows, name: str, distinct: int, absent: float) -> list[str]:
    """Say what is suspicious about an input of numbers or texts.

    Args:
        rows: The rows.
        name: Name of the input.
        distinct: Number of its distinct values that are not missing.
        absent: Share of missing values.
    """
    values = rows.features[name]
    ids = distinct == len(rows) >= MANY_IDS and _may_be_id(values)
    said = uninformative(name, distinct, absent=absent > 0, ids=ids, advice="Drop it unless the model reads it.")
    if said is not None:
        return [said]
    if (how := _leak(rows, values, distinct)) is not None:
        return [f"`{name}` {how}. Is it known before the label is?"]
    return []


def uninformative(name: str, distinct: int, *, absent: bool, ids: bool, advice: str) -> str | None:
    """Return why the values of an input tell nothing: there are none, one, or another one in each row; None if not so.

    Args:
        name: Name of the input.
        distinct: Number of its distinct values that are not missing; 2 also stands for more.
        absent: Whether values are missing.
        ids: Whether it has another value in each of at least `MANY_IDS` rows, and may be an identifier.
        advice: What to do with an identifier.
    """
    if distinct == 0:
        return f"`{name}` is empty."
    if distinct == 1 and not absent:
        return f"`{name}` is constant."
    return f"`{name}` has another value in each row, like an identifier. {advice}" if ids else None


def merged(name: str, values: NDArray[np.float64]) -> str | None:
    """Return which whole numbers of an input are one number as float32; None where there are none.

    Args:
        name: Name of the input.
        values: Its numbers (N,), NaN for missing ones.

    Example:
        >>> print(merged("id", np.array([16777216.0, 16777218.0])))
        None
        >>> merged("id", np.array([16777216.0, 16777217.0])).partition(" such ")[2]
        'as 16777216 and 16777217. Subtract a constant, or make it a category.'
    """
    large = values[np.abs(values) >= _EXACT]
    large = np.unique(large[large == np.floor(large)])
    same = np.flatnonzero(np.diff(large.astype(np.float32)) == 0)
    if not len(same):
        return None
    one, other = large[same[0] : same[0] + 2]
    return (
        f"`{name}` has different whole numbers that are equal as float32, which the model reads, such as {one:.0f} and "
        f"{other:.0f}. Subtract a constant, or make it a category."
    )


def score_warnings(rows: Rows) -> list[str]:
    """Say what is suspicious about the scores of rows: constant, or giving the label away."""
    assert rows.scores is not None  # noqa: S101 — such rows were read
    if (rows.scores == rows.scores[0]).all():
        return ["The scores are constant: they do not tell rows apart."]
    apart = any(_separates(column, rows.codes) for column in rows.scores.T)
    few = np.bincount(rows.codes).min() < _FEW_ROWS
    return ["The scores separate the classes perfectly. Are they known before the label is?"] * (apart and not few)


def duplicate_warnings(rows: Rows) -> list[str]:
    """Say how many rows repeat the inputs of an earlier row."""
    _, first, place = np.unique(fingerprints(rows), return_index=True, return_inverse=True)
    repeated = len(rows) - len(first)
    if not repeated:
        return []
    other = int((rows.codes != rows.codes[first][place]).sum())
    also = f", {other:,} of them with another label" if other else ""
    kept = "" if rows.group is not None else " The split keeps equal rows in one part."
    rows_repeat = "row repeats" if repeated == 1 else "rows repeat"
    return [f"{repeated:,} {rows_repeat} the inputs of an earlier row{also}.{kept}"]


def _may_be_id(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "f":
        return bool((values == np.floor(values)).all())
    texts: list[str] = [value for value in values[:_SAMPLE].tolist() if value is not None]
    return sum(text.count(" ") for text in texts) < _SENTENCE * len(texts)


def _leak(rows: Rows, values: NDArray[Any], distinct: int) -> str | None:
    """Return how a column gives the label away, if it does."""
    sizes = np.bincount(rows.codes)
    if sizes.min() < _FEW_ROWS:
        return None
    absent = missing(values)
    if distinct * _FEW_ROWS <= len(rows) and all(
        _decides(values[:end], absent[:end], rows.codes[:end]) for end in (_SAMPLE, len(rows))
    ):
        return "equals the label" if values.tolist() == rows.label.tolist() else "predicts the label perfectly"
    if len(sizes) == 2 and any(np.array_equal(absent, rows.codes == code) for code in (0, 1)):
        return "is missing for exactly the rows of one class"
    numbers = values.dtype.kind in "biuf" and not absent.any()
    if numbers and all(_separates(values[:end], rows.codes[:end]) for end in (_SAMPLE, len(rows))):
        return "separates the classes perfectly"
    return None


def _decides(values: NDArray[Any], absent: NDArray[np.bool_], codes: NDArray[np.int64]) -> bool:
    """Return whether rows with one value, missing included, have one class."""
    cells = [None if none else cell for cell, none in zip(values.tolist(), absent.tolist(), strict=True)]
    classes: dict[Any, int] = {}
    return all(classes.setdefault(cell, code) == code for cell, code in zip(cells, codes.tolist(), strict=True))


def _separates(values: NDArray[Any], codes: NDArray[np.int64]) -> bool:
    """Return whether the classes' ranges of values are disjoint."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    low, high = np.minimum.reduceat(values[order], starts), np.maximum.reduceat(values[order], starts)
    ranks = np.argsort(low)
    return bool((high[ranks][:-1] < low[ranks][1:]).all())
