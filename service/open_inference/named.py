"""Input tensors of models that take several by name: the columns of a table, the tensors of a graph, or scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bundle import Bundle, Column, Columns, InputSpec, RowError, Scores, TensorSpec, Tokenizer, tensors
from bundle.open_inference import BYTES, OF_DTYPE
from bundle.table import Cell
from service.errors import InputError, InputShapeError
from service.inference.encoded import Absent, by_row
from service.inference.inputs import Encoder, check_rows
from service.open_inference.datatypes import BOOL, DATATYPES, accepted
from service.open_inference.errors import rows_of_the_tensor
from service.open_inference.tensor import InputTensor
from service.places import in_body

INPUT: Final = "input"

_WHOLE: Final = tuple(name for name, datatype in DATATYPES.items() if datatype.whole)
_NUMBERS: Final = (*accepted("float32"), BOOL)
_MOST_NAMES: Final = 100  # in an error


class Declared(NamedTuple):
    """An input tensor of a model.

    Attributes:
        name: Name of the tensor.
        datatype: Datatype that needs no conversion.
        shape: Shape of one example.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


def own_name(bundle: Bundle) -> str:
    """Return the name that the graph of a model has for its only input; `INPUT` where there is none, or several."""
    graph = bundle.manifest.graph
    return graph.inputs[0].name if graph is not None and len(graph.inputs) == 1 else INPUT


def declared(spec: InputSpec, encoder: Encoder | None, own: str = INPUT) -> list[Declared]:
    """Return the input tensors of a model: columns of a table, tensors of a graph, scores, or one.

    Args:
        spec: Input of the model.
        encoder: Columns, tokenizer or scores in the bundle of the model.
        own: Name of the one tensor, see `own_name`.
    """
    if isinstance(encoder, Columns):
        dtypes: dict[str, str] = {tensor.name: tensor.dtype for tensor in spec.tensors}
        return [
            Declared(
                column.name,
                OF_DTYPE[dtypes.get(column.tensor, spec.dtype)] if column.kind == "number" else BYTES,
                (1,),
            )
            for column in encoder.columns
        ]
    if isinstance(encoder, Scores):
        single = encoder.field == "scores"
        return [Declared(encoder.field, "FP64", (len(encoder.labels) or 1,) if single else spec.shape)]
    if isinstance(encoder, Tokenizer):
        return [Declared(INPUT, BYTES, ())]
    if spec.kind == "tensors":
        return [Declared(tensor.name, OF_DTYPE[tensor.dtype], tensor.shape) for tensor in spec.tensors]
    return [matrix(spec, own)]


def matrix(spec: InputSpec, own: str = INPUT) -> Declared:
    """Return the one tensor of a model of images, arrays or tokens."""
    return Declared(own, OF_DTYPE[spec.dtype], spec.shape)


def renamed(names: Sequence[str], own: str, spec: InputSpec, encoder: Encoder | None) -> list[str]:
    """Return the names of the tensors of a request, with one name for the only input of a model, which has two.

    A table of one matrix has them beside its columns, unless a column has that name.

    Args:
        names: Names of the tensors.
        own: Name in the graph, see `own_name`.
        spec: Input of the model.
        encoder: Columns, tokenizer or scores in the bundle of the model.
    """
    if own == INPUT:
        return [*names]
    if spec.kind == "tensors":
        return [own if name == INPUT else name for name in names] if encoder is None else [*names]
    if own not in names or (isinstance(encoder, Columns) and any(one.name in (own, INPUT) for one in encoder.columns)):
        return [*names]
    return [INPUT if name == own else name for name in names]


def read(
    given: Mapping[str, InputTensor],
    body: bytes,
    spec: InputSpec,
    encoder: Encoder | None,
    max_rows: int,
    absent: Absent | None = None,
) -> npt.NDArray[Any]:
    """Return the inputs of a model that takes tensors by name.

    Args:
        given: Tensors of the request by name, without the client's names of the rows.
        body: Whole body.
        spec: Input of the model.
        encoder: Columns or scores in the bundle of the model.
        max_rows: Maximum number of rows.
        absent: Counts accepted missing and unknown values of columns.

    Raises:
        InputError: A tensor is missing, or its values cannot be used.
    """
    rows = _rows(given, max_rows)
    if isinstance(encoder, Columns):
        return _table(given, body, spec, encoder, rows, absent)
    if isinstance(encoder, Scores):
        (tensor,) = given.values()
        values = tensor.numbers(body, "float64", declared(spec, encoder)[0].shape)
        if encoder.field == "scores" and not encoder.labels:
            values = values.reshape(rows)
        with rows_of_the_tensor(tensor.where):
            return by_row(values, partial(encoder.logits, classes=spec.shape[0]))
    encoded = np.empty(rows, spec.numpy)
    for wanted in spec.tensors:
        encoded[wanted.name] = _tensor(given[wanted.name], body, wanted)
    return encoded


def check_names(
    names: Sequence[str],
    optional: Sequence[str],
    spec: InputSpec,
    encoder: Encoder | None,
    beyond: Set[str] = frozenset(),
) -> None:
    """Refuse tensors that the model does not take, and requests that lack one.

    A column left out has missing values only, like a column that a row of /v1 leaves out.

    Args:
        names: Names of the tensors of a request.
        optional: Names of tensors that any model takes.
        spec: Input of the model.
        encoder: Columns or scores in the bundle of the model.
        beyond: Names of columns that challengers know.

    Raises:
        InputError: A tensor is unknown, duplicate or missing.
    """
    known = [tensor.name for tensor in declared(spec, encoder)]
    required = set(known)
    if isinstance(encoder, Columns):
        required = {column.name for column in encoder.columns if column.on_missing == "refuse"}
    allowed = {*known, *optional, *beyond}
    wrong = [name for name, count in Counter(names).items() if name not in allowed or count > 1]
    lacking = [name for name in known if name in required and name not in names]
    if wrong or lacking or not set(known).intersection(names):
        what = "one input tensor per column" if isinstance(encoder, Columns) else "these input tensors"
        raise InputError(
            f"The model takes {what}, and optionally one each of {', '.join(optional)}. "
            f"{'Unknown or duplicate' if wrong else 'Missing'}: "
            f"{', '.join(map(repr, (wrong or lacking or known)[:10]))}.",
            where=in_body("inputs"),
            found=list(names[:10]),
            expected=known[:_MOST_NAMES],
        )


def carried_cells(given: Mapping[str, InputTensor], body: bytes, rows: int) -> list[dict[str, Cell]] | None:
    """Return the cells of columns that challengers need; what is not one number or text for each row is left out.

    Args:
        given: Their tensors by name.
        body: Whole body.
        rows: Number of rows.
    """
    columns: dict[str, list[Cell]] = {}
    for name, tensor in given.items():
        with suppress(InputError):
            if len(cells := tensor.cells(body, (*_NUMBERS, BYTES))) == rows:
                columns[name] = cells
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] or None


def _rows(given: Mapping[str, InputTensor], max_rows: int) -> int:
    first = next(iter(given.values()))
    for tensor in given.values():
        if tensor.shape[:1] != first.shape[:1] or not tensor.shape:
            raise InputShapeError(
                "All input tensors must have the same number of rows.",
                where=tensor.where / "shape",
                found=list(tensor.shape),
                expected=f"{first.shape[0]} rows" if first.shape else "[N, …]",
            )
    rows: int = first.shape[0]
    check_rows(rows, max_rows)
    return rows


def _tensor(tensor: InputTensor, body: bytes, wanted: TensorSpec) -> npt.NDArray[Any]:
    if wanted.dtype == "string":
        values: Any = np.array(tensor.texts(body, wanted.shape), object).reshape(-1, *wanted.shape)
    else:
        values = tensor.numbers(body, wanted.dtype, wanted.shape)
    with rows_of_the_tensor(tensor.where):
        return by_row(values, partial(tensors.column, tensor=wanted))


def _table(
    given: Mapping[str, InputTensor],
    body: bytes,
    spec: InputSpec,
    columns: Columns,
    rows: int,
    absent: Absent | None,
) -> npt.NDArray[Any]:
    known = {column.name: column for column in columns.columns}
    values = {name: tensor.cells(body, _datatypes(known[name])) for name, tensor in given.items()}
    try:
        return columns.encode_columns(values, rows, spec, absent)
    except RowError:
        for name, tensor in given.items():
            with rows_of_the_tensor(tensor.where):
                by_row(values[name], known[name].encode)
        names, tables = list(values), zip(*values.values(), strict=True)
        with rows_of_the_tensor(next(iter(given.values())).where):
            by_row([dict(zip(names, row, strict=True)) for row in tables], partial(columns.encode, spec=spec))
        raise


def _datatypes(column: Column) -> tuple[str, ...]:
    if column.kind == "number":
        return _NUMBERS
    return (BYTES, *_WHOLE) if column.kind == "category" else (BYTES,)
