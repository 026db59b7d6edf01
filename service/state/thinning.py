"""Samples of the groups, by the last bits of their keyed hash.

A group is in the sample of `bits` bits if that many last bits of its number are 0: a share 2^−bits of all groups, each
with all its rows. The role in a recalibration comes from the first bits, and the log's own sample from a mixed number,
so this sample is independent of both. Each sample contains every smaller one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, func, literal_column, select

from service.state.tables import predictions
from service.state.window import Window

INDEXED_BITS: Final = 4
"""Bits of the sample that the index `predictions_drawn` holds; smaller samples are read from it."""

_MOST_BITS: Final = 20


def drawn(groups: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    """Return which groups are in the sample.

    Args:
        groups: int64 (N,), from `group_hash`.
        bits: Share of the groups as a power of 1/2.

    Returns:
        bool (N,).

    Example:
        >>> drawn(np.array([0, 1, 4, -4]), 2)
        array([ True, False,  True,  True])
    """
    chosen: NDArray[np.bool_] = (groups & ((1 << bits) - 1)) == 0
    return chosen


def in_draw(bits: int) -> list[ColumnElement[bool]]:
    """Return the conditions that a prediction's group is in the sample.

    They are written without parameters, so that a database sees that its index holds the sample.
    """
    levels = {min(bits, INDEXED_BITS), bits} if bits >= INDEXED_BITS else {bits}
    return [literal_column(f"(cluster & {(1 << level) - 1}) = 0") for level in sorted(levels - {0})]


def bits_for(
    connection: Connection,
    window: Window,
    made_here: list[int],
    labelled: NDArray[np.int64],
    at_most: int,
    elsewhere: tuple[int, int],
) -> int:
    """Return the number of bits with which a window's sample has about `at_most` unlabelled rows or fewer.

    It depends on the number of rows and, where these are many, on the size of the indexed sample; not on which groups
    are in a smaller one. The remaining bits of a group are independent of that, so its rows have weight 2^bits however
    large it is. A sample of few groups may be far larger or smaller than expected.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        made_here: Numbers of its origins.
        labelled: int64 (L,). Groups of the window's labelled rows.
        at_most: Expected rows at most, at least 1.
        elsewhere: Rows that are not in the window but in its files: all of them, and those of the indexed sample.
    """
    for_window = predictions.c.origin.in_(made_here), *window.times()

    def count(*conditions: ColumnElement[bool], limit: int | None = None) -> int:
        rows = select(predictions.c.id).where(*for_window, *conditions).limit(limit).subquery()
        return int(connection.execute(select(func.count()).select_from(rows)).scalar_one())

    many = at_most << INDEXED_BITS
    unlabelled = count(limit=many + len(labelled) + 1) + elsewhere[0] - len(labelled)
    indexed = 0
    if unlabelled > many:
        indexed = count(*in_draw(INDEXED_BITS)) + elsewhere[1] - int(drawn(labelled, INDEXED_BITS).sum())
    return bits_of(unlabelled, indexed, at_most)


def bits_of(unlabelled: int, indexed: int, at_most: int) -> int:
    """Return the bits of the sample for a number of unlabelled rows, `indexed` of them in the indexed sample.

    Example:
        >>> bits_of(16_000, 0, 1_000), bits_of(100_000, 6_000, 1_000)
        (4, 7)
    """
    if unlabelled <= at_most << INDEXED_BITS:
        return _halvings(unlabelled, at_most)
    return min(INDEXED_BITS + _halvings(indexed, at_most), _MOST_BITS)


def _halvings(rows: int, at_most: int) -> int:
    """Return how often a number has to be halved until it is `at_most`."""
    return (max(rows - 1, 0) // at_most).bit_length()
