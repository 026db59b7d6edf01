"""Count the parts of a serialized message before it is parsed: many small ones would stop the service for its parser.

It keeps Python's lock meanwhile, so no thread helps: 8 MiB of parameters take half a second.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from service.errors import MalformedBodyError

_VARINT, _SIZED = 0, 2
_FIXED: Final = {1: 8, 5: 4}
"""Bytes of the forms of a fixed size; groups, the forms 3 and 4, are in no message of ours."""
_LONGEST_VARINT: Final = 10


def count_parts(kind: Any, data: bytes, most: int) -> int:
    """Return the number of fields in a message and in those within it; `most` + 1 if there are more.

    The numbers of a packed field count as one.

    Args:
        kind: Class of the message.
        data: The serialized message.
        most: Where to stop.

    Raises:
        MalformedBodyError: The bytes are not a message.

    Example:
        >>> from service.grpc.messages import message
        >>> kind = message("ModelInferRequest")
        >>> count_parts(kind, kind(id="a", inputs=[{"shape": [1, 2, 3]}, {}]).SerializeToString(), 100)
        4
    """
    parts = 0
    waiting = [(kind.DESCRIPTOR, 0, len(data))]
    try:
        while waiting:
            described, at, end = waiting.pop()
            messages = _messages(described)
            while at < end:
                parts += 1
                if parts > most:
                    return parts
                tag, at = _varint(data, at)
                form = tag & 7
                if form == _SIZED:
                    size, at = _varint(data, at)
                    if (inner := messages.get(tag >> 3)) is not None:
                        waiting.append((inner, at, min(at + size, end)))
                    at += size
                elif form == _VARINT:
                    _, at = _varint(data, at)
                else:
                    at += _FIXED[form]
    except (IndexError, KeyError):
        raise not_a(kind, data) from None
    return parts


def not_a(kind: Any, data: bytes) -> MalformedBodyError:
    """Return the error for bytes that are not a message of a kind."""
    return MalformedBodyError(f"The message is not of type {kind.DESCRIPTOR.full_name}.", found=f"{len(data)} bytes")


@cache
def _messages(described: Any) -> dict[int, Any]:
    """Return the types of the fields that are messages, by number."""
    return {one.number: one.message_type for one in described.fields if one.message_type is not None}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(1, _LONGEST_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError
