"""Labelled rows: what a refit learns from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import BOOLEAN, TEXT, column, func, select, values
from sqlalchemy.dialects.postgresql import BIGINT, BYTEA, DOUBLE_PRECISION

from service.errors import StateUnavailableError, TooFewLabelsError
from service.state import unlabelled
from service.state.columns import read_columns
from service.state.database import Database, now_us
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.predictions import PredictionLog
from service.state.refit_rows import load_window_rows
from service.state.resolution import weight
from service.state.unlabelled import load_unlabelled_rows
from service.state.window import Window

from .conftest import DIGEST, LABELS, batch, prediction_id

A, B, C, D = (prediction_id(number) for number in range(4))
Write = Callable[..., list[str]]


@pytest.fixture
def store(database: Database) -> FeedbackStore:
    return FeedbackStore(database)


def label(store: FeedbackStore, *items: tuple[Any, ...]) -> None:
    store.add("pets", [FeedbackItem(*item) for item in items], by="till")


def load(store: FeedbackStore, *window: int | None, names: Sequence[str] = LABELS, **options: Any) -> LabelledRows:
    return store.labelled_rows(Window("pets", DIGEST, *window), label_names=names, **options)


def test_columns_belong_together(store: FeedbackStore, logged: Write) -> None:
    logits = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=np.float32)
    known = {"propensities": [0.5, 1.0, None], "actions": ["block", "accept", None], "segments": ["DE", "FR", None]}
    logged([A, B, C], logits=logits, **known)
    before = now_us()
    label(store, (C, None, "eel", "client"), (A, None, "dog", "client"))
    rows = load(store)
    assert rows.ids.tolist() == [A, C]
    assert rows.logits.tolist() == logits[[0, 2]].tolist()
    assert rows.logits.dtype == np.float32
    assert rows.labels.tolist() == [1, 2]
    assert rows.labels.dtype == rows.cluster.dtype == rows.predicted_at.dtype == np.int64
    assert rows.propensity[0] == 0.5
    assert np.isnan(rows.propensity[1])
    assert rows.actions.tolist() == ["block", None]
    assert rows.segment.tolist() == ["DE", None]
    assert rows.predicted_at.tolist() == [1_000, 1_000]
    assert before <= rows.first_labelled_at.min() <= rows.first_labelled_at.max() <= now_us()
    assert len(rows) == 2


def test_nothing_is_a_table_of_nothing(store: FeedbackStore) -> None:
    rows = load(store)
    assert len(rows) == 0
    assert rows.logits.shape == (0, 3)
    assert (rows.pending, rows.conflicts, rows.unknown_labels) == (0, 0, 0)


def test_the_order_of_label_names_is_the_callers(store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "dog", "client"))
    assert load(store, names=("dog", "eel", "cat")).labels.tolist() == [0]


def test_a_pending_label_joins_when_its_prediction_comes(store: FeedbackStore, logged: Write) -> None:
    label(store, (A, None, "cat", "client"), (None, "tx-7", "dog", "client"))
    assert (load(store).pending, len(load(store))) == (2, 0)
    logged([A, B], references=[None, "tx-7"])
    rows = load(store)
    assert (rows.pending, rows.ids.tolist(), rows.labels.tolist()) == (0, [A, B], [0, 1])


def test_a_reference_means_every_prediction_that_carries_it(store: FeedbackStore, logged: Write) -> None:
    logged([A, B, C], references=["tx-7", "tx-7", "tx-8"])
    label(store, (None, "tx-7", "dog", "client"))
    assert load(store).ids.tolist() == [A, B]


def test_labels_by_id_and_by_reference_are_one_history(store: FeedbackStore, logged: Write) -> None:
    logged([A], references=["tx-7"])
    label(store, (None, "tx-7", "dog", "client"))
    label(store, (A, None, "cat", "client"))
    rows = load(store)
    assert (rows.ids.tolist(), rows.labels.tolist(), rows.conflicts) == ([A], [0], 1)


def test_priority_beats_time_and_time_beats_order(store: FeedbackStore, logged: Write) -> None:
    logged([A, B, C, D])
    label(store, (A, None, "cat", "reviewer"), (A, None, "dog", "client"))
    label(store, (B, None, "cat", "client", 200), (B, None, "dog", "client", 100))
    label(store, (C, None, "cat", "client"), (C, None, "dog", "client"))
    label(store, (D, None, "cat", "some-script"), (D, None, "dog", "client", 1))
    rows = load(store)
    assert [LABELS[code] for code in rows.labels] == ["cat", "cat", "dog", "dog"]
    assert rows.conflicts == 4
    other = load(store, priority=("some-script", "client"))
    assert [LABELS[code] for code in other.labels] == ["dog", "cat", "dog", "cat"]


def test_the_time_of_the_first_label_stays(store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "cat", "client"))
    first = load(store).first_labelled_at[0]
    label(store, (A, None, "dog", "reviewer", 5))
    assert load(store).first_labelled_at[0] == first


def test_labels_that_agree_are_no_conflict(store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "cat", "client"), (A, None, "cat", "reviewer"))
    assert load(store).conflicts == 0


def test_a_label_that_the_model_lacks_is_counted_not_guessed(store: FeedbackStore, logged: Write) -> None:
    logged([A, B])
    label(store, (A, None, "wolf", "client"), (B, None, "wolf", "client"), (B, None, "cat", "reviewer"))
    rows = load(store)
    assert (rows.ids.tolist(), rows.unknown_labels, rows.conflicts) == ([B], 1, 1)


def test_rows_of_another_model_or_model_file_stay_out(store: FeedbackStore, logged: Write) -> None:
    logged([A])
    logged([B], model_digest="other")
    logged([C], model="cars")
    logged([D], revision="r2", policy=None)
    label(store, *((id_, None, "cat", "client") for id_ in (A, B, C, D)))
    rows = load(store)
    assert rows.ids.tolist() == [A, D]
    assert rows.pending == 1


def test_the_window_is_of_predictions_and_half_open(store: FeedbackStore, logged: Write) -> None:
    for id_, at in ((A, 10), (B, 20), (C, 30)):
        logged([id_], created_at=at)
        label(store, (id_, None, "cat", "client"))
    windows = {
        (): [A, B, C], (20,): [B, C], (None, 20): [A], (20, 30): [B], (31, None): [], (10, 31): [A, B, C]
    }  # fmt: skip
    for window, expected in windows.items():
        rows = load(store, *window)
        assert rows.ids.tolist() == expected


def test_rows_come_oldest_first(store: FeedbackStore, logged: Write) -> None:
    for id_, at in ((A, 30), (B, 10), (D, 20), (C, 20)):
        logged([id_], created_at=at)
        label(store, (id_, None, "cat", "client"))
    assert load(store).ids.tolist() == [B, C, D, A]
    assert load(store).ids.tolist() == [B, C, D, A]


def test_of_too_many_labels_those_of_the_newest_predictions_are_read(store: FeedbackStore, logged: Write) -> None:
    for at, id_ in enumerate((C, A, D, B)):
        logged([id_], created_at=1_000 + at, references=[f"tx-{at}"])
    label(store, *((id_, None, "cat", "client") for id_ in (A, B, C)), (None, "tx-2", "dog", "client"))
    label(store, (B, None, "dog", "reviewer"))
    whole = load(store)
    assert (whole.ids.tolist(), whole.since_us) == ([C, A, D, B], None)
    assert load(store, at_most=5).since_us is None
    newest = load(store, at_most=3)
    assert (newest.ids.tolist(), newest.since_us) == ([D, B], 1_002)
    assert (newest.conflicts, newest.pending) == (1, 0)
    assert load(store, at_most=1).ids.tolist() == []  # B has two


def test_more_rows_than_one_fetch(store: FeedbackStore, logged: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.state.columns.ROWS_PER_FETCH", 100)
    ids = [prediction_id(number) for number in range(1_050)]
    order = random.Random(5).sample(ids, len(ids))
    logged(order)
    label(store, *((id_, None, LABELS[number % 3], "client") for number, id_ in enumerate(ids)))
    rows = load(store)
    assert rows.ids.tolist() == ids
    assert rows.labels.tolist() == [number % 3 for number in range(1_050)]
    first_logit = {id_: row * 3 / 7 for row, id_ in enumerate(order)}
    assert rows.logits[:, 0].tolist() == pytest.approx([first_logit[id_] for id_ in ids])


SAID = st.tuples(
    st.sampled_from([A, B, "tx"]),
    st.sampled_from(LABELS),
    st.sampled_from(["reviewer", "system", "client", "script"]),
    st.none() | st.integers(1, 5),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.lists(SAID, max_size=8), max_size=3))
def test_the_current_label_is_the_one_that_the_rule_names(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Any]
) -> None:
    """Against the rule applied by hand to all that was not a repetition."""
    database = Database.open(f"sqlite:///{tmp_path_factory.mktemp('rule')}/state.db")
    log = PredictionLog(database, commit_interval_s=0)
    log.append(batch([A, B], references=["tx", "tx"]))
    log.close()
    store = FeedbackStore(database)
    history: dict[str, list[tuple[int, int, int, str]]] = {A: [], B: []}
    order = count()
    for request in requests:
        items = [
            FeedbackItem(None if target == "tx" else target, "tx" if target == "tx" else None, *rest)
            for target, *rest in request
        ]
        receipt = store.add("pets", items, by="till")
        for (target, name, source, at), outcome in zip(request, receipt.items, strict=True):
            if outcome.status != "duplicate":
                entry = (weight(source), at or 1_000, next(order), name)
                for id_ in (A, B) if target == "tx" else (target,):
                    history[id_].append(entry)
    rows = load(store)
    expected = {id_: max(labels)[-1] for id_, labels in history.items() if labels}
    assert dict(zip(rows.ids.tolist(), (LABELS[code] for code in rows.labels), strict=True)) == expected
    assert rows.conflicts == sum(len({label[-1] for label in labels}) > 1 for labels in history.values())
    database.close()


def test_what_has_no_label_is_found_and_counted(store: FeedbackStore, logged: Write) -> None:
    logits = np.arange(12, dtype=np.float32).reshape(4, 3)
    known = {"propensities": [0.5, 1.0, None, 0.5], "sought": [True, True, False, True]}
    known["segments"] = ["FR", None, None, "DE"]
    logged([A, B, C, D], logits=logits, references=[None, "b", "c", None], **known)
    label(store, (A, None, "dog", "client"), (None, "b", "dog", "client"))
    window = Window("pets", DIGEST)
    rows = store.unlabelled_rows(window, classes=3)
    assert rows.logits.tolist() == logits[2:].tolist()
    np.testing.assert_array_equal(rows.propensity, [np.nan, 0.5])
    assert rows.label_sought.tolist() == [False, True]
    assert rows.segment.tolist() == [None, "DE"]
    assert len(rows) == len(rows.cluster) == 2
    assert len(store.unlabelled_rows(Window("pets", "another"), classes=3)) == 0
    assert [store.count_labelled(window, at_most=most) for most in (0, 1, 2, 9)] == [0, 1, 2, 2]
    assert store.count_labelled(Window("cars", DIGEST), at_most=9) == 0


def test_labels_of_the_same_prediction_count_once(store: FeedbackStore, logged: Write) -> None:
    logged([A], logits=np.zeros((1, 3), dtype=np.float32), references=["a"])
    label(store, (A, None, "dog", "client"), (None, "a", "cat", "reviewer"))
    assert store.count_labelled(Window("pets", DIGEST), at_most=9) == 1
    assert load(store).label_sought.tolist() == [True]


def test_a_label_that_comes_meanwhile_puts_no_row_into_both(store: FeedbackStore, logged: Write, url: str) -> None:
    logged([A, B])
    label(store, (A, None, "cat"))
    reader = Database.open(url, readonly=True)
    with reader.connect() as connection:  # as a refit reads
        without = load_unlabelled_rows(connection, Window("pets", DIGEST), classes=3)
        label(store, (B, None, "cat"))
        rows = load_labelled_rows(connection, Window("pets", DIGEST), label_names=LABELS)
    reader.close()
    assert (len(without), rows.ids.tolist()) == (1, [A])


def test_of_too_many_unlabelled_rows_the_most_recent_are_taken(
    store: FeedbackStore, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unlabelled, "MOST_ROWS", 2)
    for at, id_ in enumerate((C, A, D, B)):
        logged([id_], created_at=1_000 + at, propensities=[at / 10])
    label(store, (B, None, "cat"))
    rows = store.unlabelled_rows(Window("pets", DIGEST), classes=3)
    assert rows.propensity.tolist() == [0.1, 0.2]
    assert rows.predicted_at.tolist() == [1_001, 1_002]
    assert rows.since_us == 1_002


def test_where_the_newest_rows_have_no_label_yet_a_refit_says_where_to_end_its_window(
    database: Database, store: FeedbackStore, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unlabelled, "MOST_ROWS", 2)
    for at, id_ in enumerate((C, A, D, B)):
        logged([id_], created_at=1_000 + at)
    label(store, (C, None, "cat"))
    window = Window("pets", DIGEST)
    with database.connect() as connection:
        with pytest.raises(TooFewLabelsError, match="too few labels yet") as refused:
            load_window_rows(connection, window, label_names=LABELS, at_least=1, at_most=10)
        assert refused.value.found == "0 labelled among 1 since 1970-01-01T00:00:00.001003Z"
        found = load_window_rows(
            connection, replace(window, until_us=1_002), label_names=LABELS, at_least=1, at_most=10
        )
    assert (len(found.labelled), len(found.unlabelled), found.left_out_before) == (1, 1, None)


def test_a_database_that_goes_while_rows_are_read_is_said_to_be_gone(postgresql_url: str) -> None:
    database = Database.open(postgresql_url)
    more_than_the_connection_holds = func.generate_series(1, 10_000_000)
    query = select(func.pg_backend_pid()).select_from(more_than_the_connection_holds)
    killed = []

    def convert(values: Sequence[int]) -> Any:
        if values and not killed:
            with psycopg.connect(postgresql_url, autocommit=True) as other:
                killed.append(other.execute("SELECT pg_terminate_backend(%s, 5000)", values[:1]).fetchone())
        return np.array(values)

    with pytest.raises(StateUnavailableError), database.connect() as connection:
        read_columns(connection, [query], [convert])
    assert killed == [(True,)]
    database.close()


def test_whoever_stops_reading_leaves_a_connection_that_works(postgresql_url: str) -> None:
    database = Database.open(postgresql_url)
    query = select(func.generate_series(1, 10_000_000))
    with pytest.raises(OverflowError), database.connect() as connection:
        read_columns(connection, [query], [lambda values: np.array(values, dtype=np.int8)])
    with database.connect() as connection:
        assert connection.scalar(select(1)) == 1
    database.close()


@pytest.mark.parametrize("chunked", [True, False])
def test_streamed_rows_are_those_of_an_ordinary_query(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    monkeypatch.setattr("psycopg.capabilities.has_stream_chunked", lambda check=False: chunked)
    monkeypatch.setattr("service.state.columns.ROWS_PER_FETCH", 2)
    columns = {
        "number": ([0.5, None, float("inf"), -0.0, 1e-300], DOUBLE_PRECISION),
        "integer": ([0, -1, 2**63 - 1, -(2**63), 7], BIGINT),
        "text": (["", "Bär 🐻", None, "a\\b\n", "'%s"], TEXT),
        "blob": ([b"", b"\x00\xff", None, b"\\x41", bytes(range(256))], BYTEA),
        "truth": ([True, False, None, True, False], BOOLEAN),
    }
    rows = values(*(column(name, type_) for name, (_, type_) in columns.items()), name="rows")
    table = rows.data(list(zip(*(given for given, _ in columns.values()), strict=True)))
    database = Database.open(postgresql_url)
    collect = [lambda given: np.array(given, dtype=object)] * len(columns)
    with database.connect() as connection:
        for query in (select(table), select(table).limit(1), select(table).where(table.c.text.in_(["", "'%s"]))):
            found = read_columns(connection, [query, query], collect)
            expected = [tuple(row) for row in connection.execute(query)] * 2
            assert list(zip(*found, strict=True)) == expected
    database.close()
