"""The columns that a scikit-learn model reads, and what each holds, from the fitted steps themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bundle import Column, Columns, GraphInput
from importing.converted import Feeds
from importing.errors import UnsupportedModelError
from importing.libraries import library

Kind = Literal["number", "integer", "string"]
MATRIX = "features"

_Found = tuple[Kind, tuple[str, ...] | None, str | float | None]
_NUMBER: _Found = ("number", None, "")


@dataclass(frozen=True)
class Field:
    """One column that a model reads.

    Attributes:
        place: Its place among the columns that the model was trained with.
        name: Its name; None for a model of a matrix.
        kind: What it holds.
        categories: The texts that the model knows; None for other kinds.
        absent: What the model itself has for a missing text, which is empty in the graph.
    """

    place: int
    name: str | None
    kind: Kind
    categories: tuple[str, ...] | None = None
    absent: str | float | None = ""


@dataclass(frozen=True)
class Inputs:
    """All columns that a model reads. Without texts they are one matrix, otherwise one input each.

    Attributes:
        fields: The columns, in order.
        width: Number of columns that the model was trained with, those that it drops included.
        names: Their names; None for a model of a matrix.
        selected: Whether a ColumnTransformer selects among the columns.
    """

    fields: tuple[Field, ...]
    width: int
    names: tuple[str, ...] | None
    selected: bool

    @property
    def matrix(self) -> bool:
        """Whether the graph takes one matrix of numbers."""
        return all(field.kind != "string" for field in self.fields)

    @property
    def whole(self) -> bool:
        """Whether the steps take the matrix as it is: most know one input only, but columns are selected by name."""
        return all(field.kind == "number" for field in self.fields) and not (self.selected and self.names)

    @property
    def columns(self) -> Columns | None:
        """The columns as rows give them; None where the model knows no names. Texts enter the graph as they are."""
        if self.names is None:
            return None
        if self.matrix:
            return Columns(tuple(Column(str(field.name)) for field in self.fields))
        return Columns(tuple(map(_column, self.fields)))

    def entries(self, dtype: Literal["float32", "float64"]) -> tuple[GraphInput, ...]:
        """Return the inputs of the graph, with numbers of a type."""
        if self.matrix:
            return (GraphInput(name=MATRIX, dtype=dtype, shape=(len(self.fields),)),)
        kinds = {"number": dtype, "integer": "int64", "string": "string"}
        return tuple(GraphInput(name=str(field.name), dtype=kinds[field.kind], shape=(1,)) for field in self.fields)

    def rows(self, feeds: Feeds) -> Any:
        """Return feeds of the graph as the model itself takes them: a data frame, or a matrix without names."""
        if self.matrix:
            values = list(feeds[MATRIX].astype(np.float64).T)
        else:
            values = [_values(field, feeds[str(field.name)][:, 0]) for field in self.fields]
        if self.names is None:
            table = np.zeros((len(values[0]), self.width), object if not self.matrix else np.float64)
            for field, column in zip(self.fields, values, strict=True):
                table[:, field.place] = column
            return table
        pandas = library("pandas")
        frame = pandas.DataFrame(np.zeros((len(values[0]), self.width)), columns=list(self.names))
        dtypes = {"integer": np.int64, "string": object, "number": np.float64}
        for field, column in zip(self.fields, values, strict=True):
            frame[field.name] = pandas.Series(column, dtype=dtypes[field.kind])
        return frame


def inputs(estimator: Any) -> Inputs:
    """Return the columns that a fitted model reads.

    Raises:
        UnsupportedModelError: A column holds texts and other values at once, or texts without a name.
    """
    width = int(estimator.n_features_in_)
    found = getattr(estimator, "feature_names_in_", None)
    names = None if found is None else tuple(map(str, found))
    first = _first(estimator)
    if hasattr(first, "transformers_"):
        places = first._transformer_to_input_indices  # noqa: SLF001 — no public name resolves every way to select columns
        parts = [(part, list(places[name])) for name, part, _ in first.transformers_ if not _is(part, "drop")]
    else:
        parts = [(first, list(range(width)))]
    kinds: dict[int, _Found] = {}
    for part, among in parts:
        for place, kind in zip(among, _kinds(_first(part), len(among)), strict=True):
            if kinds.setdefault(place, kind)[0] != kind[0] and "string" in (kind[0], kinds[place][0]):
                raise UnsupportedModelError(
                    "a column is read as text and as a number",
                    where=f"column {names[place] if names else place}",
                    remedy="Give the model two columns.",
                )
    fields = tuple(
        Field(place, names[place] if names else None, *kinds[place]) for place in range(width) if place in kinds
    )
    if names is None and any(field.kind == "string" for field in fields):
        raise UnsupportedModelError(
            "the model reads texts from columns without names",
            remedy="Train it with a pandas DataFrame, whose columns have names.",
        )
    selected = any(hasattr(part, "transformers") for part in (first, *first.get_params().values()))
    return Inputs(fields, width, names, selected)


def _values(field: Field, values: NDArray[Any]) -> NDArray[Any]:
    if field.absent == "":
        return values
    given = values.astype(object)
    given[given == ""] = field.absent
    return given


def _column(field: Field) -> Column:
    name = str(field.name)
    return Column(name, field.categories, "text" if field.kind == "string" else "number", tensor=name)


def _first(estimator: Any) -> Any:
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[0][1]
    return estimator


def _is(part: Any, word: str) -> bool:
    return isinstance(part, str) and part == word


def _kinds(step: Any, columns: int) -> Sequence[_Found]:
    known = getattr(step, "categories_", None)
    if isinstance(known, list) and len(known) == columns:
        return [_kind(np.asarray(values)) for values in known]
    statistics = getattr(step, "statistics_", None)
    if statistics is not None and np.asarray(statistics).dtype.kind in "OU":
        absent = "" if isinstance(step.missing_values, str) else step.missing_values
        return [("string", None, absent) if isinstance(value, str) else _NUMBER for value in statistics]
    return [_NUMBER] * columns


def _kind(values: NDArray[Any]) -> _Found:
    if values.dtype.kind in "OU":
        if not all(isinstance(value, str) for value in values):
            raise UnsupportedModelError(
                "an encoder knows categories that are not texts",
                found=str([value for value in values if not isinstance(value, str)][:5]),
                expected="texts, without missing values",
                remedy="Replace missing values by a text of their own before training.",
            )
        return "string", tuple(values), ""
    return ("integer", None, "") if values.dtype.kind in "iub" else _NUMBER
