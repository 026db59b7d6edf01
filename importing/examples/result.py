"""The rows as the model takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Columns, GraphInput, InputSpec, Tokenizer


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
    values: npt.NDArray[Any]
    notes: tuple[str, ...]
    tokenizer: Tokenizer | None = None
    texts: npt.NDArray[np.object_] | None = None
