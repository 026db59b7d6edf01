"""Read and check the documents of monitors."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.errors import InputValueError

VERSION: Final = 1
"""Version of the documents."""

_REMEDY: Final = "Pass a document from this monitor's `to_dict`, unchanged."


def fields_of(document: Any, kind: str, names: set[str]) -> Mapping[str, Any]:
    """Return a monitor's document with exactly these fields plus `kind` and `version`.

    Raises:
        InputValueError: The document is of another kind, or has other fields.
    """
    if not isinstance(document, Mapping):
        raise InputValueError("Expected the document of a monitor.", found=type(document).__name__, remedy=_REMEDY)
    expected = {"kind": kind, "version": VERSION}
    found = {name: document.get(name) for name in expected}
    if found != expected:
        raise InputValueError(
            "Wrong kind or version of document.", where="kind", found=found, expected=expected, remedy=_REMEDY
        )
    differing = sorted((set(document) ^ (names | set(expected))), key=str)
    if differing:
        raise InputValueError(
            f"Missing or unexpected fields of a {kind} monitor: {', '.join(map(str, differing))}.",
            where=str(differing[0]),
            found=sorted(map(str, document)),
            expected=sorted(names | set(expected)),
            remedy=_REMEDY,
        )
    return document


def text_of(values: NDArray[Any]) -> str:
    """Return an array as text for a JSON document."""
    return base64.b64encode(values.tobytes()).decode()


def array_of(text: Any, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    """Read what `text_of` wrote.

    Raises:
        InputValueError: It is not such a text.
    """
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype).copy()
    except (TypeError, ValueError) as error:
        raise InputValueError(
            "Not an array of a monitor.", where=where, found=str(text)[:40], expected="base64", remedy=_REMEDY
        ) from error
