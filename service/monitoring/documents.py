"""Read and check the documents of monitors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
