"""Labels: durable, append-only, idempotent, and never silently in conflict."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import func, select

from service.errors import FeedbackError, IdempotencyConflictError
from service.state.database import Database, now_us
from service.state.feedback import FeedbackItem, FeedbackReceipt, FeedbackStore
from service.state.labelled import load_labelled_rows
from service.state.tables import feedback, feedback_batches
from service.state.window import Window

from .conftest import DIGEST, LABELS, prediction_id

A, B, C = (prediction_id(number) for number in range(3))
HOUR_US = 3_600_000_000
Write = Callable[..., list[str]]


def by_id(id_: str, label: str, source: str = "client", at: int | None = None) -> FeedbackItem:
    return FeedbackItem(id_, None, label, source, at)


def by_reference(reference: str, label: str, source: str = "client") -> FeedbackItem:
    return FeedbackItem(None, reference, label, source)


def statuses(receipt: FeedbackReceipt) -> list[str]:
    return [item.status for item in receipt.items]


def count(database: Database) -> int:
    with database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(feedback)).scalar_one())


def test_the_receipt_counts_each_item(database: Database, logged: Write) -> None:
    logged([A, B], references=["tx-1", None])
    items = [by_id(A, "cat"), by_id(A, "cat"), by_id(A, "dog"), by_id(C, "cat"), by_reference("tx-2", "eel")]
    receipt = FeedbackStore(database).add("pets", items, by="till")
    assert statuses(receipt) == ["stored", "duplicate", "conflict", "pending", "pending"]
    assert (receipt.stored, receipt.pending, receipt.duplicates, receipt.conflicts) == (4, 2, 1, 1)
    assert count(database) == 4


def test_references_that_name_too_many_predictions_are_refused_and_nothing_is_stored(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.state.feedback.MOST_NAMED", 2)
    logged([A, B, C], references=["batch", "batch", "batch"])
    store = FeedbackStore(database)
    with pytest.raises(FeedbackError, match="too many predictions") as refused:
        store.add("pets", [by_id(A, "cat"), by_reference("batch", "cat")], by="till")
    assert refused.value.found == "more than 2; 'batch' matches 3 or more"
    assert count(database) == 0
    assert statuses(store.add("pets", [by_id(name, "cat") for name in (A, B, C)], by="till")) == ["stored"] * 3


def test_a_repetition_is_stored_once(database: Database, logged: Write) -> None:
    logged([A])
    store = FeedbackStore(database)
    for status in ("stored", "duplicate", "duplicate"):
        assert statuses(store.add("pets", [by_id(A, "cat")], by="till")) == [status]
    assert statuses(store.add("pets", [by_id(A, "cat", "reviewer")], by="till")) == ["stored"]
    assert count(database) == 2


def test_a_mind_changed_back_is_no_repetition(database: Database, logged: Write) -> None:
    logged([A])
    store = FeedbackStore(database)
    answers = [store.add("pets", [by_id(A, label)], by="till") for label in ("cat", "dog", "cat", "cat")]
    assert [statuses(answer)[0] for answer in answers] == ["stored", "conflict", "conflict", "duplicate"]


def test_an_old_label_sent_once_more_does_not_come_back(database: Database, logged: Write) -> None:
    logged([A])
    store = FeedbackStore(database)
    first = by_id(A, "cat", at=100)
    store.add("pets", [first], by="till")
    store.add("pets", [by_id(A, "dog", at=200)], by="till")
    assert statuses(store.add("pets", [first], by="till")) == ["duplicate"]


def test_a_conflict_is_one_with_the_label_that_is_current(database: Database, logged: Write) -> None:
    logged([A])
    store = FeedbackStore(database)
    store.add("pets", [by_id(A, "cat", "reviewer")], by="till")
    receipt = store.add("pets", [by_id(A, "dog", "client"), by_id(A, "cat", "system")], by="till")
    assert statuses(receipt) == ["conflict", "stored"]


def test_a_label_by_reference_can_conflict_with_one_by_id(database: Database, logged: Write) -> None:
    logged([A, B], references=["tx-1", "tx-1"])
    store = FeedbackStore(database)
    store.add("pets", [by_id(B, "cat")], by="till")
    assert statuses(store.add("pets", [by_reference("tx-1", "dog")], by="till")) == ["conflict"]
    assert statuses(store.add("pets", [by_id(A, "dog", "system")], by="till")) == ["stored"]


def current(database: Database) -> list[str]:
    """The labels that a recalibration reads, in order of the predictions."""
    with database.connect() as connection:
        rows = load_labelled_rows(connection, Window("pets", DIGEST), label_names=LABELS).rows
    return [LABELS[label] for label in rows.label]


def test_the_last_word_counts_under_whatever_name_it_comes(database: Database, logged: Write) -> None:
    logged([A], references=["tx-1"])
    store = FeedbackStore(database)
    for item, status in (
        (by_id(A, "cat"), "stored"),
        (by_reference("tx-1", "dog"), "conflict"),
        (by_id(A, "cat"), "conflict"),
        (by_id(A, "cat"), "duplicate"),
        (by_reference("tx-1", "dog"), "conflict"),
        (by_reference("tx-1", "dog"), "duplicate"),
    ):
        assert statuses(store.add("pets", [item], by="till")) == [status]
        assert current(database) == [item.label]
    assert statuses(store.add("pets", [by_id(A, "cat"), by_reference("tx-1", "dog")], by="till")) == ["conflict"] * 2
    assert current(database) == ["dog"]


def test_a_reference_is_repeated_only_if_all_its_predictions_have_its_label(database: Database, logged: Write) -> None:
    logged([A, B], references=["tx-1", "tx-1"])
    store = FeedbackStore(database)
    store.add("pets", [by_reference("tx-1", "cat"), by_id(A, "dog"), by_id(B, "cat")], by="till")
    assert current(database) == ["dog", "cat"]
    assert statuses(store.add("pets", [by_reference("tx-1", "cat")], by="till")) == ["conflict"]
    assert current(database) == ["cat", "cat"]
    assert statuses(store.add("pets", [by_reference("tx-1", "cat")], by="till")) == ["duplicate"]


def test_sources_of_one_priority_have_one_last_word(database: Database, logged: Write) -> None:
    logged([A])
    store = FeedbackStore(database)
    for source, label, status in (("a", "cat", "stored"), ("b", "dog", "conflict"), ("a", "cat", "conflict")):
        assert statuses(store.add("pets", [by_id(A, label, source)], by="till")) == [status]
        assert current(database) == [label]
    store.add("pets", [by_id(A, "dog", "reviewer")], by="till")
    assert statuses(store.add("pets", [by_id(A, "cat", "a")], by="till")) == ["duplicate"]  # it changes nothing
    assert current(database) == ["dog"]


def test_another_models_prediction_is_unknown(database: Database, logged: Write) -> None:
    logged([A], references=["tx-1"])
    receipt = FeedbackStore(database).add("cars", [by_id(A, "cat"), by_reference("tx-1", "cat")], by="till")
    assert statuses(receipt) == ["pending", "pending"]


def test_ten_thousand_at_once(database: Database, logged: Write) -> None:
    ids = logged([prediction_id(number) for number in range(10_000)])
    items = [by_id(id_, "cat") for id_ in ids]
    store = FeedbackStore(database)
    receipt = store.add("pets", items, by="till")
    assert (receipt.stored, receipt.pending, receipt.conflicts, receipt.duplicates) == (10_000, 0, 0, 0)
    assert store.add("pets", items, by="till").duplicates == 10_000


def test_nothing_to_store_is_fine(database: Database) -> None:
    assert FeedbackStore(database).add("pets", [], by="till") == FeedbackReceipt(0, 0, 0, 0, ())


class TestIdempotency:
    def test_only_a_request_with_a_key_keeps_its_receipt(self, database: Database) -> None:
        store = FeedbackStore(database)
        store.add("pets", [by_id(A, "cat")], by="till")
        store.add("pets", [by_id(B, "cat")], by="till", idempotency_key="k1", body_digest=b"1")
        with database.connect() as connection:
            kept = connection.execute(select(feedback_batches.c.by, feedback_batches.c.receipt)).all()
        assert [(by, receipt is not None) for by, receipt in kept] == [("till", False), ("till", True)]

    def test_a_retry_gets_the_first_receipt(self, database: Database, logged: Write) -> None:
        store = FeedbackStore(database)
        items = [by_id(A, "cat"), by_id(B, "dog")]
        first = store.add("pets", items, by="till", idempotency_key="k1", body_digest=b"1")
        logged([A, B])
        again = store.add("pets", items, by="till", idempotency_key="k1", body_digest=b"1")
        assert again == first
        assert statuses(again) == ["pending", "pending"]
        assert count(database) == 2

    def test_another_body_is_refused_and_not_stored(self, database: Database) -> None:
        store = FeedbackStore(database)
        store.add("pets", [by_id(A, "cat")], by="till", idempotency_key="k1", body_digest=b"1")
        with pytest.raises(IdempotencyConflictError) as caught:
            store.add("pets", [by_id(A, "dog")], by="till", idempotency_key="k1", body_digest=b"2")
        assert caught.value.where == "Idempotency-Key"
        assert count(database) == 1

    def test_keys_belong_to_their_caller(self, database: Database) -> None:
        store = FeedbackStore(database)
        store.add("pets", [by_id(A, "cat")], by="till", idempotency_key="k1", body_digest=b"1")
        receipt = store.add("pets", [by_id(B, "dog")], by="bank", idempotency_key="k1", body_digest=b"2")
        assert receipt.stored == 1

    def test_retries_at_the_same_moment_store_once(self, database: Database, other: Database) -> None:
        stores = [FeedbackStore(database), FeedbackStore(other)] * 4
        items = [by_id(prediction_id(number), "cat") for number in range(50)]
        barrier = Barrier(len(stores))

        def send(store: FeedbackStore) -> FeedbackReceipt:
            barrier.wait()
            return store.add("pets", items, by="till", idempotency_key="k1", body_digest=b"1")

        with ThreadPoolExecutor(len(stores)) as pool:
            receipts = list(pool.map(send, stores))
        assert all(receipt == receipts[0] for receipt in receipts)
        assert receipts[0].stored == 50
        assert count(database) == 50
        with database.connect() as connection:
            assert connection.execute(select(func.count()).select_from(feedback_batches)).scalar() == 1


def test_the_same_label_from_many_servers_is_stored_once(database: Database, other: Database) -> None:
    stores = [FeedbackStore(database), FeedbackStore(other)] * 4
    with ThreadPoolExecutor(len(stores)) as pool:
        receipts = list(pool.map(lambda store: store.add("pets", [by_id(A, "cat")], by="till"), stores))
    assert sorted(statuses(receipt)[0] for receipt in receipts) == ["duplicate"] * 7 + ["pending"]


def test_an_unusable_item_is_named_and_nothing_is_stored(database: Database) -> None:
    unusable = [
        (FeedbackItem(None, None, "cat", "client"), "/items/1"),
        (FeedbackItem(A, "tx-1", "cat", "client"), "/items/1"),
        (by_reference("a\x00b", "cat"), "/items/1/reference"),
        (by_id(A, "\ud800"), "/items/1/label"),
        (by_id(A, "cat", "\x00"), "/items/1/source"),
    ]
    for item, where in unusable:
        with pytest.raises(FeedbackError) as caught:
            FeedbackStore(database).add("pets", [by_id(B, "cat"), item], by="till")
        assert caught.value.where == where
    assert count(database) == 0


def test_a_correction_holds_though_the_clock_was_set_back(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged([A])
    store = FeedbackStore(database)
    now = now_us()
    for label, time_us in (("cat", now), ("dog", now - HOUR_US)):
        monkeypatch.setattr("service.state.feedback.now_us", lambda time_us=time_us: time_us)
        store.add("pets", [by_id(A, label)], by="till")
    with database.connect() as connection:
        found = load_labelled_rows(connection, Window("pets", DIGEST), label_names=LABELS)
    assert [LABELS[label] for label in found.rows.label] == ["dog"]


def test_a_clock_that_ran_wild_for_a_moment_is_not_followed(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged([A])
    store = FeedbackStore(database)
    now = now_us()
    for time_us in (now + 1_000 * 24 * HOUR_US, now):
        monkeypatch.setattr("service.state.feedback.now_us", lambda time_us=time_us: time_us)
        store.add("pets", [by_reference(str(time_us), "cat")], by="till")
    with database.connect() as connection:
        assert connection.execute(select(func.min(feedback.c.received_at))).scalar_one() == now
