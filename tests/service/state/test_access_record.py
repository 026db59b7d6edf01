"""What the audit log says of requests stays small, whatever is sent."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from service.errors import StateUnavailableError
from service.ids import new_ids
from service.state import access_record, answered_ids, audit, audit_chain
from service.state.access_record import AccessRecord
from service.state.answered_ids import digest_of
from service.state.database import Database
from service.state.tables import audit as entries


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def written(database: Database) -> list[tuple[str, str, dict[str, object]]]:
    with database.connect() as connection:
        rows = connection.execute(entries.select().order_by(entries.c.id)).all()
    return [(row.action, row.subject, row.detail) for row in rows]


def test_an_hour_of_a_flood_is_a_few_small_entries(database: Database) -> None:
    clock = Clock()
    record = AccessRecord(database, clock)
    sent = 0
    for minute in range(60):
        for number in range(300):
            record.refused(401, f"192.0.2.{number % 250}", f"/{minute}/{'x' * 9_000}{number}", None)
            sent += 1
        clock.now += 60.0
        record.take()
    record.take(last=True)
    record.write()
    log = written(database)
    assert len(log) <= 7  # after 1, 2, 4 … minutes
    assert sum(int(subject.split()[0]) for _, subject, _ in log) == sent
    for action, _, detail in log:
        assert action == "refuse_requests"
        assert len(str(detail)) < 6_000
    record.refused(403, "192.0.2.1", "/audit", "0123456789ab")
    clock.now += 3_600.0
    record.take()
    record.take()  # a quiet minute: the pause is short again
    clock.now += 3_600.0
    record.take()
    record.refused(401, "192.0.2.1", "/\x1b[2J", None)
    record.take()
    record.write()
    *_, one, other = written(database)
    named = {"status": 403, "address": "192.0.2.1", "path": "/audit", "key": "0123456789ab", "requests": 1}
    assert one[2]["requests"] == [named]
    assert other[2]["requests"] == [named | {"status": 401, "path": "/\ufffd[2J", "key": None}]


def test_the_keys_of_predictions_by_model(database: Database) -> None:
    record = AccessRecord(database)
    record.predicted("aa", "till", "pets", ["p1", "p2"])
    record.predicted("aa", "till", "pets", ["p5"])
    record.predicted("aa", "till", "cars", ["p4"])
    record.predicted("bb", "web", "pets", ["p3"])
    record.take()
    record.take()
    record.write()
    (action, subject, detail), other = written(database)
    assert (action, subject, other[1]) == ("predict", "aa", "bb")
    assert detail["models"] == {
        "pets": {"requests": 2, "rows": 3, "first": "p1", "last": "p5", "sha256": digest_of(b"p1p2p5")},
        "cars": {"requests": 1, "rows": 1, "first": "p4", "last": "p4", "sha256": digest_of(b"p4")},
    }
    assert audit.read(database) == []  # routine


def test_what_cannot_be_written_waits(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> None:
        raise StateUnavailableError("The database does not answer.")

    record = AccessRecord(database)
    record.predicted("aa", "till", "pets", ["p1"])
    record.take()
    with monkeypatch.context() as patched:
        patched.setattr(database, "begin", down)
        record.write()
    record.predicted("aa", "till", "pets", ["p2"])
    record.take()
    record.write()
    assert [detail["models"]["pets"]["first"] for _, _, detail in written(database)] == ["p1", "p2"]  # type: ignore[index]
    with database.connect() as connection:
        assert audit_chain.verify(connection).broken is None


def test_two_threads_write_an_entry_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop writes while the thread of the last minute may still be at it."""
    record, begin = AccessRecord(database), database.begin
    other = threading.Thread(target=record.close)

    def overtaken() -> Any:
        if other.ident is None:
            other.start()
            other.join(0.3)  # it has to wait
        return begin()

    monkeypatch.setattr(database, "begin", overtaken)
    record.predicted("aa", "till", "pets", ["p1"])
    record.take()
    record.write()
    other.join()
    assert len(written(database)) == 1


def test_a_failure_of_the_record_stops_no_stop(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    record = AccessRecord(database)
    record.predicted("aa", "till", "pets", ["p1"])

    def broken() -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(database, "begin", broken)
        record.close()
    record.write()
    assert len(written(database)) == 1


def test_many_ids_are_written_before_the_minute_ends_and_an_outage_does_not_fill_the_memory(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_record, "_MANY_BYTES", 100)
    monkeypatch.setattr(access_record, "_MOST_KEPT", 200)
    record = AccessRecord(database)
    record.predicted("aa", "till", "pets", new_ids(3))
    assert not record.full
    record.predicted("aa", "till", "pets", new_ids(3))
    assert record.full
    record.take()  # the database does not answer, so nothing is written
    assert not record.full
    record.predicted("aa", "till", "pets", new_ids(2))
    record.predicted("aa", "till", "pets", new_ids(2))  # too much waits
    record.take()
    record.write()
    record.predicted("aa", "till", "pets", new_ids(2))
    record.take()
    record.write()
    sealed = [detail["models"]["pets"]["sha256"] for _, _, detail in written(database)]  # type: ignore[index]
    assert [digest is None for digest in sealed] == [False, True, False]
    with database.connect() as connection:
        assert answered_ids.verify(connection) is None
