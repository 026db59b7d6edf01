"""The wire format of Protocol Buffers, read without a schema.

Source: Protocol Buffers encoding guide.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


def fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (field number, wire type, value) of each field; only varints and byte strings carry a value.

    Raises:
        ValueError: The message is not valid.
        IndexError: It ends inside a field.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        value: int | memoryview = 0
        if wire == VARINT:
            value, at = _varint(message, at)
        elif wire == BYTES:
            length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        elif wire in (FIXED32, FIXED64):
            at += 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if at > len(message) or field == 0:
            raise ValueError("truncated")
        yield field, wire, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint of more than ten bytes")
