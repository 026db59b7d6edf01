"""Which columns of a file a model needs, and what they become: the model's input, names and amounts."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from bundle import Columns, RowError, Scores, Tokenizer, Vocabulary
from bundle.tensors import column as tensor_column
from service.errors import CandorError, InputError, InputTypeError, InputValueError, UpstreamRejectedError
from service.inference.amounts import check_amount
from service.inference.encoded import decode_base64, decode_images
from service.inference.inputs import conform
from service.inference.names import LONGEST_NAME
from service.inference.nested import array_of
from service.inference.per_row import NAMES, PerRow
from service.serving.plane import Served

T = TypeVar("T")
Refused = tuple[int, CandorError | RowError]
"""A row and why it is refused."""

Values = Sequence[Any] | npt.NDArray[Any]

_WHOLE: Final = "inputs"
_MOST_NAMES: Final = 100  # in an error
_CELLS: Final = frozenset({str, int, float, type(None)})
AMOUNT: Final = "amount"


@dataclass(frozen=True, kw_only=True)
class RowColumns:
    """Columns with what a file says of its rows besides the input; None without one.

    Attributes:
        reference: Column with the caller's own id of a row.
        group: Column with what a row belongs to.
        segment: Column with the part of the traffic.
        amount: Column with the amount at stake.
    """

    reference: str | None = None
    group: str | None = None
    segment: str | None = None
    amount: str | None = None

    def named(self) -> dict[str, str | None]:
        """Return the column by the name of each field, which is that of `PerRow` without its last letter."""
        return {field.name: getattr(self, field.name) for field in fields(RowColumns)}

    def check(self, found: Collection[str]) -> None:
        """Raise InputValueError unless a file has these columns."""
        for name, column in self.named().items():
            if column is not None:
                check_known(column, found, f"--{name}")


class Tensor(Protocol):
    """A named input of a graph."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dtype(self) -> str:
        """Type of its elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Columns that hold the input of a model.

    Attributes:
        field: Field of a request that takes them: `inputs`, or the one for scores.
        columns: Their names.
        form: What a row is: an object of its columns, a list of them, or the value of the only one.
        parsed: Columns whose texts are parsed as JSON: numbers and arrays in a CSV.
    """

    field: str
    columns: tuple[str, ...]
    form: Literal["object", "list", "value"]
    parsed: Collection[str]


def needed_columns(
    found: Collection[str],
    *,
    name: str,
    labels: Sequence[str],
    columns: Sequence[str] | None,
    tensors: Sequence[Tensor],
    texts: bool,
    score_field: str | None,
    scores: Sequence[str],
) -> Needed:
    """Return the columns of a file that a model needs.

    Args:
        found: Columns of the file.
        name: Name of the model.
        labels: Its labels.
        columns: Columns of its table; None for other models.
        tensors: Its named tensors; empty for other models.
        texts: Whether it takes texts.
        score_field: Field of a request for the scores of a model that others run; None for other models.
        scores: Columns with such scores, if the caller named them.

    Raises:
        InputValueError: A column is missing, or scores are named for a model that computes its own.
    """
    if scores and score_field is None:
        raise InputValueError(f"{name} computes its scores itself.", where="--score", found=list(scores))
    if score_field is not None:
        several = len(scores) > 1 or (not scores and score_field != "scores" and score_field not in found)
        chosen = tuple(scores or (labels if several else (score_field,)))
        needed = Needed(score_field, chosen, "list" if several else "value", chosen)
    elif columns is not None:
        needed = Needed(_WHOLE, tuple(columns), "object", ())
    elif tensors and not (texts and _WHOLE in found):
        parsed = {tensor.name for tensor in tensors if tensor.dtype != "string" or tensor.shape not in ((), (1,))}
        needed = Needed(_WHOLE, tuple(tensor.name for tensor in tensors), "object", parsed)
    else:
        needed = Needed(_WHOLE, (_WHOLE,), "value", () if texts else (_WHOLE,))
    missing = [column for column in needed.columns if column not in found]
    if missing:
        raise InputValueError(
            f"The file lacks {len(missing)} of the columns that {name} needs.",
            where=", ".join(missing[:_MOST_NAMES]),
            found=_shown(found),
            expected=_shown(needed.columns),
            remedy=_remedy(missing, found)
            or (None if score_field is None else "Name the columns of the scores: --score risk, or --scores p_a,p_b."),
        )
    return needed


def check_known(name: str, found: Collection[str], option: str) -> None:
    """Raise InputValueError unless a file has the column that an option names."""
    if name not in found:
        raise InputValueError(
            f"{option}: the file has no column `{name}`.",
            where=option,
            found=name,
            expected=_shown(found),
            remedy=_remedy([name], found),
        )


def _remedy(missing: Sequence[str], found: Collection[str]) -> str | None:
    """Name the nearest column of the file for each missing one that has one."""
    folded = {name.casefold(): name for name in found}
    pairs = ((name, difflib.get_close_matches(name.casefold(), folded, n=1)) for name in missing[:_MOST_NAMES])
    nearest = [f"`{name}`: did you mean `{folded[near[0]]}`?" for name, near in pairs if near]
    return " ".join(nearest) or None


def _shown(names: Collection[str]) -> str:
    return ", ".join(list(names)[:_MOST_NAMES]) + ", …" * (len(names) > _MOST_NAMES)


@dataclass(frozen=True)
class Reader:
    """What the columns of a file become for one revision.

    Attributes:
        served: The revision.
        needed: Columns of the model's input.
        max_pixels: Maximum pixels of an encoded image.
        columns: Columns with what is said of the rows.
    """

    served: Served
    needed: Needed
    max_pixels: int
    columns: RowColumns

    @classmethod
    def of(
        cls,
        served: Served,
        found: Collection[str],
        *,
        scores: Sequence[str],
        columns: RowColumns,
        max_pixels: int,
    ) -> Reader:
        """Check the columns of a file against a revision; raises InputValueError."""
        columns.check(found)
        encoder = served.encoder
        needed = needed_columns(
            found,
            name=served.revision.model,
            labels=served.labels,
            columns=[column.name for column in encoder.columns] if isinstance(encoder, Columns) else None,
            tensors=served.input.tensors,
            texts=isinstance(encoder, Vocabulary | Tokenizer),
            score_field=encoder.field if isinstance(encoder, Scores) else None,
            scores=scores,
        )
        return cls(served, needed, max_pixels, columns)

    def inputs(self, columns: Mapping[str, Values], rows: range) -> npt.NDArray[Any]:
        """Return the inputs (N, …) of consecutive rows, as the service makes them of a request.

        Raises:
            InputError: A row cannot be used.
            RowError: A row cannot be encoded.
        """
        values = {name: self._cells(name, columns[name][rows.start : rows.stop]) for name in self.needed.columns}
        return conform(self._encoded(values, len(rows)), self.served.input, self.served.encoder)

    def said(self, columns: Mapping[str, Values], rows: Sequence[int]) -> PerRow:
        """Return what the file says of some rows; None where a cell is empty.

        Raises:
            InputError: An amount cannot be used.
        """
        found: dict[str, Any] = {}
        for field, name in self.columns.named().items():
            if name is not None:
                cells, read = columns[name], _amount if field == AMOUNT else _name
                listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
                found[f"{field}s"] = [None if _empty(listed[row]) else read(listed[row]) for row in rows]
        return PerRow(**found)

    def check_said(self, columns: Mapping[str, Values], rows: range) -> None:
        """Raise InputError if a reference, group or segment is too long or contains NUL, or an amount is not one."""
        said = self.said(columns, rows)
        for field in NAMES:
            for name in getattr(said, field) or ():
                if name is not None and (len(name) > LONGEST_NAME or "\0" in name):
                    raise InputValueError(
                        f"The {field.removesuffix('s')} is not 1 to {LONGEST_NAME} characters without NUL.",
                        found=f"{len(name)} characters",
                    )

    def _cells(self, name: str, cells: Values) -> Values:
        if name not in self.needed.parsed or isinstance(cells, np.ndarray):
            return cells
        return [_parsed(cell) if isinstance(cell, str) else cell for cell in cells]

    def _encoded(self, values: Mapping[str, Values], count: int) -> npt.NDArray[Any]:
        spec, encoder = self.served.input, self.served.encoder
        if isinstance(encoder, Columns):
            for column in encoder.columns:
                _check_cells(column.name, values[column.name], numbers=column.kind == "number")
            return encoder.encode_columns(values, count, spec)
        if isinstance(encoder, Scores):
            lists = [cells.tolist() if isinstance(cells, np.ndarray) else list(cells) for cells in values.values()]
            rows = lists[0] if self.needed.form == "value" else [list(row) for row in zip(*lists, strict=True)]
            return encoder.logits(rows, spec.shape[0])
        if self.needed.form == "object":
            records = np.empty(count, spec.numpy)
            for tensor in spec.tensors:
                records[tensor.name] = tensor_column(values[tensor.name], tensor)
            return records
        (cells,) = values.values()
        if isinstance(cells, np.ndarray):
            return cells
        kinds = set(map(type, cells))
        if isinstance(encoder, Vocabulary | Tokenizer) and kinds == {str}:
            return encoder.encode(list(cells))
        if spec.kind == "image" and kinds <= {str, bytes}:
            files = [cell if isinstance(cell, bytes) else decode_base64([cell])[0] for cell in cells]
            return np.concatenate([decode_images([file], spec, max_pixels=self.max_pixels) for file in files])
        if kinds & {str, bytes, type(None)}:
            raise InputTypeError(
                "The input is not an array of numbers.", found=" and ".join(sorted(kind.__name__ for kind in kinds))
            )
        return array_of([cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells], spec)


def accepted(rows: range, attempt: Callable[[range], T]) -> tuple[list[tuple[range, T]], list[Refused]]:
    """Return what `attempt` gives for the rows that it accepts, and the error of each row that it refuses.

    A refused range is halved, so that one bad row among n costs about 2 log2(n) further attempts.
    """
    try:
        return [(rows, attempt(rows))], []
    except (InputError, RowError, UpstreamRejectedError) as error:
        if len(rows) == 1:
            return [], [(rows.start, error)]
    middle = len(rows) // 2
    good, refused = accepted(rows[:middle], attempt)
    more, others = accepted(rows[middle:], attempt)
    return good + more, refused + others


def _check_cells(name: str, cells: Values, *, numbers: bool) -> None:
    if isinstance(cells, np.ndarray):
        kinds = {"datetime"} if cells.dtype.kind == "M" or cells.ndim > 1 else set()
        unsupported = kinds or ({"bool"} if cells.dtype.kind == "b" and not numbers else set())
    else:
        unsupported = {kind.__name__ for kind in set(map(type, cells)) - _CELLS if not (numbers and kind is bool)}
    if unsupported:
        raise InputTypeError(
            f"The value of column {name!r} has an unsupported type.",
            found=" and ".join(sorted(unsupported)),
            expected="a number, a text, or a missing value",
        )


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _amount(value: Any) -> float:
    return check_amount(_parsed(value) if isinstance(value, str) else value, AMOUNT)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _empty(value: Any) -> bool:
    return value is None or value == "" or bool(value != value)
