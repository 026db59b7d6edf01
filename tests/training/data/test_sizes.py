"""Rows that a run holds out where it does not say how many."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from bundle.table import Column, Columns
from training.data import Dataset
from training.data.sizes import LARGEST_SHARE, sizes


def data(rows: int, rate: float, *, classes: int = 2, table: bool = True) -> Dataset:
    labels = np.zeros(rows, np.int64)
    labels[: round(rate * rows)] = 1
    labels[-classes:] = np.arange(classes)
    inputs = np.zeros((rows, 1), np.float32) if table else np.zeros((rows, 1, 1, 1), np.uint8)
    columns = Columns((Column("x"),)) if table else None
    names = tuple(map(str, range(classes)))
    return Dataset("t", inputs, labels, names, "array" if table else "image", columns=columns)


@pytest.mark.parametrize("rate", [0.5, 0.06, 0.015])
def test_certify_rows_of_the_rarest_class_certify_95_percent(rate: float) -> None:
    found = sizes(data(40_000, rate), None, None, None, 0.45, stops=True)
    certify = round(found.reference * 0.45 * rate)
    # Clopper-Pearson: all of them right.
    assert beta.ppf(0.05, certify, 1) >= 0.95 - 1e-3
    assert found.reference == 1000 or beta.ppf(0.05, certify - 2, 1) < 0.95
    assert "at 95% confidence" in found.notes[0]
    assert found.train is None
    assert found.validation == int(0.15 * (40_000 - found.reference))


def test_a_table_of_two_rows_still_asks_for_a_reference_row() -> None:
    assert sizes(data(2, 0.5), None, None, None, 0.45).reference == 1  # `split` then says: use more rows


def test_a_small_table_keeps_its_rows_and_says_what_they_certify() -> None:
    found = sizes(data(2_000, 0.02), None, None, None, 0.45)
    assert found.reference == LARGEST_SHARE * 2_000
    certify = round(600 * 0.45 * 41 / 2_000)
    assert f"certify a precision or recall of up to {0.05 ** (1 / certify):.3f}" in found.notes[0]
    assert "0.95 would take 59: more than 30% of all rows held out" in found.notes[0]


def test_what_a_run_names_is_kept() -> None:
    found = sizes(data(5_000, 0.1), 100, 50, 200, 0.45)
    assert (found.train, found.validation, found.reference, found.notes) == (100, 50, 200, ())
    assert sizes(data(5_000, 0.1), 0, 0, 200, 0.45).train is None
    some = sizes(data(5_000, 0.1), 4_700, None, 200, 0.45, stops=True)
    assert 4_700 + some.validation + 200 <= 5_000


def test_no_rows_are_held_out_for_stopping_where_nothing_stops() -> None:
    found = sizes(data(9_000, 0.3, classes=3, table=False), None, None, None, 0.45)
    assert (found.validation, found.reference) == (0, 2_000)
