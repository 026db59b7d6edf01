"""A random sample of the rows that a model answers, taken on the hot path at next to no cost."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle import InputSpec

_ROWS: Final = 2048
_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Sampled rows.

    Attributes:
        rows: Inputs of the model, (N, …), N ≥ 0.
        rate: Share of all rows that they are, in (0, 1]; every row was equally likely to be among them.
    """

    rows: npt.NDArray[Any]
    rate: float


class Sample:
    """A simple random sample of all rows since it was last taken.

    Args:
        spec: Input of the model; the sample has at most 2,048 rows and about 8 MiB.
        seed: Seed of the choice; None for a random one.

    References:
        Li (1994), Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n))), algorithm L.

    Example:
        >>> sample = Sample(InputSpec(kind="array", dtype="float32", shape=(3,)))
        >>> sample.add(np.zeros((5, 3), np.float32))
        >>> sample.take().rows.shape
        (5, 3)
    """

    def __init__(self, spec: InputSpec, *, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 — keeps no secret
        row_bytes = spec.numpy.itemsize * math.prod(spec.shape)
        self._size = max(1, min(_ROWS, _BYTES // row_bytes))
        self._shape = spec.shape
        self._dtype = spec.numpy
        self._lock = threading.Lock()
        self._rows: npt.NDArray[Any]
        self._kept: int
        self._seen: int
        self._skip: int  # rows to leave out before the next kept one
        self._weight: float
        self._begin()

    def add(self, inputs: npt.NDArray[Any]) -> None:
        """Offer the rows of a batch (N, …), of the model's type; copies the kept ones."""
        count = len(inputs)
        with self._lock:
            self._seen += count
            at = self._skip
            if self._kept < self._size:
                at = min(count, self._size - self._kept)
                self._rows[self._kept : self._kept + at] = inputs[:at]
                self._kept += at
                if self._kept == self._size:
                    at += self._gap()
            while at < count:
                self._rows[int(self._random.random() * self._size)] = inputs[at]
                at += 1 + self._gap()
            self._skip = at - count

    def take(self) -> Taken:
        """Return the sample of the rows since the last call."""
        with self._lock:
            rows, seen = self._rows[: self._kept], self._seen
            self._begin()
        return Taken(rows, len(rows) / max(seen, 1))

    def _begin(self) -> None:
        self._rows = np.empty((self._size, *self._shape), self._dtype)
        self._kept = self._seen = self._skip = 0
        self._weight = 1.0

    def _gap(self) -> int:
        """Return the number of rows to leave out before the next one."""
        self._weight *= math.exp(math.log(1.0 - self._random.random()) / self._size)
        return int(math.log(1.0 - self._random.random()) / math.log1p(-self._weight))
