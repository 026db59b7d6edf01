"""Which columns of a file are sent, and as what."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from candor.contract.models import Model
from service.commands.bulk.tables import Row
from service.errors import InputValueError

_WHOLE: Final = "inputs"
_MOST_NAMES: Final = 100  # in an error


@dataclass(frozen=True, slots=True)
class Sent:
    """Columns that are sent with a row.

    Attributes:
        field: Field of the request: `inputs`, or the one for scores.
        columns: Columns with what is sent.
        form: What a row is sent as: an object of its columns, a list of them, or the value of the only one.
        parsed: Columns whose texts are parsed as JSON: numbers and arrays in a CSV.
        reference: Column with the row's reference, if any.
        group: Column with its group, if any.
        segment: Column with its segment, if any.
    """

    field: str
    columns: tuple[str, ...]
    form: Literal["object", "list", "value"]
    parsed: Collection[str]
    reference: str | None
    group: str | None
    segment: str | None

    @classmethod
    def of(
        cls,
        found: Collection[str],
        model: Model,
        *,
        scores: Sequence[str],
        reference: str | None,
        group: str | None,
        segment: str | None,
    ) -> Sent:
        """Check the columns of a file against a model.

        Raises:
            InputValueError: A column is missing, or the model takes no scores.
        """
        for option, name in (("--reference", reference), ("--group", group), ("--segment", segment)):
            if name is not None:
                check_known(name, found, option)
        if scores and model.scores is None:
            raise InputValueError(f"{model.model} computes its scores itself.", where="--score", found=list(scores))
        field, columns, form, parsed = _values(found, model, tuple(scores))
        missing = [name for name in columns if name not in found]
        if missing:
            raise InputValueError(
                f"The file lacks {len(missing)} of the columns that {model.model} needs.",
                where=", ".join(missing[:_MOST_NAMES]),
                found=_shown(found),
                expected=_shown(columns),
                remedy=_remedy(missing, found),
            )
        return cls(field, columns, form, parsed, reference, group, segment)

    def arguments(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return arguments of `Client.predict` for some rows."""
        names = {"references": self.reference, "groups": self.group, "segments": self.segment}
        given = {key: name for key, name in names.items() if name is not None}
        columns = {key: [_name(row.values.get(name)) for row in rows] for key, name in given.items()}
        return {self.field: [self._example(row) for row in rows], **columns}

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


def _values(
    found: Collection[str], model: Model, scores: tuple[str, ...]
) -> tuple[str, tuple[str, ...], Literal["object", "list", "value"], Collection[str]]:
    """Return the field of the request, the columns that it needs, their form, and those parsed as JSON."""
    if model.scores is not None:
        several = len(scores) > 1 or (not scores and model.scores != "scores" and model.scores not in found)
        columns = scores or (model.labels if several else (model.scores,))
        return model.scores, columns, "list" if several else "value", columns
    if model.columns is not None:
        return _WHOLE, model.columns, "object", ()
    tensors = () if model.input is None else model.input.tensors
    if tensors and not (model.texts and _WHOLE in found):
        parsed = {tensor.name for tensor in tensors if tensor.dtype != "string" or tensor.shape not in ((), (1,))}
        return _WHOLE, tuple(tensor.name for tensor in tensors), "object", parsed
    return _WHOLE, (_WHOLE,), "value", () if model.texts else (_WHOLE,)


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


def _name(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
