"""Fields of a message are found among others, however many these are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundle import protobuf
from bundle.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields

NUMBERS = st.one_of(st.integers(1, 17), st.integers(1, 2**29 - 1))
FIELDS = st.one_of(
    st.tuples(NUMBERS, st.just(VARINT), st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))),
    st.tuples(NUMBERS, st.just(BYTES), st.binary(max_size=40)),
    st.tuples(NUMBERS, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.tuples(NUMBERS, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
)
Field = tuple[int, int, int | bytes]


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def written(field: Field) -> bytes:
    number, wire, value = field
    content = varint(value) if isinstance(value, int) else value
    return varint(number << 3 | wire) + (varint(len(content)) if wire == BYTES else b"") + content


def read(message: bytes, wanted: frozenset[int]) -> list[Field]:
    found = fields(memoryview(message), wanted)
    return [(number, wire, bytes(value) if isinstance(value, memoryview) else value) for number, wire, value in found]


def among(message: list[Field], wanted: frozenset[int]) -> list[Field]:
    """Return the fields that are wanted; fixed-width ones come without their value."""
    kept = [field for field in message if field[0] in wanted]
    return [(number, wire, 0 if wire in (FIXED32, FIXED64) else value) for number, wire, value in kept]


@given(st.lists(FIELDS, max_size=30), st.frozensets(st.integers(1, 20), max_size=4), st.integers(0, 100))
def test_wanted_fields_are_found_in_order_and_a_cut_is_noticed(
    message: list[Field], wanted: frozenset[int], cut: int
) -> None:
    parts = list(map(written, message))
    whole, ends = b"".join(parts), [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    assert read(whole, wanted) == among(message, wanted)
    at = min(cut, len(whole))
    if at in ends:
        assert read(whole[:at], wanted) == among(message[: ends.index(at)], wanted)
    else:
        with pytest.raises((ValueError, IndexError)):
            read(whole[:at], wanted)


def test_a_run_of_other_fields_takes_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of millions of numbers and short texts, each in a step of its own, a model of 30 MB took 5 s to start."""
    steps: list[int] = []
    one_step = protobuf._varint
    monkeypatch.setattr(protobuf, "_varint", lambda message, at: steps.append(at) or one_step(message, at))
    others: list[Field] = [(8, VARINT, 300), (9, BYTES, b"BRANCH_LEQ"), (7, FIXED32, b"\0\0\x80?")]
    message = b"".join(map(written, others)) * 100_000 + written((5, BYTES, b"tensor"))
    assert read(message, frozenset({5})) == [(5, BYTES, b"tensor")]
    assert len(steps) == 2  # key and length
