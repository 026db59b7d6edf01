"""Windows of traffic for the test of input drift: counts by column and bin, of a random sample of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

LEAST_ROWS: Final = 1_000
"""A window is tested with this many rows or more."""
MOST_ROWS: Final = 4_000
"""Beyond this, every row stays with probability ½."""


@dataclass(frozen=True, slots=True, eq=False)
class TrafficWindow:
    """A window's sample.

    Attributes:
        since: Its start, microseconds since the epoch, UTC.
        rows: Rows in the sample.
        rate: Probability with which each row of the window's traffic is in it.
        counts: Its rows in each bin, int64 (B,), a column each.
    """

    since: int
    rows: int
    rate: float
    counts: tuple[NDArray[np.int64], ...]

    @classmethod
    def empty(cls, since: int, sizes: Sequence[int]) -> Self:
        """Return a window without rows; `sizes` are the columns' numbers of bins."""
        return cls(since, 0, 1.0, tuple(np.zeros(size, np.int64) for size in sizes))

    def joined(self, bins: Sequence[NDArray[np.int64]], rate: float, rng: np.random.Generator) -> Self:
        """Add sampled rows.

        Rows are thinned so that all of the window's traffic is in the sample with the same probability. Each column's
        counts are thinned by themselves: each is that of a random part of the rows, of the same size.

        Args:
            bins: Bin of each row in each column, (N,).
            rate: Probability with which these rows were sampled.
            rng: Chooses the rows.
        """
        window = self.thinned(rate / self.rate, rng)
        kept = rng.random(len(bins[0])) < window.rate / rate
        counts = tuple(
            known + np.bincount(at[kept], minlength=len(known)) for known, at in zip(window.counts, bins, strict=True)
        )
        window = type(self)(self.since, window.rows + int(kept.sum()), window.rate, counts)
        while window.rows > MOST_ROWS:
            window = window.thinned(0.5, rng)
        return window

    def thinned(self, share: float, rng: np.random.Generator) -> Self:
        """Return the window with each row kept with a probability; itself for 1 or more."""
        if share >= 1:
            return self
        rows = int(rng.binomial(self.rows, share))
        counts = tuple(rng.multivariate_hypergeometric(known, rows) for known in self.counts)
        return type(self)(self.since, rows, self.rate * share, counts)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        counts = [known.tolist() for known in self.counts]
        return {"since": self.since, "rows": self.rows, "rate": self.rate, "counts": counts}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        counts = tuple(np.array(known, np.int64) for known in document["counts"])
        return cls(document["since"], document["rows"], document["rate"], counts)
