"""The wire format of Protocol Buffers, read without a schema.

Source: Protocol Buffers encoding guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

_SHORT = 31
"""Longest byte string that is skipped in one step with what stands around it."""


def fields(message: memoryview, wanted: frozenset[int]) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (field number, wire type, value) of each field; only varints and byte strings carry a value.

    Args:
        message: The message.
        wanted: Numbers of the fields to yield; not all of 1 to 15. A forest has millions of others.

    Raises:
        ValueError: The message is not valid.
        IndexError: It ends inside a field.
    """
    at, skipped = 0, _skipped(wanted)
    while at < len(message):
        if run := skipped.match(message, at):
            at = run.end()
            continue
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
        if field in wanted:
            yield field, wire, value


@cache
def _skipped(wanted: frozenset[int]) -> re.Pattern[bytes]:
    """Return a pattern of fields that are not wanted, as many as follow each other: numbers, and short byte strings."""
    others = [number for number in range(1, 16) if number not in wanted]  # their keys take one byte

    def key(wire: int) -> bytes:
        return b"[%b]" % b"".join(b"\\x%02x" % (number << 3 | wire) for number in others)

    strings = b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(_SHORT + 1))
    varint, fixed64, fixed32 = rb"[\x80-\xff]{0,9}+[\x00-\x7f]", b".{8}", b".{4}"
    kinds = {VARINT: varint, BYTES: b"(?:%b)" % strings, FIXED32: fixed32, FIXED64: fixed64}
    each = b"|".join(key(wire) + value for wire, value in kinds.items())
    return re.compile(b"(?:%b)++" % each, re.DOTALL)  # possessive: a run of millions keeps nothing to go back to


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint of more than ten bytes")
