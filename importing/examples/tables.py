"""Columns of a table for the inputs of a graph."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Column, Columns, GraphInput, InputSpec, RowError, TensorSpec
from bundle.table import is_number
from importing.errors import RowsError, UnsupportedModelError
from importing.examples.result import Examples
from importing.model import Port
from importing.rows import Rows
from importing.rows.values import missing
from importing.suspicions import merged

_LONGEST_TEXT = 256
_MOST_KNOWN = 1000  # values of a text column that are remembered as known
_WITH_NONE = ("float16", "float32", "float64", "string")  # types with a value for what is missing or unknown


def text_columns(ports: Sequence[Port], known: Collection[str]) -> tuple[str, ...] | None:
    """Return the columns to read as texts, so that `01` stays `01`; None for all.

    Args:
        ports: Inputs of the graph.
        known: Columns with known categories.
    """
    texts = [port.name for port in ports if port.dtype == "string"]
    return None if texts and len(ports) == 1 else (*texts, *known)


def table_columns(
    rows: Rows,
    ports: Sequence[Port],
    order: Sequence[str] | None,
    categories: Mapping[str, Sequence[str]],
) -> Columns:
    """Return the columns that fill the inputs of the graph.

    Args:
        rows: The rows.
        ports: Inputs of the graph.
        order: Names of the columns in the order of the only input; None for the order of the file.
        categories: Known values of columns that enter the graph as codes from 0, by column.

    Raises:
        UnsupportedModelError: The columns are not the inputs of the graph.
        RowsError: A column is missing, or has texts where the graph takes numbers.
    """
    names = [*(order or rows.features)]
    if lacking := [name for name in [*names, *categories] if name not in rows.features]:
        raise RowsError(
            f"The rows have no column `{lacking[0]}`.", where=str(rows.path), expected=", ".join(rows.features)
        )
    by_tensor = _by_tensor(ports, names)
    dtypes = {port.name: port.dtype for port in ports}
    columns = []
    for tensor, own in by_tensor.items():
        for name in own:
            known = tuple(map(str, categories[name])) if name in categories else None
            columns.append(_column(rows, name, tensor, text=dtypes[tensor] == "string", known=known))
    return Columns(tuple(columns))


def _by_tensor(ports: Sequence[Port], names: list[str]) -> dict[str, list[str]]:
    if len(ports) == 1 and len(ports[0].row) == 1:
        size = ports[0].row[0]
        if size not in (None, len(names)):
            raise UnsupportedModelError(
                "the rows have another number of columns than the model",
                found=f"{len(names)} column{'s' * (len(names) != 1)}: {', '.join(names)}",
                expected=str(ports[0]),
                remedy="Leave columns out with --drop, or name the inputs in order with --columns.",
            )
        return {ports[0].name: names}
    by_tensor = {port.name: [name for name in names if name == port.name] for port in ports}
    if len(ports) == 1 and not ports[0].shape and len(names) > 1:
        raise UnsupportedModelError(
            "the graph does not declare the shape of its input",
            found=str(ports[0]),
            expected=f"[N, {len(names)}], a row of {len(names)} numbers",
            remedy=f"Declare it in the export, or in the file: model.graph.input[0].type.tensor_type.shape, of N and "
            f"{len(names)}.",
        )
    unfilled = [str(port) for port in ports if by_tensor[port.name] != [port.name] or port.row not in ((), (1,))]
    unused = [name for name in names if name not in by_tensor]
    if unused and not unfilled:
        raise UnsupportedModelError(
            "the rows have columns that the model does not take",
            found=", ".join(unused),
            expected=", ".join(by_tensor),
            remedy=f"Leave them out: {' '.join(f'--drop {shlex.quote(name)}' for name in unused)}",
        )
    if unfilled or unused:
        raise UnsupportedModelError(
            "the columns of the rows are not the inputs of the model",
            found=f"columns {', '.join(unused) or '(none left)'} and inputs {', '.join(unfilled) or '(none left)'}",
            expected="one column per input, of the same name, or one input for all columns",
            remedy="Rename the columns, leave some out with --drop, or give arrays per input as .npz.",
        )
    return by_tensor


def _column(rows: Rows, name: str, tensor: str, *, text: bool, known: tuple[str, ...] | None) -> Column:
    values = rows.features[name]
    if text:
        seen = tuple(sorted({str(value) for value in values[~missing(values)]}))
        return Column(name, seen if len(seen) <= _MOST_KNOWN else None, "text", tensor, literal=True)
    if known is not None:
        return Column(name, known, "category", tensor, first_code=0, absent=float("nan"))
    if values.dtype == object:
        texts = np.flatnonzero([value is not None and not _is_finite(str(value)) for value in values])
        first = str(values[texts[0]])
        comma = re.fullmatch(r"\s*[-+]?\d+,\d+\s*", first) is not None
        if comma or 2 * len(texts) < len(values):
            raise RowsError(
                "A cell in a column of numbers is not a number.",
                where=rows.where(int(texts[0]), name),
                found=f"{first[:100]!r}" + f", and {len(texts) - 1:,} more cells" * (len(texts) > 1),
                expected="a finite number, or an empty cell",
                remedy="Write numbers with a decimal point." if comma else "Correct the cell, or leave the row out.",
            )
        seen = tuple(dict.fromkeys(str(value) for value in values[texts][:1000]))[:5]
        raise RowsError(
            f"The column `{name}` has texts, and the model takes numbers.",
            where=str(rows.path),
            found=", ".join(seen),
            expected="numbers, or the codes of its categories",
            remedy=f'Give them with --categories: {{"{name}": ["{seen[0]}", …]}}, in the order of their codes from 0.',
        )
    return Column(name, tensor=tensor)


def _is_finite(text: str) -> bool:
    return is_number(text) and math.isfinite(float(text))


def _ruled(column: Column, values: npt.NDArray[Any], *, refuse_unknown: bool, whole: bool) -> Column:
    """Return a column that refuses missing values if it never has one in the rows, or the graph has no NaN for it."""
    return replace(
        column,
        on_missing="accept" if missing(values).any() and not whole else "refuse",
        on_unknown="refuse" if refuse_unknown or (whole and column.kind == "category") else column.on_unknown,
    )


def table_examples(rows: Rows, ports: Sequence[Port], columns: Columns, *, refuse_unknown: bool) -> Examples:
    """Encode the columns of the rows for the inputs of the graph.

    Args:
        rows: The rows.
        ports: Inputs of the graph.
        columns: The columns that fill them.
        refuse_unknown: Whether rows with unknown categories are refused later, instead of counted.

    Raises:
        RowsError: A column is missing, or a value does not fit.
    """
    if lacking := [column.name for column in columns.columns if column.name not in rows.features]:
        raise RowsError(
            f"The rows have no column `{lacking[0]}`, which the model requires.",
            where=str(rows.path),
            expected=", ".join(column.name for column in columns.columns),
        )
    port = ports[0]
    plain = len(ports) == 1 and len(port.row) == 1 and port.dtype in ("float32", "float64")
    inputs = []
    fields = []
    for each in ports:
        own = [column for column in columns.columns if len(ports) == 1 or column.tensor == each.name]
        shape = (len(own),) if len(each.row) == 1 else ()
        longest = max((_longest(rows.features[column.name]) for column in own), default=1)
        assert each.dtype is not None  # noqa: S101 — checked above
        fields.append(TensorSpec(name=each.name, dtype=each.dtype, shape=shape, length=max(64, 2 * longest)))
        inputs.append(GraphInput(name=each.name, dtype=each.dtype, shape=shape))
    if plain:
        spec = InputSpec(kind="array", dtype="float64" if port.dtype == "float64" else "float32", shape=(len(columns),))
        columns = Columns(tuple(replace(column, tensor="") for column in columns.columns))
    else:
        spec = InputSpec(kind="tensors", dtype="record", tensors=tuple(fields))
        if len(ports) == 1:
            columns = Columns(tuple(replace(column, tensor=port.name) for column in columns.columns))
    whole = {port.name for port in ports if port.dtype not in _WITH_NONE}
    columns = Columns(
        tuple(
            _ruled(each, rows.features[each.name], refuse_unknown=refuse_unknown, whole=each.tensor in whole)
            for each in columns.columns
        )
    )
    cells = {column.name: rows.features[column.name].tolist() for column in columns.columns}
    try:
        values = columns.encode_columns(cells, len(rows), spec)
    except RowError as error:
        raise _first_refused(rows, columns, spec) from error
    unused = sorted(set(rows.features) - set(cells))
    notes = [f"input {each}" for each in ports]
    if strict := [each.name for each in columns.columns if each.kind == "category" and each.tensor in whole]:
        names = ", ".join(strict)
        notes.append(f"whole numbers have no code for an unknown or missing value, so it is refused: {names}")
    for column in columns.columns:
        dtype = next(port.dtype for port in ports if len(ports) == 1 or port.name == column.tensor)
        if dtype == "float32" and column.kind == "number" and (said := merged(column.name, rows.features[column.name])):
            notes.append(said)
    if unused:
        notes.append(f"columns that the model does not take: {', '.join(unused)}")
    return Examples(spec, tuple(inputs), columns, values, tuple(notes))


def _first_refused(rows: Rows, columns: Columns, spec: InputSpec) -> RowsError:
    """Return the error of the first row that a column refuses."""
    first, last = 0, len(rows) - 1
    while True:
        middle = (first + last) // 2
        cells = {each.name: rows.features[each.name][first : middle + 1].tolist() for each in columns.columns}
        try:
            columns.encode_columns(cells, middle + 1 - first, spec)
            first = middle + 1
        except RowError as error:
            if first == middle:
                return RowsError(error.message, where=rows.where(first), found=error.found, expected=error.expected)
            last = middle


def _longest(values: npt.NDArray[Any]) -> int:
    if values.dtype != object:
        return 1
    return min(max((len(value) for value in values if value is not None), default=1), _LONGEST_TEXT)
