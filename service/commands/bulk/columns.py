"""Which columns of a file are sent, and as what."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from candor.contract.models import Model
from service.bulk.columns import AMOUNT, RowColumns, needed_columns
from service.commands.bulk.tables import Row


@dataclass(frozen=True, slots=True)
class Sent:
    """Columns that are sent with a row.

    Attributes:
        field: Field of the request: `inputs`, or the one for scores.
        columns: Columns with what is sent.
        form: What a row is sent as: an object of its columns, a list of them, or the value of the only one.
        parsed: Columns whose texts are parsed as JSON: numbers and arrays in a CSV.
        said: Columns with what is said of the row, by what `RowColumns` calls them.
    """

    field: str
    columns: tuple[str, ...]
    form: Literal["object", "list", "value"]
    parsed: Collection[str]
    said: Mapping[str, str]

    @classmethod
    def of(
        cls,
        found: Collection[str],
        model: Model,
        *,
        scores: Sequence[str],
        columns: RowColumns,
    ) -> Sent:
        """Check the columns of a file against a model.

        Raises:
            InputValueError: A column is missing, or the model takes no scores.
        """
        columns.check(found)
        needed = needed_columns(
            found,
            name=model.model,
            labels=model.labels,
            columns=model.columns,
            tensors=() if model.input is None else model.input.tensors,
            texts=model.texts,
            score_field=model.scores,
            scores=scores,
        )
        said = {field: name for field, name in columns.named().items() if name is not None}
        return cls(needed.field, needed.columns, needed.form, needed.parsed, said)

    def arguments(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return arguments of `Client.predict` for some rows."""
        said: dict[str, Any] = {}
        for field, name in self.said.items():
            sent = _amount if field == AMOUNT else _name
            said[f"{field}s"] = [sent(row.values.get(name)) for row in rows]
        return {self.field: [self._example(row) for row in rows], **said}

    def _example(self, row: Row) -> Any:
        if self.form == "object":  # a missing value is left out
            return {name: self._sent(row, name) for name in self.columns if row.values.get(name) is not None}
        values = [self._sent(row, name) for name in self.columns]
        return values if self.form == "list" else values[0]

    def _sent(self, row: Row, name: str) -> Any:
        """Return a value as JSON has it. The service refuses what is not: it names the row."""
        value = row.values.get(name)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if name not in self.parsed or not isinstance(value, str):
            return value
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value


def _amount(value: Any) -> Any:
    """Return an amount as JSON has it. The service refuses what is not one."""
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _name(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
