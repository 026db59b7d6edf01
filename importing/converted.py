"""A model of another library as an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Columns, Graph

Feeds = Mapping[str, NDArray[Any]]
"""Rows by input of the graph, as ONNX Runtime takes them."""


@dataclass(frozen=True)
class Converted:
    """A model of another library as an ONNX graph.

    Attributes:
        model: The ONNX file; scores without a ZipMap.
        graph: How rows enter it, and what its output holds.
        classes: Number K of classes.
        columns: The features as the model knows them, in order, with the categories that it knows; None where it
            knows no names.
        labels: Names of the classes in the order of the output; None where the model knows none.
        library: Library that made the model, and the version that read it.
        native: Scores rows with that library: feeds of the graph in, probabilities float64 (N, K) out.
    """

    model: bytes
    graph: Graph
    classes: int
    columns: Columns | None
    labels: tuple[str, ...] | None
    library: str
    native: Callable[[Feeds], NDArray[np.float64]]
