"""What a window reads when predictions and labels are many: its own partitions, and its own labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from service.ids import ids_of
from service.state import labelled, postgresql
from service.state.database import Database, now_us
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.label_times import label_times
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.partitions import cover, parts_of
from service.state.predictions import PredictionLog
from service.state.unlabelled import count_labelled, load_unlabelled_rows
from service.state.window import Window
from service.times import DAY_US

from .conftest import DIGEST, LABELS, batch
from .test_plans import statements

WINDOW = Window("pets", DIGEST)
TODAY_US = now_us() // DAY_US * DAY_US


def write(state: Database, at_us: int, count: int, **changes: Any) -> list[str]:
    """Log predictions of one time; every other one has a reference."""
    ids = ids_of(at_us // 1000, b"".join(row.to_bytes(10) for row in range(count)))
    log = PredictionLog(state)
    names = [f"{id_}-ref" if row % 2 else None for row, id_ in enumerate(ids)]
    log.append(batch(ids, **{"created_at": at_us, "references": names} | changes))
    log.close()
    return ids


def label(state: Database, ids: list[str]) -> None:
    """Label predictions, every other one by reference."""
    items = [FeedbackItem(None, f"{id_}-ref", "cat") if row % 2 else FeedbackItem(id_, None, "cat")
             for row, id_ in enumerate(ids)]  # fmt: skip
    FeedbackStore(state).add("pets", items, by="till")


@pytest.mark.parametrize("most", [4, 12, 24, 26])
@pytest.mark.parametrize("until_days", [None, 6])
def test_the_newest_labels_are_the_same_however_they_are_found(
    database: Database, monkeypatch: pytest.MonkeyPatch, most: int, until_days: int | None
) -> None:
    """Ten days with four labels each, those of the last three for another model file."""
    for day in range(10):
        other = {"model_digest": "other"} if day > 6 else {}
        label(database, write(database, TODAY_US - (10 - day) * DAY_US, 4, **other))
    window = WINDOW if until_days is None else replace(WINDOW, until_us=TODAY_US - until_days * DAY_US)

    def load() -> LabelledRows:
        with database.connect() as connection:
            return load_labelled_rows(connection, window, label_names=LABELS, at_most=most)

    found = load()
    with monkeypatch.context() as patch:
        patch.setattr(labelled._Reading, "time_of_newest", lambda *_: None)
        expected = load()
    assert found.rows.id.tolist() == expected.rows.id.tolist()
    assert found.since_us == expected.since_us
    assert len(found.rows) == min(most // 4 * 4, 28 if until_days is None else 16)


def test_labels_that_are_too_many_are_not_read_to_find_the_newest(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(10):
        label(database, write(database, TODAY_US - (10 - day) * DAY_US, 4))
    reads: list[int | None] = []
    real = labelled._Reading.read

    def noted(reading: Any, connection: Any, window: Window, at_most: int | None) -> Any:
        reads.append(window.since_us)
        return real(reading, connection, window, at_most)

    monkeypatch.setattr(labelled._Reading, "read", noted)
    with database.connect() as connection:
        found = load_labelled_rows(connection, WINDOW, label_names=LABELS, at_most=12)
    assert reads == [found.since_us]
    assert len(found.rows) == 12


def test_labels_that_wait_are_counted_since_the_window_starts(database: Database) -> None:
    label(database, write(database, TODAY_US, 4))
    label(database, ids_of(5, bytes(40)))
    with database.connect() as connection:
        for since_us, pending in ((None, 2), (TODAY_US, 2), (now_us() + 2 * DAY_US, 0)):
            window = replace(WINDOW, since_us=since_us)
            assert load_labelled_rows(connection, window, label_names=LABELS).pending == pending


@contextmanager
def plans(state: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """PostgreSQL's plans of the queries sent meanwhile."""
    found: list[str] = []
    real = postgresql.stream

    def explained(connection: Any, query: Any, at_once: int) -> Any:
        sql = str(query.compile(connection, compile_kwargs={"literal_binds": True})).replace("%%", "%")
        found.append("\n".join(connection.exec_driver_sql(f"EXPLAIN {sql}").scalars()))
        return real(connection, query, at_once)

    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "stream", explained)
        with statements(state) as sent:
            yield found
    with state.connect() as connection:
        for sql, parameters in sent:
            if not sql.startswith("EXPLAIN"):
                found.append("\n".join(connection.exec_driver_sql(f"EXPLAIN {sql}", parameters).scalars()))


def test_a_window_with_a_start_leaves_older_partitions_out(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Database.open(postgresql_url)
    with state.begin() as connection:
        connection.exec_driver_sql("DROP TABLE predictions_before, inputs_before")
        cover(connection, range(TODAY_US // DAY_US - 8, TODAY_US // DAY_US + 1))
        older = [part.name for part in parts_of(connection, "predictions")][:-3]
    label(state, write(state, TODAY_US, 6)[:4])
    since = replace(WINDOW, since_us=TODAY_US - DAY_US)
    with plans(state, monkeypatch) as found, state.connect() as connection:
        assert len(load_labelled_rows(connection, since, label_names=LABELS, at_most=9).rows) == 4
        assert len(load_unlabelled_rows(connection, since, classes=3)) == 2
        assert count_labelled(connection, since, at_most=9) == 4
    state.close()
    read = [plan for plan in found if "predictions_2" in plan]
    assert len(read) >= 5
    waiting = [plan for plan in read if "newest" in plan]  # labels without a prediction, which has no start
    assert len(waiting) == 2
    for plan in read:
        assert plan in waiting or not [part for part in older if part in plan], plan


MANY = 20_000


@pytest.mark.parametrize("analysed", [False, True])
def test_postgresql_finds_labels_of_a_model_by_kind_and_time(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, analysed: bool
) -> None:
    """Among many labels of another model."""
    state = Database.open(postgresql_url)
    ids = write(state, TODAY_US, 4)
    label(state, ids[:1])
    with state.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE feedback SET (autovacuum_enabled = off)")
        connection.exec_driver_sql(
            'INSERT INTO feedback (target, by_reference, model, batch, "position", label, source, received_at) '
            f"SELECT 'x' || n, 0, 'cars', 1, n, 'cat', 'client', n FROM generate_series(1, {MANY}) n"
        )
        if analysed:
            connection.exec_driver_sql("ANALYZE feedback")
    with plans(state, monkeypatch) as found, state.connect() as connection:
        assert len(label_times(connection, "pets", at_most=9)[0]) == 1
        assert len(load_unlabelled_rows(connection, WINDOW, classes=3)) == 3
        labelled._pending(connection, WINDOW)
    state.close()
    about = [plan for plan in found if "feedback" in plan]
    assert len(about) >= 4
    assert all("Seq Scan on feedback" not in plan for plan in about), about
    assert sum("feedback_of_model" in plan for plan in about) == 5, about  # two for the times
