"""What asks for a few predictions does not walk through all of them: they may be many millions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from service.state import postgresql, traffic
from service.state.challengers import amount_limit
from service.state.database import Database
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.first_labels import first_labels
from service.state.label_times import label_times
from service.state.labelled import load_labelled_rows
from service.state.predictions import PredictionLog
from service.state.retention import prune
from service.state.retraction import Labels, retract
from service.state.slices import load_sample, load_sought_sample
from service.state.tables import daily_rows
from service.state.traffic import Traffic
from service.state.unlabelled import count_labelled, load_unlabelled_rows
from service.state.window import Window
from service.state.window_rows import load_window_rows

from .conftest import DIGEST, LABELS, batch, prediction_id

WINDOW = Window("pets", DIGEST)
SPANS = [(1_000_000, 1_000_050), (1_000_050, 1_000_100)]
MANY = 40_000
DAY = 86_400_000_000
FOUND = ("(id=?)", "(reference=?)", "(origin=? AND created_at", "INDEX predictions_drawn (origin=?", "(origin=?)")
USES: dict[str, Callable[[Database], Any]] = {
    "feedback": lambda state: FeedbackStore(state).add("pets", items(range(20, 40)), by="till"),
    "label times": lambda state: _read(state, lambda here: label_times(here, "pets", at_most=20)),
    "first labels": lambda state: _read(state, lambda here: first_labels(here, "pets", {1}, targets(range(20)))),
    "counting labels": lambda state: _read(state, lambda here: count_labelled(here, WINDOW, at_most=30)),
    "thinned rows": lambda state: _read(state, lambda here: load_unlabelled_rows(here, WINDOW, classes=3, bits=5)),
    "labelled rows": lambda state: _read(state, lambda here: load_labelled_rows(here, WINDOW, label_names=LABELS)),
    "a sample": lambda state: _read(state, lambda here: load_sample(here, WINDOW, SPANS, classes=3, at_most=8)),
    "a sought sample": lambda state: _read(
        state, lambda here: load_sought_sample(here, WINDOW, SPANS, label_names=LABELS, at_most=8)
    ),
    "erasing a prediction": lambda state: erase(state, "pets", Subject("prediction_id", prediction_id(3)), by="dpo"),
    "erasing a reference": lambda state: erase(state, "pets", Subject("reference", "tx-4"), by="dpo"),
    "the rows of a day": lambda state: Traffic(state).rows_per_day("pets", DAY),
    "counting a large day": lambda state: Traffic(state).count_days("pets", DAY, lambda: False),
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


def plan(state: Database, sql: str, parameters: Any) -> list[str]:
    with state.connect() as connection:
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)]


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
        ways = [way for way in plan(state, sql, parameters) if way.partition(" ")[2].startswith("predictions")]
        assert all(any(found in way for found in FOUND) for way in ways), (sql, ways)
    state.close()


def test_the_limit_of_amounts_sorts_no_log(tmp_path: Path) -> None:
    state = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    log = PredictionLog(state)
    for row in range(20):
        log.append(
            batch([prediction_id(row)], revision=f"r{row % 4}", created_at=1_000_000 + row, amounts=[float(row)])
        )
    log.close()
    with statements(state) as sent:
        _read(state, lambda here: amount_limit(here, "pets", before_us=2_000_000))
    asked = [plan(state, *one) for one in sent if "predictions" in one[0]]
    assert asked
    assert not [ways for ways in asked if "TEMP B-TREE" in "".join(ways) or "INDEX predictions_by_time" not in ways[0]]
    state.close()


@pytest.mark.parametrize("labels", [Labels("pets"), Labels("pets", by="till"), Labels("pets", key="cnd_1")])
def test_sqlite_takes_labels_back_along_their_requests(tmp_path: Path, labels: Labels) -> None:
    state = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    FeedbackStore(state).submit("pets", items(range(20)), by="till", by_key="cnd_1").result()
    with statements(state) as sent:
        assert retract(state, labels, by="ops", reason="lies") == 20
    assert any("feedback_by_batch" in "".join(plan(state, *one)) for one in sent)
    for sql, parameters in sent:
        if "feedback" in sql and not sql.startswith("INSERT"):
            ways = plan(state, sql, parameters)
            assert not [way for way in ways if way.startswith("SCAN feedback") or "TEMP B-TREE" in way], (sql, ways)
            assert sql.startswith("SELECT") or "batch=?" in ways[0], (sql, ways)
    state.close()


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What PostgreSQL is asked for as streams."""
    asked: list[str] = []
    real = postgresql.stream

    def noted(connection: Any, query: Any, at_once: int) -> Any:
        asked.append(str(query.compile(connection, compile_kwargs={"literal_binds": True})).replace("%%", "%"))
        return real(connection, query, at_once)

    monkeypatch.setattr(postgresql, "stream", noted)
    return asked


def explained(connection: Any, sql: str, parameters: Any = None) -> str:
    """Return PostgreSQL's plan."""
    return "\n".join(connection.exec_driver_sql(f"EXPLAIN {sql}", parameters).scalars())


@pytest.fixture
def just_loaded(postgresql_url: str) -> Iterator[Database]:
    """Many predictions, a quarter of them labelled, of which PostgreSQL has no statistics yet."""
    state = Database.open(postgresql_url)
    log = PredictionLog(state)
    log.append(batch([prediction_id(0)]))
    log.close()
    with state.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE predictions_before SET (autovacuum_enabled = off)")
        connection.exec_driver_sql("ALTER TABLE feedback SET (autovacuum_enabled = off)")
        connection.exec_driver_sql(
            "INSERT INTO predictions (id, origin, created_at, cluster, logits, label, confidence, sought) "
            "SELECT '01J1' || lpad(n::text, 22, '0'), (SELECT id FROM origins), n, n * 2654435761, "
            f"decode(repeat('00', 12), 'hex'), 1, 0.5, true FROM generate_series(1, {MANY}) n"
        )
        connection.exec_driver_sql(
            'INSERT INTO feedback (target, by_reference, model, batch, "position", label, source, received_at) '
            "SELECT id, 0, 'pets', 1, created_at, 'cat', 'client', created_at FROM predictions "
            f"WHERE created_at <= {MANY // 4} AND id >= '01J1'"
        )
    yield state
    state.close()


def test_postgresql_reads_samples_along_indexes(just_loaded: Database, streamed: list[str]) -> None:
    """Also for an origin without predictions in the window."""
    log = PredictionLog(just_loaded)
    log.append(batch([prediction_id(1)], revision="r2", created_at=1))
    log.close()
    with just_loaded.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
    window = Window(WINDOW.model, WINDOW.model_digest, MANY // 2)
    spans = [(MANY // 2, MANY // 4 * 3), (MANY // 4 * 3, MANY)]
    with statements(just_loaded) as sent, just_loaded.connect() as connection:
        found = load_sample(connection, window, spans, classes=3, at_most=40)
        load_sought_sample(connection, window, spans, label_names=LABELS, at_most=40)
    assert set(found.revision.tolist()) == {"r1"}
    with just_loaded.connect() as connection:
        for sql, parameters in [*sent, *((sql, None) for sql in streamed)]:
            plan = explained(connection, sql, parameters)
            assert "Seq Scan on predictions" not in plan, (sql, plan)


def test_postgresql_counts_a_large_day_by_slices_and_shows_no_page_more_than_a_limit(
    just_loaded: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "MOST_PER_DAY", 1_000)
    monkeypatch.setattr(traffic, "_AT_ONCE_US", 400)
    with just_loaded.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
    slices = iter([False] * 3)
    with statements(just_loaded) as sent:
        assert Traffic(just_loaded).rows_per_day("pets", 7 * DAY) is None
        assert Traffic(just_loaded).count_days("pets", 7 * DAY, lambda: next(slices, True))
    with just_loaded.connect() as connection:
        assert connection.execute(select(daily_rows)).all() == [("pets", 0, 1_200, 1_200)]
        counts = [(sql, parameters) for sql, parameters in sent if "FROM predictions" in sql]
        assert len(counts) > 4
        for sql, parameters in counts:
            plan = explained(connection, sql, parameters)
            assert "LIMIT" in sql or ("predictions_before_by_time" in plan and "Seq Scan" not in plan), (sql, plan)


def test_without_statistics_postgresql_looks_labels_and_drawn_rows_up(
    just_loaded: Database, streamed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first recalibration after a first bulk of labels would take minutes."""
    monkeypatch.setattr("service.state.unlabelled.MOST_ROWS", MANY // 64)
    with just_loaded.connect() as connection:
        found = load_window_rows(connection, WINDOW, label_names=LABELS, at_most=MANY)
        labelled, _, others = (explained(connection, sql) for sql in streamed)
    assert int((found.rows.label == 0).sum()) == MANY // 4
    assert found.bits >= 4
    assert "Index Scan using predictions_before_pkey on predictions_before" in labelled, labelled
    assert "Seq Scan on predictions" not in labelled, labelled
    assert "predictions_before_drawn" in others, others
    assert "Index Scan using predictions_before_pkey on predictions_before" in others, others
    assert "Seq Scan" not in others, others
    assert "feedback_pkey" in others, others


def test_postgresql_looks_references_up_in_their_order(just_loaded: Database, streamed: list[str]) -> None:
    """Else it would make a hash of all predictions, or compare all with each label: it expects few of an origin."""
    with just_loaded.begin() as connection:
        connection.exec_driver_sql("UPDATE predictions SET reference = 'tx-' || created_at WHERE id >= '01J1'")
        connection.exec_driver_sql(
            "UPDATE feedback SET by_reference = 1, target = 'tx-' || received_at WHERE mod(received_at, 2) = 0"
        )
        connection.exec_driver_sql("ANALYZE")
    with just_loaded.connect() as connection:
        found = load_labelled_rows(connection, WINDOW, label_names=LABELS)
        assert len(found.rows.label) == MANY // 4
        with statements(just_loaded) as sent:
            assert count_labelled(connection, WINDOW, at_most=MANY) == MANY // 4
            assert count_labelled(connection, WINDOW, at_most=MANY // 8 + 30) == MANY // 8 + 30
        counts = [(sql, parameters) for sql, parameters in sent if "predictions" in sql]
        for number, (sql, parameters) in enumerate([*((sql, None) for sql in streamed), *counts]):
            plan = explained(connection, sql, parameters)
            assert "Seq Scan on predictions" not in plan, plan
            assert f"Index Scan using predictions_before_{('pkey', 'by_reference')[number % 2]} on" in plan, plan
            assert ("Sort Key" in plan or "using feedback_pkey" in plan) == (number < len(streamed)), plan
    assert len(streamed) == 2
    assert len(counts) == 4
