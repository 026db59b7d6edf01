"""The graph beside the library: what agrees passes, what does not is shown."""

from __future__ import annotations

import re

import numpy as np
import pytest

from importing.errors import NativeDifferenceError
from importing.native import compare

ROWS = [{"amount": 3.5, "country": "at"}, {"amount": None, "country": "de"}]
RIGHT = np.array([[0.25, 0.75], [0.5, 0.5]])


def test_the_largest_difference_is_recorded() -> None:
    check = compare(RIGHT + np.array([[4e-6, -4e-6], [0, 0]]), RIGHT, ROWS, library="x 1")
    assert check.difference == pytest.approx(4e-6)
    assert (check.library, check.rows, check.tolerance) == ("x 1", 2, 1e-5)


def test_the_worst_row_is_shown() -> None:
    with pytest.raises(NativeDifferenceError) as caught:
        compare(RIGHT + np.array([[2e-5, -2e-5], [0.25, -0.25]]), RIGHT, ROWS, library="x 1")
    text = str(caught.value)
    assert "disagree on 2 of 2 rows" in text
    assert "difference of 0.25 in row 2" in text
    assert "{'amount': None, 'country': 'de'}" in text
    assert "[0.75, 0.25]" in text
    assert "[0.5, 0.5]" in text
    with pytest.raises(NativeDifferenceError, match=re.escape("{'amount': 3.0, 'country': 'de'}")):
        compare(RIGHT[:1] + 0.1, RIGHT[:1], [{"amount": np.float64(3), "country": "de"}], library="x 1")
    assert "708 and 728" in text


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_no_number_is_no_agreement(broken: float) -> None:
    with pytest.raises(NativeDifferenceError, match="1 of 2 rows"):
        compare(np.where(RIGHT == 0.25, broken, RIGHT), RIGHT, ROWS, library="x 1")


@pytest.mark.parametrize("found", [np.ones((2, 3)) / 3, np.empty((0, 2)), np.array([0.75, 0.5])])
def test_other_shapes_are_refused(found: np.ndarray) -> None:
    with pytest.raises(NativeDifferenceError, match="different shapes"):
        compare(found, RIGHT[: len(found)], ROWS, library="x 1")


def test_a_tolerance_of_ones_own() -> None:
    assert compare(RIGHT + 0.01, RIGHT, ROWS, library="x 1", tolerance=0.02).tolerance == 0.02
