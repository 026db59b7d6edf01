"""Conversions between datatypes: exact, rounded between floats, or the first value that is lost is named."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.open_inference.datatypes import without_loss

TYPES = [np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")]


def numbers_of(dtype: np.dtype) -> list[int | float]:
    """Return the limits of a type, all powers of 2 in it with their neighbours, and what is not finite."""
    powers = [sign * 2**power + step for power in range(65) for sign in (-1, 1) for step in (-1, 0, 1)]
    if dtype.kind in "iu":
        return [number for number in [0, *powers] if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max]
    limits = np.finfo(dtype)
    special = [0.0, 0.1, 0.5, -1.5, math.nan, math.inf, -math.inf, float(limits.max), float(limits.tiny)]
    with np.errstate(over="ignore"):
        found: list[int | float] = np.array([*special, *map(float, powers)]).astype(dtype).tolist()
    return found


def holds(dtype: np.dtype, number: float) -> bool:
    """Return whether a type has a number, rounded if it is a float; Python compares integers and floats exactly."""
    if not math.isfinite(number):
        return dtype.kind == "f"
    if isinstance(number, float) and dtype.kind == "f":
        return math.isfinite(rounded(dtype, number))
    if dtype.kind in "iu":
        return number == int(number) and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    return rounded(dtype, number) == number


def rounded(dtype: np.dtype, number: float) -> int | float:
    """Return the number of a type that is nearest to a number."""
    with np.errstate(over="ignore"):
        return np.float64(number).astype(dtype).item() if dtype.kind == "f" else number


@pytest.mark.parametrize("wanted", TYPES, ids=str)
@pytest.mark.parametrize("given", TYPES, ids=str)
def test_every_number_arrives_as_it_is_or_is_named(given: np.dtype, wanted: np.dtype) -> None:
    numbers = numbers_of(given)
    for number in numbers:
        converted, lost = without_loss(np.array([number], given), wanted)
        assert (lost is None) == holds(wanted, number), number
        if lost is None:
            np.testing.assert_equal(converted.tolist(), [rounded(wanted, number)])
    kept = [number for number in numbers if holds(wanted, number)]
    converted, lost = without_loss(np.array(kept, given), wanted)
    assert lost is None
    assert converted.dtype == wanted
    np.testing.assert_equal(converted.tolist(), [rounded(wanted, number) for number in kept])
    for number in numbers:
        if not holds(wanted, number):
            assert without_loss(np.array([*kept, number, number], given), wanted)[1] == len(kept)


def test_numbers_of_the_right_type_are_not_copied() -> None:
    values = np.ones(3, np.float32)
    assert without_loss(values, np.dtype(np.float32))[0] is values
