"""Labelled rows: what a refit learns from."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import BOOLEAN, TEXT, column, func, select, values
from sqlalchemy.dialects.postgresql import BIGINT, BYTEA, DOUBLE_PRECISION

from bundle.split import roles
from calibrators import Identity
from candor.contract.certificates import SolvedBand
from service.decisions.policy import parse_policy
from service.decisions.rows import NO_LABEL, Rows
from service.decisions.solved import SolvedPolicy
from service.errors import StateUnavailableError
from service.recalibration.rows import Silence
from service.state import unlabelled
from service.state.columns import read_columns
from service.state.database import Database, now_us
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.label_times import label_times
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.maturing import settled
from service.state.prediction_rows import in_sample
from service.state.predictions import PredictionLog
from service.state.recent import load_recent_rows
from service.state.resolution import weight
from service.state.revisions import RevisionStore
from service.state.slices import load_sought_sample
from service.state.thinning import drawn
from service.state.unlabelled import load_unlabelled_rows
from service.state.window import Window
from service.state.window_rows import load_window_rows

from .conftest import DIGEST, LABELS, batch, prediction_id

A, B, C, D = (prediction_id(number) for number in range(4))
Write = Callable[..., list[str]]


@pytest.fixture
def store(database: Database) -> FeedbackStore:
    return FeedbackStore(database)


def label(store: FeedbackStore, *items: tuple[Any, ...]) -> None:
    store.add("pets", [FeedbackItem(*item) for item in items], by="till")


def load(database: Database, *window: int | None, names: Sequence[str] = LABELS, **options: Any) -> LabelledRows:
    with database.connect() as connection:
        return load_labelled_rows(connection, Window("pets", DIGEST, *window), label_names=names, **options)


def named(found: LabelledRows) -> list[str]:
    return [id_.decode() for id_ in found.rows.id]


def propose_policy(database: Database, document: dict[str, Any]) -> None:
    """Store revision r1 with version 1 of a policy."""
    bands = tuple(SolvedBand(action=band["action"], threshold=None, certificate=None) for band in document["bands"])
    RevisionStore(database).propose(
        model="pets",
        bundle_id="b",
        bundle_version=1,
        model_digest=DIGEST,
        calibrator=Identity().fit(np.zeros((2, 3), np.float32), np.array([0, 1])),
        policies={document["id"]: SolvedPolicy(parse_policy(document), 1, bands, review_all=False)},
        parent=None,
        cause="policy",
        by="till",
        gate="not_run",
        report={},
    )


def unlabelled_rows(database: Database, window: Window) -> Rows:
    with database.connect() as connection:
        return load_unlabelled_rows(connection, window, classes=3)


def test_columns_belong_together(database: Database, store: FeedbackStore, logged: Write) -> None:
    logits = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=np.float32)
    known = {"propensities": [0.5, 1.0, None], "actions": ["block", "accept", None], "segments": ["DE", "FR", None]}
    logged([A, B, C], logits=logits, **known)
    before = now_us()
    label(store, (C, None, "eel", "client"), (A, None, "dog", "client"))
    found = load(database)
    assert named(found) == [A, C]
    assert found.rows.logits.tolist() == logits[[0, 2]].tolist()
    assert found.rows.logits.dtype == np.float32
    assert found.rows.label.tolist() == [1, 2]
    assert found.rows.label.dtype == found.rows.group.dtype == found.rows.predicted_at.dtype == np.int64
    assert found.rows.propensity[0] == 0.5
    assert np.isnan(found.rows.propensity[1])
    assert found.rows.action.tolist() == ["block", None]
    assert found.rows.segment.tolist() == ["DE", None]
    assert found.rows.predicted_at.tolist() == [1_000, 1_000]
    assert before <= found.rows.labelled_at.min() <= found.rows.labelled_at.max() <= now_us()
    assert len(found.rows) == 2


def test_nothing_is_a_table_of_nothing(database: Database, store: FeedbackStore) -> None:
    found = load(database)
    assert len(found.rows) == 0
    assert found.rows.logits.shape == (0, 3)
    assert (found.pending, found.conflicts, found.unknown_labels) == (0, 0, 0)


def test_the_order_of_label_names_is_the_callers(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "dog", "client"))
    assert load(database, names=("dog", "eel", "cat")).rows.label.tolist() == [0]


def test_a_pending_label_joins_when_its_prediction_comes(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    label(store, (A, None, "cat", "client"), (None, "tx-7", "dog", "client"))
    assert (load(database).pending, len(load(database).rows)) == (2, 0)
    logged([A, B], references=[None, "tx-7"])
    found = load(database)
    assert (found.pending, named(found), found.rows.label.tolist()) == (0, [A, B], [0, 1])


def test_a_reference_means_every_prediction_that_carries_it(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    logged([A, B, C], references=["tx-7", "tx-7", "tx-8"])
    label(store, (None, "tx-7", "dog", "client"))
    assert named(load(database)) == [A, B]


def test_labels_by_id_and_by_reference_are_one_history(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A], references=["tx-7"])
    label(store, (None, "tx-7", "dog", "client"))
    label(store, (A, None, "cat", "client"))
    found = load(database)
    assert (named(found), found.rows.label.tolist(), found.conflicts) == ([A], [0], 1)


def test_priority_beats_time_and_time_beats_order(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A, B, C, D])
    label(store, (A, None, "cat", "reviewer"), (A, None, "dog", "client"))
    label(store, (B, None, "cat", "client", 200), (B, None, "dog", "client", 100))
    label(store, (C, None, "cat", "client"), (C, None, "dog", "client"))
    label(store, (D, None, "cat", "some-script"), (D, None, "dog", "client", 1))
    found = load(database)
    assert [LABELS[code] for code in found.rows.label] == ["cat", "cat", "dog", "dog"]
    assert found.conflicts == 4
    other = load(database, priority=("some-script", "client"))
    assert [LABELS[code] for code in other.rows.label] == ["dog", "cat", "dog", "cat"]


def test_the_time_of_the_first_label_stays(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "cat", "client"))
    first = load(database).rows.labelled_at[0]
    label(store, (A, None, "dog", "reviewer", 5))
    assert load(database).rows.labelled_at[0] == first


def test_labels_that_agree_are_no_conflict(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A])
    label(store, (A, None, "cat", "client"), (A, None, "cat", "reviewer"))
    assert load(database).conflicts == 0


def test_two_people_or_sources_make_a_pair_and_a_correction_does_not(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    logged([A, B, C, D], groups=["1", "2", "3", "4"])
    say = partial(store.add, "pets")
    say([FeedbackItem(A, None, "cat", "client"), FeedbackItem(B, None, "cat", "reviewer")], by="ann")
    say([FeedbackItem(A, None, "dog", "reviewer"), FeedbackItem(B, None, "dog", "reviewer")], by="bob")
    say([FeedbackItem(C, None, "cat", "reviewer"), FeedbackItem(D, None, "eel", "reviewer")], by="ann")
    say([FeedbackItem(C, None, "dog", "reviewer"), FeedbackItem(D, None, "cat", "client")], by="ann")
    say([FeedbackItem(B, None, "eel", "reviewer"), FeedbackItem(A, None, "wolf", "client")], by="ann")
    found = load(database)
    assert found.rows.label.tolist() == [1, 2, 1, 2]
    pairs = found.pairs
    assert pairs is not None
    assert pairs.group.tolist() == found.rows.group[[0, 1, 3]].tolist()
    # Of A: the reviewer against the client's later, unknown label. Of B: ann, who was later, against bob.
    assert pairs.current.tolist() == [1, 2, 2]
    assert pairs.other.tolist() == [3, 1, 0]
    with database.connect() as connection:
        window = load_window_rows(connection, Window("pets", DIGEST), label_names=LABELS, at_most=100)
    assert window.pairs is not None
    assert window.pairs.other.tolist() == [3, 1, 0]


def test_an_erasure_makes_no_pair_of_a_correction(database: Database, store: FeedbackStore, logged: Write) -> None:
    """The receipts of the erased labels' requests are deleted: nobody knows any more who sent the other labels."""
    logged([A, B, C], groups=["1", "2", "3"])
    say = partial(store.add, "pets", by="ann")
    say([FeedbackItem(id_, None, "cat", "reviewer") for id_ in (A, B, C)])
    say([FeedbackItem(B, None, "dog", "reviewer"), FeedbackItem(C, None, "dog", "client")])
    erase(database, "pets", Subject("prediction_id", A), by="dpo")
    found = load(database)
    assert found.pairs is not None
    assert found.pairs.group.tolist() == found.rows.group[[1]].tolist(), "only another source says that it is another"


def test_a_label_that_the_model_lacks_is_counted_not_guessed(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    logged([A, B])
    label(store, (A, None, "wolf", "client"), (B, None, "wolf", "client"), (B, None, "cat", "reviewer"))
    found = load(database)
    assert (named(found), found.unknown_labels, found.conflicts) == ([A, B], 1, 1)
    assert (found.rows.label.tolist(), found.rows.known().tolist()) == ([NO_LABEL, 0], [False, True])
    with database.connect() as connection:
        window = load_window_rows(connection, Window("pets", DIGEST), label_names=LABELS, at_most=100)
    assert (len(window.rows), window.unknown_labels) == (2, 1)
    assert window.rows.was_sought().all()
    silent = Silence(label=1, mature_before_us=2_000, actions=frozenset({"accept"}))
    assert silent.speaks_of(window.rows).tolist() == [False, True], "its source was not silent"


def test_rows_of_another_model_or_model_file_stay_out(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A])
    logged([B], model_digest="other")
    logged([C], model="cars")
    logged([D], revision="r2", policy=None)
    label(store, *((id_, None, "cat", "client") for id_ in (A, B, C, D)))
    found = load(database)
    assert named(found) == [A, D]
    assert found.pending == 1


def test_the_window_is_of_predictions_and_half_open(database: Database, store: FeedbackStore, logged: Write) -> None:
    for id_, at in ((A, 10), (B, 20), (C, 30)):
        logged([id_], created_at=at)
        label(store, (id_, None, "cat", "client"))
    windows = {
        (): [A, B, C], (20,): [B, C], (None, 20): [A], (20, 30): [B], (31, None): [], (10, 31): [A, B, C]
    }  # fmt: skip
    for window, expected in windows.items():
        assert named(load(database, *window)) == expected


def test_rows_come_oldest_first(database: Database, store: FeedbackStore, logged: Write) -> None:
    for id_, at in ((A, 30), (B, 10), (D, 20), (C, 20)):
        logged([id_], created_at=at)
        label(store, (id_, None, "cat", "client"))
    assert named(load(database)) == [B, C, D, A]
    assert named(load(database)) == [B, C, D, A]


def test_of_too_many_labels_those_of_the_newest_predictions_are_read(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    for at, id_ in enumerate((C, A, D, B)):
        logged([id_], created_at=1_000 + at, references=[f"tx-{at}"])
    label(store, *((id_, None, "cat", "client") for id_ in (A, B, C)), (None, "tx-2", "dog", "client"))
    label(store, (B, None, "dog", "reviewer"))
    whole = load(database)
    assert (named(whole), whole.since_us) == ([C, A, D, B], None)
    assert load(database, at_most=5).since_us is None
    newest = load(database, at_most=3)
    assert (named(newest), newest.since_us) == ([D, B], 1_002)
    assert (newest.conflicts, newest.pending) == (1, 0)
    assert named(load(database, at_most=1)) == []  # B has two


def test_more_rows_than_one_fetch(
    database: Database, store: FeedbackStore, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.state.columns.ROWS_PER_FETCH", 100)
    ids = [prediction_id(number) for number in range(1_050)]
    order = random.Random(5).sample(ids, len(ids))
    logged(order)
    label(store, *((id_, None, LABELS[number % 3], "client") for number, id_ in enumerate(ids)))
    found = load(database)
    assert named(found) == ids
    assert found.rows.label.tolist() == [number % 3 for number in range(1_050)]
    first_logit = {id_: row * 3 / 7 for row, id_ in enumerate(order)}
    assert found.rows.logits[:, 0].tolist() == pytest.approx([first_logit[id_] for id_ in ids])


SAID = st.tuples(
    st.sampled_from([A, B, "tx"]),
    st.sampled_from(LABELS),
    st.sampled_from(["reviewer", "system", "client", "script"]),
    st.none() | st.integers(1, 5),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.lists(SAID, max_size=8), max_size=3))
def test_the_current_label_is_the_one_that_the_rule_names(
    tmp_path_factory: pytest.TempPathFactory, migrated: Path, requests: list[Any]
) -> None:
    """Against the rule applied by hand to all that was not a repetition."""
    state = shutil.copy(migrated, tmp_path_factory.mktemp("rule") / "state.db")  # making the tables takes long
    database = Database.open(f"sqlite:///{state}")
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
    found = load(database)
    expected = {id_: max(labels)[-1] for id_, labels in history.items() if labels}
    assert dict(zip(named(found), (LABELS[code] for code in found.rows.label), strict=True)) == expected
    assert found.conflicts == sum(len({label[-1] for label in labels}) > 1 for labels in history.values())
    database.close()


def test_what_has_no_label_is_found_and_counted(database: Database, store: FeedbackStore, logged: Write) -> None:
    logits = np.arange(12, dtype=np.float32).reshape(4, 3)
    known = {"propensities": [0.5, 1.0, None, 0.5], "sought": [True, True, False, True]}
    known["segments"] = ["FR", None, None, "DE"]
    logged([A, B, C, D], logits=logits, references=[None, "b", "c", None], **known)
    label(store, (A, None, "dog", "client"), (None, "b", "dog", "client"))
    window = Window("pets", DIGEST)
    rows = unlabelled_rows(database, window)
    assert rows.logits.tolist() == logits[2:].tolist()
    np.testing.assert_array_equal(rows.propensity, [np.nan, 0.5])
    assert rows.sought.tolist() == [False, True]
    assert rows.segment.tolist() == [None, "DE"]
    assert len(rows) == len(rows.group) == 2
    assert len(unlabelled_rows(database, Window("pets", "another"))) == 0
    assert [store.count_labelled(window, at_most=most) for most in (0, 1, 2, 9)] == [0, 1, 2, 2]
    assert store.count_labelled(Window("cars", DIGEST), at_most=9) == 0


def test_labels_of_the_same_prediction_count_once(database: Database, store: FeedbackStore, logged: Write) -> None:
    logged([A], logits=np.zeros((1, 3), dtype=np.float32), references=["a"])
    label(store, (A, None, "dog", "client"), (None, "a", "cat", "reviewer"))
    assert store.count_labelled(Window("pets", DIGEST), at_most=9) == 1
    assert load(database).rows.sought.tolist() == [True]


def test_a_label_that_comes_meanwhile_puts_no_row_into_both(store: FeedbackStore, logged: Write, url: str) -> None:
    logged([A, B])
    label(store, (A, None, "cat"))
    reader = Database.open(url, readonly=True)
    with reader.connect() as connection:  # as a refit reads
        without = load_unlabelled_rows(connection, Window("pets", DIGEST), classes=3)
        label(store, (B, None, "cat"))
        found = load_labelled_rows(connection, Window("pets", DIGEST), label_names=LABELS)
    reader.close()
    assert (len(without), named(found)) == (1, [A])


GROUPS = 4_000


@pytest.fixture
def crowded(database: Database, store: FeedbackStore) -> Database:
    """Two rows of each of many groups; every fifth of the older rows has a label."""
    database.secret = bytes(32)  # else the size of a sample varies
    ids = [prediction_id(row) for row in range(2 * GROUPS)]
    log = PredictionLog(database, commit_interval_s=0.001)
    for start in range(0, len(ids), GROUPS):
        names = [f"card-{row % GROUPS}" for row in range(start, start + GROUPS)]
        log.append(batch(ids[start : start + GROUPS], groups=names, created_at=1_000 + start, sought=[True] * GROUPS))
    log.close()
    label(store, *((ids[row], None, "cat", "client") for row in range(0, GROUPS, 5)))
    return database


@pytest.mark.parametrize(("at_most", "bits"), [(8_000, 0), (6_000, 1), (700, 4), (180, 6)])
def test_of_many_rows_a_refit_reads_every_label_and_the_other_rows_of_a_sample_of_the_groups(
    crowded: Database, monkeypatch: pytest.MonkeyPatch, at_most: int, bits: int
) -> None:
    monkeypatch.setattr(unlabelled, "MOST_ROWS", at_most)
    with crowded.connect() as connection:
        found = load_window_rows(connection, Window("pets", DIGEST), label_names=LABELS, at_most=10_000)
        every = load_window_rows(connection, Window("pets", DIGEST, 0), label_names=LABELS, at_most=10_000)
        old = load_window_rows(connection, Window("pets", DIGEST, None, 1_001), label_names=LABELS, at_most=300)
    rows = found.rows
    assert (found.bits, found.share) == (bits, 2.0**-bits)
    assert int((rows.label == 0).sum()) == int((every.rows.label == 0).sum()) == GROUPS / 5
    assert (rows.drawn == drawn(rows.group, bits)).all()
    assert (rows.label[~rows.drawn] == 0).all()
    sizes = np.unique(rows.group[rows.drawn], return_counts=True)[1]
    assert (sizes == 2).all()  # with all their rows
    assert at_most / 2 < rows.drawn.sum() <= at_most
    assert int((old.rows.label == 0).sum()) == 0  # too many of one time
    assert old.left_out_before == 1_001


def test_a_sample_of_the_groups_contains_smaller_ones_and_has_every_role() -> None:
    groups = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 200_000)
    for bits in (1, 4, 6):
        chosen = drawn(groups, bits)
        assert drawn(groups, bits + 1)[~chosen].sum() == 0
        assert np.bincount(roles(groups[chosen])) == pytest.approx([len(groups) / 3 * 2.0**-bits] * 3, rel=0.06)
        assert in_sample(groups[chosen], 0.25).mean() == pytest.approx(0.25, rel=0.06)


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


def test_labels_that_arise_by_themselves_count_from_their_age_on(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    """Younger rows are left out; of older ones silence is a label, for the named actions."""
    day = 86_400_000_000
    document = {
        "id": "auto",
        "bands": [{"action": "block", "when": {"min_probability": 0.9}}, {"action": "accept"}],
        "labels": {"mature_in": "60d", "silence": "cat", "actions": ["accept"]},
    }
    propose_policy(database, document)
    ids = [prediction_id(number) for number in range(6)]
    now = 100 * day
    actions = ["accept", "accept", "block"]
    known = {"propensities": [1.0, 1.0, 0.0], "sought": [True, True, False], "actions": actions}
    logged(ids[:3], created_at=now - 61 * day, **known)
    logged(ids[3:], created_at=now - 59 * day, **known)
    label(store, (ids[0], None, "dog", "chargeback"), (ids[3], None, "dog", "chargeback"))
    with database.connect() as connection:
        window = settled(connection, Window("pets", DIGEST), now, LABELS)
        found = load_window_rows(connection, window, label_names=LABELS, at_most=100).rows
        recent = load_recent_rows(connection, window, label_names=LABELS)
        sample = load_sought_sample(connection, window, [(0, now)], label_names=LABELS, at_most=100).rows
        every = load_window_rows(connection, Window("pets", DIGEST), label_names=LABELS, at_most=100).rows
    for rows in (found, recent):
        assert sorted(zip(rows.label.tolist(), rows.known().tolist(), strict=True)) == [
            (-1, False),
            (0, True),
            (1, True),
        ]
        silent = rows.label == 0
        assert rows.labelled_at[silent].tolist() == (rows.predicted_at[silent] + 60 * day).tolist()
    assert sorted(sample.label.tolist()) == [-1, 0, 1, 1]  # of the young ones, what has come
    assert sorted(every.label.tolist()) == [-1, -1, -1, -1, 1, 1]


def test_a_source_that_gave_a_label_that_the_model_lacks_was_not_silent(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    terms = {"mature_in": "1d", "silence": "cat"}
    propose_policy(database, {"id": "auto", "bands": [{"action": "accept"}], "labels": terms})
    logged([A, B])
    label(store, (A, None, "wolf", "chargeback"))
    with database.connect() as connection:
        window = settled(connection, Window("pets", DIGEST), now_us(), LABELS)
        for rows in (
            load_window_rows(connection, window, label_names=LABELS, at_most=100).rows,
            load_recent_rows(connection, window, label_names=LABELS),
            load_sought_sample(connection, window, [(0, now_us())], label_names=LABELS, at_most=100).rows,
        ):
            assert sorted(zip(rows.label.tolist(), rows.known().tolist(), strict=True)) == [(-1, False), (0, True)]


def test_where_silence_is_a_label_labels_are_of_the_same_groups(
    database: Database, store: FeedbackStore, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a sample of the groups would be all of the labels that came, and a part of those that silence gives."""
    terms = {"mature_in": "1d", "silence": "cat"}
    propose_policy(database, {"id": "auto", "bands": [{"action": "accept"}], "labels": terms})
    ids = [prediction_id(number) for number in range(400)]
    inputs = np.arange(1600, dtype=np.uint16).reshape(400, 4)
    logged(ids, inputs=inputs, logits=np.zeros((400, 3), np.float32))
    label(store, *((id_, None, "dog", "chargeback") for id_ in ids[::2]))
    monkeypatch.setattr(unlabelled, "MOST_ROWS", 60)
    with database.connect() as connection:
        window = settled(connection, Window("pets", DIGEST), now_us(), LABELS)
        found = load_window_rows(connection, window, label_names=LABELS, at_most=1000)
    assert found.bits > 0
    assert found.rows.drawn.all()
    assert 0 < len(found.rows) < 200
    assert set(found.rows.label.tolist()) == {0, 1}


def test_label_times_are_the_first_of_each_source_by_id_and_reference(
    database: Database, store: FeedbackStore, logged: Write
) -> None:
    ids = [prediction_id(number) for number in range(3)]
    logged(ids, references=[None, "tx-1", None], created_at=5_000)
    label(store, (ids[0], None, "dog", "reviewer"), (None, "tx-1", "cat", "bank"), (ids[1], None, "cat", "bank"))
    label(store, (ids[0], None, "cat", "reviewer"), (ids[0], None, "cat", "bank"), (ids[2], None, "cat", "reviewer"))
    with database.connect() as connection:
        source, made, came = label_times(connection, "pets", at_most=100)
        assert sorted(source) == ["bank", "bank", "reviewer", "reviewer"]
        assert set(made) == {5_000}
        assert (came > made).all()
        assert label_times(connection, "birds", at_most=100)[0].tolist() == []
        # With the newest two labels alone, every prediction is older than the first of them: none is whole.
        assert label_times(connection, "pets", at_most=2)[1].tolist() == []
