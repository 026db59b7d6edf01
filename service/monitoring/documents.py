"""Reading what a monitor was given or has written; what cannot be used is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from service.errors import InputValueError

VERSION: Final = 1
"""Of the documents of monitors."""

_REMEDY: Final = "Give a document that `to_dict` of this kind of monitor wrote, unchanged."


def fields_of(document: Any, kind: str, names: set[str]) -> Mapping[str, Any]:
    """Return a monitor's document that has exactly these fields beside `kind` and `version`.

    Raises:
        InputValueError: It is another document, or has other fields.
    """
    if not isinstance(document, Mapping):
        raise InputValueError("Expected the document of a monitor.", found=type(document).__name__, remedy=_REMEDY)
    expected = {"kind": kind, "version": VERSION}
    found = {name: document.get(name) for name in expected}
    if found != expected:
        raise InputValueError(
            "This is not the document of such a monitor.", where="kind", found=found, expected=expected, remedy=_REMEDY
        )
    differing = sorted((set(document) ^ (names | set(expected))), key=str)
    if differing:
        raise InputValueError(
            f"The document's fields are not those of a {kind} monitor: {', '.join(map(str, differing))}.",
            where=str(differing[0]),
            found=sorted(map(str, document)),
            expected=sorted(names | set(expected)),
            remedy=_REMEDY,
        )
    return document


def number(value: Any, where: str, *, above: float = -math.inf, below: float = math.inf, closed: str = "") -> float:
    """Return a finite number of an interval that is open, but for the ends named in `closed` ("below", "above").

    Raises:
        InputValueError: It is no number, not finite, or outside.
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if fits:
        fits = above < value < below or (value == above and "below" in closed) or (value == below and "above" in closed)
    if not fits:
        left, right = "[" if "below" in closed else "(", "]" if "above" in closed else ")"
        raise InputValueError(
            f"{where} is out of range.",
            where=where,
            found=value,
            expected=f"a finite number in {left}{above:g}, {below:g}{right}",
            remedy="Correct it; shares and probabilities are written as 0.05, not as 5.",
        )
    return float(value)


def whole(value: Any, where: str, *, least: int) -> int:
    """Return an integer that is not below a smallest one.

    Raises:
        InputValueError: It is no integer, or too small.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputValueError(
            f"{where} is out of range.",
            where=where,
            found=value,
            expected=f"an integer, at least {least}",
            remedy="Count rows in ones and times in microseconds since the epoch, UTC.",
        )
    return int(value)
