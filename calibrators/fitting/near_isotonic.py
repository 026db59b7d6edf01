"""Near-isotonic regression: the whole path from the data to their isotonic regression."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles


class NearIsotonicPath:
    """Minimisers of ½ Σ w (y − z)² + λ Σ max(z_i − z_{i+1}, 0) for all λ ≥ 0.

    As λ grows, neighbours with equal z merge and never part; between merges all z move linearly. Modified pool adjacent
    violators with a heap of meeting times: U log U for U values.

    Args:
        values: (U,) y, U ≥ 1.
        mass: (U,) w, above 0.

    Attributes:
        count: Current number of blocks.

    References:
        Tibshirani, Hoefling, Tibshirani (2011), Nearly-isotonic regression, section 3.
    """

    def __init__(self, values: Doubles, mass: Doubles) -> None:
        starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
        self._starts = starts
        self._values: list[float] = values[starts].tolist()
        self._mass: list[float] = np.add.reduceat(mass, starts).tolist()
        self._since = [0.0] * len(starts)
        falls = np.concatenate([[False], np.diff(values[starts]) < 0, [False]])
        self._falls: list[bool] = falls.tolist()
        self._slopes = [self._slope(i, i) for i in range(len(starts))]
        self._next = list(range(1, len(starts) + 1))
        self._previous = list(range(-1, len(starts) - 1))
        self._last = list(range(len(starts)))
        self._alive = np.ones(len(starts), dtype=np.bool_)
        self._penalty = 0.0
        self.count = len(starts)

    def steps(self) -> Iterator[int]:
        """Follow the path, once; yield the number of blocks at λ = 0 and after each merge."""
        yield self.count
        size = len(self._values)
        # A meeting counts only while neither block has changed: each block's version is its number of changes.
        version = [0] * size
        meetings: list[tuple[float, int, int, int, int]] = []

        def expect(left: int, right: int) -> None:
            closing = self._slopes[right] - self._slopes[left]
            gap = self._at(left) - self._at(right)
            # Neighbours keep their order until they merge, but rounding may contradict that if several meet at once.
            gap = max(gap, 0.0) if self._falls[right] else min(gap, 0.0)
            if gap == 0 or gap * closing > 0:
                time = self._penalty + (gap / closing if gap != 0 else 0.0)
                heapq.heappush(meetings, (time, left, right, version[left], version[right]))

        for i in range(size - 1):
            expect(i, i + 1)
        while meetings:
            time, left, right, left_version, right_version = heapq.heappop(meetings)
            if left_version != version[left] or right_version != version[right]:
                continue
            self._penalty = max(time, self._penalty)
            self._values[left] = self._at(left)
            self._since[left] = self._penalty
            self._mass[left] += self._mass[right]
            self._last[left] = self._last[right]
            self._slopes[left] = self._slope(left, self._last[left])
            version[left] += 1
            version[right] = -1
            self._alive[right] = False
            after = self._next[left] = self._next[right]
            self.count -= 1
            if after < size:
                self._previous[after] = left
                expect(left, after)
            before = self._previous[left]
            if before >= 0:
                expect(before, left)
            yield self.count

    def blocks(self) -> tuple[npt.NDArray[np.intp], Doubles]:
        """Return the start of each block among the U values, and its z, in [min y, max y]."""
        alive = np.flatnonzero(self._alive)
        return self._starts[alive], np.array([self._at(i) for i in alive.tolist()])

    def _at(self, block: int) -> float:
        return self._values[block] + self._slopes[block] * (self._penalty - self._since[block])

    def _slope(self, first: int, last: int) -> float:
        """Return dz/dλ of the original blocks ``first`` to ``last``: pushed up from the left, down from the right."""
        return (self._falls[first] - self._falls[last + 1]) / self._mass[first]
