"""The rows as the model takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bundle import Columns, GraphInput, InputSpec, Tokenizer


class Values(Protocol):
    """Rows as the model takes them, (N, …): an array, or what makes parts of one."""

    def __len__(self) -> int:
        """Return N."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Return the rows of a slice or of positions as an array (n, …)."""


class OnDemand:
    """Rows that are made when they are read, so that a part of them at a time is held.

    Args:
        count: Number of rows.
        make: Makes the rows of these positions, int64 (n,), as an array (n, …).
    """

    def __init__(self, count: int, make: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice | npt.NDArray[np.int64], /) -> npt.NDArray[Any]:
        """Return the rows of a slice or of positions."""
        return self._make(np.arange(self._count)[rows])


@dataclass(frozen=True, eq=False)
class Examples:
    """The rows as the model takes them.

    Attributes:
        spec: Input of the bundle.
        inputs: How it enters the graph.
        columns: Columns of a table; None for other inputs.
        values: The rows, (N, *spec.shape), structured for tensors.
        notes: What was found, for people.
        tokenizer: What made the values of texts; None for other inputs.
        texts: The texts, object (N,); None for other inputs.
    """

    spec: InputSpec
    inputs: tuple[GraphInput, ...]
    columns: Columns | None
    values: Values
    notes: tuple[str, ...]
    tokenizer: Tokenizer | None = None
    texts: npt.NDArray[np.object_] | None = None
