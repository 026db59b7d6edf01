"""Fields of the protocol's JSON objects, checked as they are read."""

from __future__ import annotations

from typing import Any, Final

from service.errors import InputError, InputTypeError

_KINDS: Final = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}


def parameters(document: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the object `parameters` of a document at `where`, empty where there is none.

    Raises:
        InputTypeError: It is no object.
    """
    found = document.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputTypeError(
            "`parameters` must be an object.", where=f"{where}/parameters", found=kind_of(found), expected="object"
        )
    return found


def flag(parameters: dict[str, Any], key: str, where: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false.

    Raises:
        InputTypeError: It is neither.
    """
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise InputTypeError(
            f"`{key}` must be true or false.",
            where=f"{where}/parameters/{key}",
            found=kind_of(value),
            expected="boolean",
        )
    return value


def text(document: dict[str, Any], key: str, where: str) -> str | None:
    """Return a string, None where there is none.

    Raises:
        InputTypeError: It is something else.
    """
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InputTypeError(f"`{key}` must be a string.", where=where, found=kind_of(value), expected="string")
    return value


def refuse_shared_memory(parameters: dict[str, Any], where: str) -> None:
    """Raise InputError for a tensor that should lie in shared memory, which would be read or written by nobody."""
    if "shared_memory_region" in parameters:
        raise InputError(
            "Shared memory is not offered.",
            where=f"{where}/parameters/shared_memory_region",
            expected="`data` or binary data",
        )


def kind_of(value: Any) -> str:
    """Return what JSON calls a value.

    >>> kind_of([]), kind_of(True), kind_of(1.5), kind_of(None)
    ('array', 'boolean', 'number', 'null')
    """
    return _KINDS.get(type(value), "null")
