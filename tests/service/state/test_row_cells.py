"""Columns of logged rows, read from their stored inputs, and what happens to rows that have none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundle import Column, Columns, InputSpec
from service.decisions.rows import Rows
from service.errors import RevisionStateError
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.inputs import unpacked
from service.state.prediction_rows import RowWriter
from service.state.recent import load_recent_fit_rows, load_recent_inputs, load_recent_rows
from service.state.rescoring import stored_since_us
from service.state.row_cells import RowCells
from service.state.slices import load_sought_sample
from service.state.unlabelled import load_unlabelled_rows
from service.state.window import Window
from service.state.window_rows import load_window_rows

from .conftest import DIGEST, LABELS, batch, prediction_id

TABLE = Columns((Column("age"), Column("site", ("north", "south"))))
CELLS = RowCells(("age", "site"), TABLE, InputSpec(kind="array", dtype="float32", shape=(2,)))
WINDOW = Window("pets", DIGEST, cells=CELLS)
IDS = [prediction_id(number) for number in range(10)]
INPUTS = np.array([[20 + row, row % 3] for row in range(10)], np.float32)
CELLS_OF = {id_.encode(): tuple(cells) for id_, cells in zip(IDS, TABLE.cells_of(INPUTS, CELLS.names), strict=True)}


@pytest.fixture
def half(database: Database) -> Database:
    """Ten predictions, one a microsecond and the first four without their inputs; every second one has a label."""
    for keep, rows in (("off", range(4)), ("all", range(4, 10))):
        writer = RowWriter(database, sample=1.0, keep_inputs=keep)  # type: ignore[arg-type]
        writer.write([batch([IDS[row]], inputs=INPUTS[row : row + 1], created_at=1_000 + row) for row in rows])
    items = [FeedbackItem(id_, None, "dog", "people") for id_ in IDS[::2]]
    FeedbackStore(database).add("pets", items, by="till")
    return database


def check(rows: Rows, ids: Any) -> None:
    assert rows.cells is not None
    assert [id_.decode() for id_ in rows.id] == list(ids)
    assert [tuple(cells) for cells in rows.cells] == [CELLS_OF[id_] for id_ in rows.id]


def test_a_recalibration_starts_where_every_row_has_its_input(half: Database) -> None:
    with half.connect() as connection:
        since = stored_since_us(connection, WINDOW, WINDOW.origins(connection))
        assert since == 1_004
        window = replace(WINDOW, since_us=since)
        found = load_window_rows(connection, window, label_names=LABELS, at_most=100).rows
        unlabelled = load_unlabelled_rows(connection, window, classes=3, ids=True)
        with pytest.raises(RevisionStateError, match="not stored") as refused:
            load_window_rows(connection, WINDOW, label_names=LABELS, at_most=100)
        plain = load_window_rows(connection, replace(WINDOW, cells=None), label_names=LABELS, at_most=100).rows
    check(unlabelled, IDS[5::2])
    assert found.cells is not None
    assert sorted(found.cells.tolist()) == sorted(tuple(CELLS_OF[id_.encode()]) for id_ in IDS[4:])
    assert (refused.value.where, refused.value.expected) == ("CANDOR_KEEP_INPUTS", "all")
    assert (len(plain), plain.cells) == (10, None)


def test_recent_rows_go_back_to_the_newest_one_without_an_input(half: Database) -> None:
    with half.connect() as connection:
        check(load_recent_rows(connection, WINDOW, label_names=LABELS, at_most=100), IDS[4:])
        with pytest.raises(RevisionStateError, match="not stored"):  # a part is not all of a monitor's rows
            load_recent_rows(connection, WINDOW, label_names=LABELS)
        check(load_recent_rows(connection, WINDOW, label_names=LABELS, at_most=3), IDS[7:])
        rows, origin = load_recent_fit_rows(connection, WINDOW, label_names=LABELS, at_most=100)
        assert len(rows) == len(origin)
        scored, contents = load_recent_inputs(connection, WINDOW, classes=3, at_most=100)
        assert unpacked(contents.tolist(), np.float32, (2,)).tolist() == INPUTS[4:].tolist()
        assert scored.cells is not None
        assert scored.cells.tolist() == [tuple(CELLS_OF[id_.encode()]) for id_ in IDS[4:]]
        sample = load_sought_sample(connection, WINDOW, [(0, 2_000)], label_names=LABELS, at_most=100)
    check(sample.rows, IDS[4:])
    assert sample.predicted.tolist() == [2] * 6
    assert sample.confidence.tolist() == [0.75] * 6
