"""Step functions and piecewise linear curves, one for each column, by binary search.

Thresholds and knots of all curves are in one flat table, each curve's padded to the same power of two. So a search for
all rows and columns at once takes a few gathers: the logarithm of the number of knots, not the number.

A step decides by the last bit. Where its scores are differences of two logits, the graph has them to the last bit.
Elsewhere they agree up to rounding, and rows that a calibrator was fitted on lie exactly on its edges. So thresholds
are moved by more than rounding, and by less than a millionth of the score's distance from one, near which scores are
dense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calibrators.bisection import first_numbers
from service.inference.onnx_graph.rows import clipped
from service.inference.onnx_graph.values import Doubles, Value, at_least, entries, greater, greatest, least, less, where

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Table:
    """Lists of numbers, one for each column, padded to one length and laid end to end.

    Attributes:
        flat: All numbers.
        starts: (1, C) where each list begins.
        size: Length of each list after padding, a power of two greater than that of any before.
        lengths: (1, C) lengths before.
    """

    flat: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]
    size: int
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lists: Sequence[Doubles]) -> Table:
        """A table of these lists, padded with infinity."""
        lengths = np.array([[len(one) for one in lists]])
        size = 2 ** max(1, int(lengths.max()).bit_length())
        flat = np.full((len(lists), size), np.inf)
        for row, one in zip(flat, lists, strict=True):
            row[: len(one)] = one
        return cls(flat.ravel(), size * np.arange(len(lists))[None], size, lengths)

    def at(self, index: Value) -> Value:
        """The numbers (N, C) at places (N, C) of each column's own list."""
        return entries(self.flat, index + self.starts)


def count_below(values: Value, table: Table, side: Side = "left") -> Value:
    """How many numbers of a column's list are less than a value; with "right", at most as large. (N, C) int64.

    Args:
        values: (N, C) below infinity.
        table: Increasing numbers.
        side: As of `numpy.searchsorted`.
    """
    step = table.size // 2
    probe = values.nodes.constant(table.flat[table.starts + step - 1])
    count: Value | None = None
    while True:
        beyond = greater(values, probe) if side == "left" else at_least(values, probe)
        found = where(beyond, np.array(step), np.array(0))
        count = found if count is None else count + found
        step //= 2
        if step == 0:
            return count
        probe = entries(table.flat, count + (table.starts + step - 1))


def stepped(values: Value, thresholds: Sequence[Doubles], levels: Sequence[Doubles], side: Side = "left") -> Value:
    """Step functions (N, C): the level whose number is that of the thresholds below a value.

    Args:
        values: (N, C).
        thresholds: C increasing lists.
        levels: C lists, each of one more.
        side: Whether a value on a threshold is not yet beyond it ("left") or is.
    """
    return Table.of(levels).at(count_below(values, Table.of(thresholds), side))


def interpolated(
    values: Value, inputs: Sequence[Doubles], outputs: Sequence[Doubles], slack: Value | None = None
) -> Value:
    """Piecewise linear curves (N, C), constant beyond their ends.

    Args:
        values: (N, C).
        inputs: C increasing lists of one or more.
        outputs: C lists as long.
        slack: (N, C) how near to a knot a value is on it; None: on it alone.
    """
    # A curve through one point is constant; a second one makes it a curve like others.
    ends = [np.append(one, one[-1] + 1) if len(one) == 1 else one for one in inputs]
    heights = [np.repeat(one, 2) if len(one) == 1 else one for one in outputs]
    knots, levels = Table.of(ends), Table.of(heights)
    right = least(greatest(count_below(values, knots), np.array(1)), knots.lengths - 1)
    left = right + np.array(-1)
    low, high = knots.at(left), knots.at(right)
    share = clipped((values - low) / (high - low), 0.0, 1.0)
    if slack is not None:
        share = where(less(values - low, slack), 0.0, where(less(high - values, slack), 1.0, share))
    return (1.0 - share) * levels.at(left) + share * levels.at(right)


def last_at_most(score: Callable[[Doubles], Doubles], edges: Doubles) -> Doubles:
    """The largest arguments (B,) at which a score is at most an edge: thresholds before the score was taken.

    Args:
        score: Non-decreasing, of float64 numbers.
        edges: (B,).
    """
    with np.errstate(over="ignore"):
        return np.nextafter(first_numbers(lambda numbers: score(numbers) > edges, len(edges)), -np.inf)


def above_rounding(log_odds: Doubles) -> Doubles:
    """How far log-odds, of one class against the rest, may be off by rounding, and much less than they differ."""
    return 2e-14 * (1 + np.abs(log_odds))


def above_rounding_of(chances: Doubles) -> Doubles:
    """The same of a softmax, which is dense next to zero and next to one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = 2e-14 * (1 - np.log(chances))
    return np.where(chances == 0, 0.0, np.minimum(chances * relative, 1e-6 * (1 - chances)))
