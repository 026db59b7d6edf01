"""Prediction ids are unique, well-formed and in the order of time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from service.ids import ids_of, is_prediction_id, new_ids

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def decoded(identifier: str) -> int:
    value = 0
    for character in identifier:
        value = value * 32 + ALPHABET.index(character)
    return value


def test_ids_are_unique_and_carry_their_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = new_ids(10_000)
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == 10_000
    assert all(is_prediction_id(identifier) for identifier in ids)
    assert {decoded(identifier) >> 80 for identifier in ids} <= set(range(before, after + 1))
    assert max(decoded(identifier) for identifier in ids) < 1 << 128


def test_ids_made_at_once_are_those_of_their_time_and_bytes() -> None:
    randomness = np.random.default_rng(3).bytes(10 * 500)
    values = [int.from_bytes(randomness[start : start + 10]) for start in range(0, 5_000, 10)]
    assert [decoded(each) for each in ids_of(2**48 - 5, randomness)] == [(2**48 - 5 << 80) + value for value in values]
    assert all(map(is_prediction_id, ids_of(0, randomness)))
    assert ids_of(0, b"") == []


def test_every_random_bit_is_used() -> None:
    values = [decoded(identifier) for identifier in new_ids(500)]
    for bit in range(80):
        assert 0 < sum(value >> bit & 1 for value in values) < 500  # misses with probability 2**-499


def test_none_is_an_empty_list() -> None:
    assert new_ids(0) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "I" * 26,
        "L" * 26,
        "O" * 26,
        "U" * 26,
        "0" * 25 + "a",
        "0" * 26 + "\n",
        "٠" * 26,
    ],
)
def test_what_no_service_can_have_issued(text: str) -> None:
    assert not is_prediction_id(text)
