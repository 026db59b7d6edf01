"""Read and check fields of JSON objects of /v2."""

from __future__ import annotations

from typing import Any, Final

from service.errors import InputTypeError, kind_of
from service.places import Place, in_body

_WHOLE: Final = in_body()


def parameters(document: dict[str, Any], where: Place = _WHOLE) -> dict[str, Any]:
    """Return the object `parameters` of the document at `where`, empty if it is missing.

    Raises:
        InputTypeError: It is not an object.
    """
    found = document.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputTypeError(
            "`parameters` must be an object.", where=where / "parameters", found=kind_of(found), expected="object"
        )
    return found


def flag(parameters: dict[str, Any], key: str, where: Place = _WHOLE, *, default: bool = False) -> bool:
    """Return a Boolean parameter.

    Raises:
        InputTypeError: It is not true or false.
    """
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise InputTypeError(
            f"`{key}` must be true or false.",
            where=where / "parameters" / key,
            found=kind_of(value),
            expected="boolean",
        )
    return value


def text(document: dict[str, Any], key: str, where: Place) -> str | None:
    """Return a string, None if it is missing.

    Raises:
        InputTypeError: It is not a string.
    """
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InputTypeError(f"`{key}` must be a string.", where=where, found=kind_of(value), expected="string")
    return value
