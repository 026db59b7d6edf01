"""What asks for a few predictions does not walk through all of them: they may be many millions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.state.database import Database
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.first_labels import first_labels
from service.state.labelled import load_labelled_rows
from service.state.predictions import PredictionLog
from service.state.retention import prune
from service.state.unlabelled import count_labelled
from service.state.window import Window

from .conftest import DIGEST, LABELS, batch, prediction_id

WINDOW = Window("pets", DIGEST)
FOUND = ("(id=?)", "(reference=?)", "(origin=? AND created_at")
USES: dict[str, Callable[[Database], Any]] = {
    "feedback": lambda state: FeedbackStore(state).add("pets", items(range(20, 40)), by="till"),
    "first labels": lambda state: _read(state, lambda here: first_labels(here, "pets", 1, targets(range(20)))),
    "counting labels": lambda state: _read(state, lambda here: count_labelled(here, WINDOW, at_most=30)),
    "labelled rows": lambda state: _read(state, lambda here: load_labelled_rows(here, WINDOW, label_names=LABELS)),
    "erasing a prediction": lambda state: erase(state, "pets", Subject("prediction_id", prediction_id(3)), by="dpo"),
    "erasing a reference": lambda state: erase(state, "pets", Subject("reference", "tx-4"), by="dpo"),
    "pruning": lambda state: prune(state, 1_000_050, by="ops"),
}


def items(rows: range) -> list[FeedbackItem]:
    """Labels, every other one by reference."""
    names = [(None, f"tx-{row}") if row % 2 else (prediction_id(row), None) for row in rows]
    return [FeedbackItem(id_, reference, "cat", "client") for id_, reference in names]


def targets(rows: range) -> list[tuple[int, str]]:
    return [(1, f"tx-{row}") if row % 2 else (0, prediction_id(row)) for row in rows]


def _read(state: Database, ask: Callable[[Any], Any]) -> None:
    with state.connect() as connection:
        ask(connection)


@contextmanager
def statements(state: Database) -> Iterator[list[tuple[str, Any]]]:
    """What is sent to SQLite meanwhile."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, sql: str, parameters: Any, _context: Any, many: bool) -> None:
        sent.append((sql, parameters[0] if many else parameters))

    event.listen(state.engine, "before_cursor_execute", note)
    yield sent
    event.remove(state.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("use", USES)
def test_sqlite_finds_predictions_by_id_reference_or_time(tmp_path: Path, use: str) -> None:
    """On SQLite, which has no statistics to plan with; PostgreSQL counts for itself."""
    state = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    log = PredictionLog(state)
    for row in range(100):
        log.append(batch([prediction_id(row)], references=[f"tx-{row}"], created_at=1_000_000 + row))
    log.close()
    FeedbackStore(state).add("pets", items(range(20)), by="till")
    with statements(state) as sent:
        USES[use](state)
    asked = [(sql, parameters) for sql, parameters in sent if " predictions" in sql and not sql.startswith("INSERT")]
    assert asked
    for sql, parameters in asked:
        with state.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all()
        ways = [row[3] for row in plan if row[3].split()[1].startswith("predictions")]
        assert all(any(found in way for found in FOUND) for way in ways), (sql, ways)
    state.close()
