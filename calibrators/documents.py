"""Reading the JSON documents of fitted calibrators: every field checked, none guessed, none left over."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import NoReturn, TypeGuard

import numpy as np

from calibrators.arrays import Doubles
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind
from calibrators.errors import CalibrationDataError, shown

_LARGEST = float(np.finfo(np.float64).max)


def document_digest(document: Mapping[str, object]) -> str:
    """SHA-256, 64 hexadecimal digits, of a document as JSON with sorted keys and no spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Document:
    """A document under reading; each method takes one field and refuses what cannot stand there.

    Args:
        content: What the JSON parser gave.

    Raises:
        CalibrationDataError: Not an object.
    """

    def __init__(self, content: object) -> None:
        if not isinstance(content, dict):
            raise CalibrationDataError(
                "Bad document", where="the document", found=f"a {type(content).__name__}", expected="an object"
            )
        self._left = dict(content)

    def header(self, method: str, version: int) -> None:
        """Checks the method and version that a document names."""
        found = self._take("method")
        if found != method:
            self._refuse("method", found, repr(method))
        found = self._take("version")
        if type(found) is not int or found != version:
            self._refuse("version", found, str(version))

    def has(self, field: str) -> bool:
        """Whether a field that need not be there is, and was not taken yet."""
        return field in self._left

    def number(self, field: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Takes a finite number from ``least`` to ``most``."""
        value = self._take(field)
        if not _finite(value):
            self._refuse(field, value, "a finite number")
        if not least <= value <= most:
            self._refuse(field, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def number_or_null(self, field: str) -> float | None:
        """Takes a finite number, or null."""
        if self._left.get(field, 0) is None:
            self._take(field)
            return None
        return self.number(field)

    def text(self, field: str) -> str | None:
        """Takes a string, or null."""
        value = self._take(field)
        if value is not None and not isinstance(value, str):
            self._refuse(field, value, "a string or null")
        return value

    def count(self, field: str, least: int = 1) -> int:
        """Takes an integer of ``least`` or more."""
        value = self._take(field)
        if not _finite(value) or not isinstance(value, int) or value < least:
            self._refuse(field, value, f"an integer of {least} or more")
        return value

    def flag(self, field: str) -> bool:
        """Takes true or false."""
        value = self._take(field)
        if not isinstance(value, bool):
            self._refuse(field, value, "true or false")
        return value

    def choice(self, field: str, choices: tuple[str, ...]) -> str:
        """Takes one of the given words."""
        value = self._take(field)
        if not isinstance(value, str) or value not in choices:
            self._refuse(field, value, "one of " + ", ".join(map(repr, choices)))
        return value

    def weight_kind(self) -> WeightKind:
        """Takes the field 'weight_kind'; importance weights where it is missing, as before there was a choice."""
        if not self.has("weight_kind"):
            return "importance"
        return "frequency" if self.choice("weight_kind", WEIGHT_KINDS) == "frequency" else "importance"

    def anything(self, field: str) -> object:
        """Takes whatever stands there, for another reader."""
        return self._take(field)

    def objects(self, field: str) -> list[object]:
        """Takes a list, of anything."""
        value = self._take(field)
        if not isinstance(value, list):
            self._refuse(field, value, "a list")
        return value

    def numbers(self, field: str, least: float = -math.inf, most: float = math.inf) -> Doubles:
        """Takes a list of finite numbers from ``least`` to ``most``."""
        return self._row(field, self._take(field), least, most)

    def rows_of_numbers(self, field: str, least: float = -math.inf, most: float = math.inf) -> list[Doubles]:
        """Takes a list of such lists; they may differ in length."""
        return [self._row(f"{field}[{i}]", row, least, most) for i, row in enumerate(self.objects(field))]

    def shares(self, field: str, count: int) -> Doubles:
        """Takes ``count`` numbers of 0 or more that add up to one."""
        shares = self.numbers(field, 0.0, 1.0)
        if len(shares) != count:
            self.refuse(field, f"{len(shares)} numbers", str(count))
        if abs(float(shares.sum()) - 1) > 1e-9:
            self.refuse(field, f"numbers that add up to {shares.sum():g}", "a sum of 1")
        return shares

    def curve(self, inputs: str, outputs: str, least: float = 0.0, most: float = 1.0) -> tuple[Doubles, Doubles]:
        """Takes the points of a curve from two fields: increasing inputs, ``least`` to ``most``, and chances."""
        abscissae, ordinates = self.numbers(inputs, least, most), self.numbers(outputs, 0.0, 1.0)
        if len(abscissae) == 0 or not (np.diff(abscissae) > 0).all():
            self.refuse(inputs, f"{len(abscissae)} numbers", "at least one, increasing")
        if len(ordinates) != len(abscissae):
            self.refuse(outputs, f"{len(ordinates)} numbers", f"{len(abscissae)}, as there are inputs")
        return abscissae, ordinates

    def curves(self, inputs: str, outputs: str, count: int) -> tuple[list[Doubles], list[Doubles]]:
        """Takes ``count`` curves from two fields of lists: increasing probabilities, and chances for them."""
        abscissae, ordinates = self.rows_of_numbers(inputs, 0.0, 1.0), self.rows_of_numbers(outputs, 0.0, 1.0)
        for field, lists in ((inputs, abscissae), (outputs, ordinates)):
            if len(lists) != count:
                self.refuse(field, f"{len(lists)} lists", f"{count}, as 'classes' says")
        for i, (x, y) in enumerate(zip(abscissae, ordinates, strict=True)):
            if len(x) == 0 or not (np.diff(x) > 0).all():
                self.refuse(f"{inputs}[{i}]", f"{len(x)} numbers", "at least one, increasing")
            if len(y) != len(x):
                self.refuse(f"{outputs}[{i}]", f"{len(y)} numbers", f"{len(x)}, as there are inputs")
        return abscissae, ordinates

    def edges(self, field: str, bins: int) -> Doubles:
        """Takes the edges of at most ``bins`` bins over [0, 1]."""
        edges = self.numbers(field, 0.0, 1.0)
        self.check_edges(field, edges, bins)
        return edges

    def check_edges(self, field: str, edges: Doubles, bins: int) -> None:
        """Refuses what are not the edges of at most ``bins`` bins over [0, 1]; the first bin may be the point 0."""
        if not (2 <= len(edges) <= bins + 1 and edges[0] == 0 and edges[-1] == 1):
            self.refuse(field, f"{len(edges)} edges", f"2 to {bins + 1} edges from 0 to 1")
        if not (np.diff(edges)[1:] > 0).all():
            self.refuse(field, "edges out of order", "edges that increase")

    def refuse(self, field: str, found: str, expected: str) -> NoReturn:
        """Raises for a field whose value contradicts another."""
        raise CalibrationDataError("Bad document", where=f"field {field!r}", found=found, expected=expected)

    def finish(self) -> None:
        """Refuses fields that nobody took."""
        if self._left:
            field = str(next(iter(self._left)))
            self.refuse(field, "not known to this method", "no such field")

    def _take(self, field: str) -> object:
        if field not in self._left:
            self.refuse(field, "missing", "a value")
        return self._left.pop(field)

    def _refuse(self, field: str, value: object, expected: str) -> NoReturn:
        self.refuse(field, shown(value), expected)

    def _row(self, field: str, value: object, least: float, most: float) -> Doubles:
        if not isinstance(value, list):
            self._refuse(field, value, "a list of numbers")
        for i, entry in enumerate(value):
            if not _finite(entry):
                self._refuse(f"{field}[{i}]", entry, "a finite number")
            if not least <= entry <= most:
                self._refuse(f"{field}[{i}]", entry, f"a number from {least:g} to {most:g}")
        return np.asarray(value, dtype=np.float64)


def _finite(value: object) -> TypeGuard[int | float]:
    """Whether this is a number that float64 can hold; an integer may be larger than all of them."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
