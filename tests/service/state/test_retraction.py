"""Labels are found and taken back by who sent them, their source, and when they came."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.state import audit, audit_chain, feedback
from service.state.database import Database, now_us
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.retraction import Labels, find, retract
from service.state.tables import feedback as labels_table
from service.state.tables import feedback_batches

HOUR = 3_600_000_000


@pytest.fixture
def sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> int:
    """Labels of three hours: honest ones, then 700 lies by one key, then honest ones; returns when the lies began."""
    store, start = FeedbackStore(database), now_us() - 3 * HOUR

    def send(
        at: int, by: str, source: str, label: str, count: int, model: str = "pets", key: str | None = None
    ) -> None:
        monkeypatch.setattr(feedback, "now_us", lambda: at)
        items = [FeedbackItem(None, f"tx-{number}", label, source) for number in range(count)]
        digest = b"x" if key else None
        store.submit(model, items, by=by, by_key=f"cnd_{by}", idempotency_key=key, body_digest=digest).result()

    send(start, "till", "client", "cat", 3)
    send(start + HOUR, "thief", "client", "dog", 700, key="again")
    send(start + HOUR, "thief", "client", "dog", 2, model="cars")
    send(start + 2 * HOUR, "ops", "reviewer", "eel", 2)
    return start + HOUR


def current(database: Database, model: str = "pets") -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    with database.connect() as connection:
        query = select(labels_table).where(labels_table.c.model == model)
        for row in connection.execute(query.order_by(labels_table.c.batch)):
            found.setdefault(row.target, []).append((row.label, row.source))
    return found


def test_labels_are_found_by_each_part_and_by_all(database: Database, sent: int) -> None:
    def number(**parts: object) -> int:
        return len(list(find(database, Labels("pets", **parts))))  # type: ignore[arg-type]

    assert number() == 705
    assert (number(by="thief"), number(by="till"), number(by="nobody")) == (700, 3, 0)
    assert (number(source="reviewer"), number(source="client")) == (2, 703)
    assert (number(since=sent), number(until=sent), number(since=sent, until=sent + 1)) == (702, 3, 700)
    assert number(by="thief", source="reviewer") == 0
    assert (number(key="cnd_thief"), number(key="cnd_thief", by="till"), number(key="cnd_other")) == (700, 0, 0)
    rows = list(find(database, Labels("pets", by="thief")))
    assert len({row.target for row in rows}) == 700
    assert {(row.by, row.label, row.received_at) for row in rows} == {("thief", "dog", sent)}


def test_what_is_taken_back_is_gone_and_nothing_else(database: Database, sent: int) -> None:
    before = current(database)
    assert before["tx-0"] == [("cat", "client"), ("dog", "client"), ("eel", "reviewer")]
    assert retract(database, Labels("pets", by="thief", since=sent), by="ops", reason="the key was stolen") == 700
    after = current(database)
    assert after == {
        "tx-0": [("cat", "client"), ("eel", "reviewer")],
        "tx-1": [("cat", "client"), ("eel", "reviewer")],
        "tx-2": [("cat", "client")],
    }
    assert current(database, "cars") == {"tx-0": [("dog", "client")], "tx-1": [("dog", "client")]}
    entry = audit.read(database, "pets")[0]
    assert (entry.action, entry.by) == ("retract_labels", "ops")
    assert (entry.detail["labels"], entry.detail["by"], entry.detail["reason"]) == (700, "thief", "the key was stolen")
    with database.connect() as connection:
        assert audit_chain.verify(connection).broken is None
    # The same request again is stored, not answered from a receipt.
    items = [FeedbackItem(None, "tx-9", "cat")]
    again = FeedbackStore(database).add("pets", items, by="thief", idempotency_key="again", body_digest=b"x")
    assert (again.stored, again.batch is not None) == (1, True)


def test_an_erasure_leaves_the_sender_of_other_labels_known(database: Database, sent: int) -> None:
    erase(database, "pets", Subject("reference", "tx-5"), by="dpo")
    assert {row.by for row in find(database, Labels("pets", key="cnd_thief"))} == {"thief"}
    assert len(list(find(database, Labels("pets", by="thief")))) == 699
    with database.connect() as connection:
        receipts = select(feedback_batches.c.receipt).where(feedback_batches.c.by == "thief")
        assert list(connection.scalars(receipts.where(feedback_batches.c.model == "pets"))) == [None]
    for number in range(3):
        erase(database, "pets", Subject("reference", f"tx-{number}"), by="dpo")
    with database.connect() as connection:  # requests without labels go
        senders = select(feedback_batches.c.by).where(feedback_batches.c.model == "pets")
        assert list(connection.scalars(senders)) == ["thief"]
