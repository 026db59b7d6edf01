"""A model of another library as an ONNX graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Column, Columns, Graph, Trees

Feeds = Mapping[str, NDArray[Any]]
"""Rows by input of the graph, as ONNX Runtime takes them."""

Native = Callable[[Feeds], NDArray[np.float64]]
"""Probabilities (N, K) of rows, from the library itself."""


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
        trees: The trees, where the leaves add up to log-odds; None otherwise.
        complete: Names the categories of a model that knows them by their hashes alone: `columns`, and the texts of
            each of its categorical columns in, the whole columns and `native` out; None where nothing is lacking.
    """

    model: bytes
    graph: Graph
    classes: int
    columns: Columns | None
    labels: tuple[str, ...] | None
    library: str
    native: Native
    trees: Trees | None = None
    complete: Callable[[Columns, Mapping[str, Collection[str]]], tuple[Columns, Native]] | None = None


def of_booster(
    made: tuple[bytes, Graph, Trees | None],
    outputs: int,
    columns: Columns | None,
    source: Any,
    library: str,
    native: Native,
) -> Converted:
    """Return the graph of a booster; `source` names the classes if it is an estimator."""
    labels = getattr(source, "classes_", None)
    return Converted(
        model=made[0],
        graph=made[1],
        classes=max(outputs, 2),
        columns=columns,
        labels=None if labels is None else tuple(map(str, labels)),
        library=library,
        native=native,
        trees=made[2],
    )


def coded_columns(names: Sequence[str], categories: Mapping[int, tuple[str, ...]]) -> Columns:
    """Return columns by name; categories, by place, enter the graph as codes from 0, and others as NaN."""
    columns = (Column(name, categories.get(place), first_code=0, absent=math.nan) for place, name in enumerate(names))
    return Columns(tuple(columns))
