"""Parameters of inference requests: what each level takes. Others are refused, since a mistyped name must not pass."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import orjson

from service.errors import InputError, InputTypeError, InputValueError
from service.inference.inputs import check_rows
from service.inference.names import check_name
from service.open_inference import fields
from service.places import Place, in_body

_READ: Final = {
    "request": ("policy", "segment", "references", "groups", "timeout", "binary_data_output"),
    "input": ("binary_data_size",),
    "output": ("binary_data", "classification"),
}
"""Parameters with an effect, by level."""

_IGNORED: Final = ("content_type", "headers")
"""Sent at any level by clients of MLServer: a hint for its decoders, and copies of HTTP headers."""

_STATELESS: Final = "models keep no state between requests, so there are no sequences"
_NEUTRAL: Final[dict[str, tuple[Any, str]]] = {
    "sequence_id": ((None, 0, ""), f"0 or an empty text: {_STATELESS}"),
    "sequence_start": ((None, False), f"false: {_STATELESS}"),
    "sequence_end": ((None, False), f"false: {_STATELESS}"),
    "priority": ((None, 0), "0: requests are answered in order of arrival"),
}
"""Parameters of Triton that may only say what holds anyway: their values, and why."""

_KNOWN: Final = {level: frozenset((*names, *_IGNORED)) for level, names in _READ.items()}
# Each request has one answer in a stream, so nothing follows it that would have to be announced as empty.
_OF_TRITON: Final = {*_NEUTRAL, "triton_enable_empty_final_response"}


def of_request(document: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request.

    Raises:
        InputError: A parameter is unknown, or asks for a sequence or a priority.
    """
    found = fields.parameters(document)
    if found and not _KNOWN["request"].issuperset(found):
        _check(found.keys() - _OF_TRITON, "request", in_body())
        for name, (values, expected) in _NEUTRAL.items():
            if found.get(name) not in values:
                raise InputError(
                    f"`{name}` is not supported.",
                    where=in_body("parameters", name),
                    found=repr(found[name])[:200],
                    expected=expected,
                )
    return found


def names_of(given: dict[str, Any], name: str, max_rows: int) -> list[str | None] | None:
    """Return the client's names of the rows in a parameter: the text of a JSON array, since none can be an array.

    Args:
        given: Parameters of the request.
        name: "references" or "groups".
        max_rows: Maximum number of names.

    Raises:
        InputError: The parameter is something else, or contains a name that is not allowed.
    """
    where = in_body("parameters", name)
    if (text := fields.text(given, name, where)) is None:
        return None
    try:
        found = orjson.loads(text)  # unlike `json`, without halves of surrogate pairs, which no database stores
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str | None) for one in found):
        raise InputTypeError(
            f"`{name}` must be the text of a JSON array with a text for each row.",
            where=where,
            found=text[:200],
            expected='["scan-91", "scan-92"]',
            remedy=f"Or send the tensor `{name}` of datatype BYTES.",
        )
    check_rows(len(found), max_rows)
    return [check_name(one, "A name has", where / row) if one else None for row, one in enumerate(found)]


def given_twice(name: str) -> InputValueError:
    """Return the error of a request with a parameter and a tensor of the same name."""
    return InputValueError(
        f"`{name}` is given twice.",
        where=in_body("parameters", name),
        found="a parameter and a tensor",
        expected="one of them",
    )


def of_tensor(document: dict[str, Any], level: str, where: Place) -> dict[str, Any]:
    """Return the parameters of an input or output.

    Args:
        document: Entry of the request.
        level: "input" or "output".
        where: Its place.

    Raises:
        InputError: A parameter is unknown.
    """
    found = fields.parameters(document, where)
    if found and not _KNOWN[level].issuperset(found):
        _check(found.keys(), level, where)
    return found


def _check(names: Any, level: str, where: Place) -> None:
    for name in sorted(names - _KNOWN[level]):
        place = where / "parameters" / name[:200]
        if name.startswith("shared_memory_"):
            raise InputError("Shared memory is not supported.", where=place, expected="`data` or binary data")
        elsewhere = [f"`{name}` is a parameter of the {other}." for other, own in _READ.items() if name in own]
        near = [f"Did you mean `{one}`?" for one in get_close_matches(name, _READ[level], 1)]
        raise InputError(
            f"Unknown parameter of the {level}.",
            where=place,
            found=name[:200],
            expected=list(_READ[level]),
            remedy=next(iter(elsewhere + near), None),
        )
