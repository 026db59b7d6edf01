"""Read the JSON documents of fitted calibrators: every field is checked, and none may be missing or left over."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard, TypeVar

import numpy as np

from calibrators.arrays import Doubles
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.errors import CalibrationDataError, shown

Entries = TypeVar("Entries", Doubles, list[Doubles])
_LARGEST = float(np.finfo(np.float64).max)


def document_digest(document: Mapping[str, object]) -> str:
    """Return the SHA-256, 64 hexadecimal digits, of a document as JSON with sorted keys and no spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def written(fitted: object, *fields: str) -> dict[str, Any]:
    """Return the fields of a document: the learned attribute ``field_`` if there is one, else the option ``field``."""
    names = (f"{field}_" if hasattr(fitted, f"{field}_") else field for field in fields)
    return {field: _plain(getattr(fitted, name)) for field, name in zip(fields, names, strict=True)}


class Document:
    """A document being read. Each method takes one field and refuses an invalid value.

    Raises:
        CalibrationDataError: The content is not an object.
    """

    def __init__(self, content: object) -> None:
        if not isinstance(content, dict):
            raise CalibrationDataError(
                "Bad document", where="the document", found=f"a {type(content).__name__}", expected="an object"
            )
        self._left = dict(content)

    def header(self, method: str, version: int) -> None:
        """Check the method and version of the document."""
        found = self._take("method")
        if found != method:
            self._refuse("method", found, repr(method))
        found = self._take("version")
        if type(found) is not int or found != version:
            self._refuse("version", found, str(version))

    def has(self, field: str) -> bool:
        """Return whether an optional field is present and not yet taken."""
        return field in self._left

    def number(self, field: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Take a finite number from ``least`` to ``most``."""
        value = self._take(field)
        if not _finite(value):
            self._refuse(field, value, "a finite number")
        if not least <= value <= most:
            self._refuse(field, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def number_or_null(self, field: str, least: float = -math.inf) -> float | None:
        """Take a finite number from ``least``, or null."""
        if self._left.get(field, 0) is None:
            self._take(field)
            return None
        return self.number(field, least)

    def text(self, field: str) -> str | None:
        """Take a string, or null."""
        value = self._take(field)
        if value is not None and not isinstance(value, str):
            self._refuse(field, value, "a string or null")
        return value

    def count(self, field: str, least: int = 1) -> int:
        """Take an integer of ``least`` or more."""
        value = self._take(field)
        if not _finite(value) or not isinstance(value, int) or value < least:
            self._refuse(field, value, f"an integer of {least} or more")
        return value

    def flag(self, field: str) -> bool:
        """Take true or false."""
        value = self._take(field)
        if not isinstance(value, bool):
            self._refuse(field, value, "true or false")
        return value

    def choice(self, field: str, choices: tuple[str, ...]) -> str:
        """Take one of the given words."""
        value = self._take(field)
        if not isinstance(value, str) or value not in choices:
            self._refuse(field, value, "one of " + ", ".join(map(repr, choices)))
        return value

    def weight_kind(self) -> WeightKind:
        """Take the field 'weight_kind'; older documents lack it and mean importance weights."""
        if not self.has("weight_kind"):
            return "importance"
        return "frequency" if self.choice("weight_kind", WEIGHT_KINDS) == "frequency" else "importance"

    def anything(self, field: str) -> object:
        """Take any value, for another reader."""
        return self._take(field)

    def objects(self, field: str) -> list[object]:
        """Take a list with entries of any kind."""
        value = self._take(field)
        if not isinstance(value, list):
            self._refuse(field, value, "a list")
        return value

    def classes(self) -> int:
        """Take the number of classes, 2 or more."""
        return self.count("classes", least=2)

    def numbers(
        self, field: str, least: float = -math.inf, most: float = math.inf, count: int | None = None
    ) -> Doubles:
        """Take a list of finite numbers from ``least`` to ``most``, ``count`` of them unless that is None."""
        numbers = self._row(field, self._take(field), least, most)
        return self._counted(field, numbers, count, "numbers")

    def rows_of_numbers(
        self, field: str, least: float = -math.inf, most: float = math.inf, count: int | None = None
    ) -> list[Doubles]:
        """Take a list of such lists, which may differ in length."""
        rows = [self._row(f"{field}[{i}]", row, least, most) for i, row in enumerate(self.objects(field))]
        return self._counted(field, rows, count, "lists")

    def table(self, field: str, rows: int, columns: int) -> Doubles:
        """Take ``rows`` lists of ``columns`` finite numbers each."""
        table = self.rows_of_numbers(field, count=rows)
        for i, row in enumerate(table):
            self._counted(f"{field}[{i}]", row, columns, "numbers")
        return np.stack(table)

    def shares(self, field: str, count: int) -> Doubles:
        """Take ``count`` numbers of 0 or more with a sum of 1."""
        shares = self.numbers(field, 0.0, 1.0, count)
        if abs(float(shares.sum()) - 1) > 1e-9:
            self.refuse(field, f"a list with the sum {shares.sum():g}", "a sum of 1")
        return shares

    def curve(self, inputs: str, outputs: str, least: float = 0.0, most: float = 1.0) -> tuple[Doubles, Doubles]:
        """Take a curve from two fields: increasing inputs from ``least`` to ``most``, and outputs in [0, 1]."""
        x, y = self.numbers(inputs, least, most), self.numbers(outputs, 0.0, 1.0)
        self._check_curve(inputs, x, outputs, y)
        return x, y

    def curves(self, inputs: str, outputs: str, count: int) -> tuple[list[Doubles], list[Doubles]]:
        """Take ``count`` curves from two fields of lists: increasing inputs and outputs, all in [0, 1]."""
        lists = self.rows_of_numbers(inputs, 0.0, 1.0, count), self.rows_of_numbers(outputs, 0.0, 1.0, count)
        for i, (x, y) in enumerate(zip(*lists, strict=True)):
            self._check_curve(f"{inputs}[{i}]", x, f"{outputs}[{i}]", y)
        return lists

    def histograms(self, count: int, bins: int | None = None) -> tuple[list[Doubles], list[Doubles]]:
        """Take the edges of ``count`` histograms of at most ``bins`` bins, and a value in (0, 1) per bin."""
        lists = self.rows_of_numbers("edges", 0.0, 1.0, count), self.rows_of_numbers("values", 0.0, 1.0, count)
        for i, (edges, values) in enumerate(zip(*lists, strict=True)):
            self.check_edges(f"edges[{i}]", edges, len(edges) if bins is None else bins)
            self._counted(f"values[{i}]", values, len(edges) - 1, "values")
            if not ((values > 0) & (values < 1)).all():
                self.refuse(f"values[{i}]", "a value of 0 or 1", "values strictly between 0 and 1")
        return lists

    def edges(self, field: str, bins: int) -> Doubles:
        """Take the edges of at most ``bins`` bins over [0, 1]."""
        edges = self.numbers(field, 0.0, 1.0)
        self.check_edges(field, edges, bins)
        return edges

    def check_edges(self, field: str, edges: Doubles, bins: int) -> None:
        """Refuse anything but the edges of at most ``bins`` bins over [0, 1]; the first bin may be the point 0."""
        if not (2 <= len(edges) <= bins + 1 and edges[0] == 0 and edges[-1] == 1):
            self.refuse(field, f"{len(edges)} edges", f"2 to {bins + 1} edges from 0 to 1")
        if not (np.diff(edges)[1:] > 0).all():
            self.refuse(field, "out of order", "increasing edges")

    def refuse(self, field: str, found: str, expected: str) -> NoReturn:
        """Raise for a field whose value is invalid."""
        raise CalibrationDataError("Bad document", where=f"field {field!r}", found=found, expected=expected)

    def finish(self) -> None:
        """Refuse fields that were not taken."""
        if self._left:
            field = str(next(iter(self._left)))
            self.refuse(field, "unknown", "only fields of this method")

    def _take(self, field: str) -> object:
        if field not in self._left:
            self.refuse(field, "missing", "a value")
        return self._left.pop(field)

    def _refuse(self, field: str, value: object, expected: str) -> NoReturn:
        self.refuse(field, shown(value), expected)

    def _check_curve(self, inputs: str, x: Doubles, outputs: str, y: Doubles) -> None:
        if len(x) == 0 or not (np.diff(x) > 0).all():
            self.refuse(inputs, f"{len(x)} numbers", "at least one, increasing")
        self._counted(outputs, y, len(x), "numbers")

    def _counted(self, field: str, entries: Entries, count: int | None, what: str) -> Entries:
        if count is not None and len(entries) != count:
            self.refuse(field, f"{len(entries)} {what}", f"{count} {what}")
        return entries

    def _row(self, field: str, value: object, least: float, most: float) -> Doubles:
        if not isinstance(value, list):
            self._refuse(field, value, "a list of numbers")
        if {*map(type, value)} == {float}:
            # Nearly always so, and then no loop has to look for what is wrong.
            row: Doubles = np.asarray(value, dtype=np.float64)
            if (np.isfinite(row) & (least <= row) & (row <= most)).all():
                return row
        for i, entry in enumerate(value):
            if not _finite(entry):
                self._refuse(f"{field}[{i}]", entry, "a finite number")
            if not least <= entry <= most:
                self._refuse(f"{field}[{i}]", entry, f"a number from {least:g} to {most:g}")
        return np.asarray(value, dtype=np.float64)


def _finite(value: object) -> TypeGuard[int | float]:
    """Return whether this is a number that float64 can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.to_dict() if hasattr(value, "to_dict") else value
