"""Whatever its owner does to the audit log, the chain over it tells, and names the first place."""

from __future__ import annotations

import hashlib
import json
import threading

import pytest
from sqlalchemy import Connection, insert, select, text

from service.state import audit, audit_chain
from service.state.audit_chain import Head, Verdict
from service.state.database import Database, now_us
from service.state.deletion import Deleted
from service.state.erasure import Subject, erase
from service.state.retention import prune
from service.state.tables import audit as entries
from service.state.tables import audit_links


def record(database: Database, subject: str, *, detail: dict[str, object] | None = None) -> None:
    with database.begin() as connection:
        audit.append(connection, model="pets", by="ops", action="activate", subject=subject, detail=detail)


def verdict(database: Database, *heads: tuple[int, bytes, str]) -> Verdict:
    with database.connect() as connection:
        return audit_chain.verify(connection, heads)


def head(database: Database) -> Head:
    with database.connect() as connection:
        return audit_chain.end_of(connection)


def tamper(database: Database, *statements: str) -> None:
    """Do what the owner of the database can: drop the triggers, then change rows."""
    with database.engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            for name in connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))


def ids(connection: Connection) -> list[int]:
    return list(connection.scalars(select(entries.c.id).order_by(entries.c.id)))


@pytest.fixture
def log(database: Database) -> list[int]:
    """The ids of five entries."""
    for number in range(1, 6):
        record(database, f"r{number}", detail={"epoch": number, "β": [0.1, None, "ü"]})
    with database.connect() as connection:
        return ids(connection)


def test_a_link_is_the_digest_of_the_one_before_and_of_the_entry(database: Database, log: list[int]) -> None:
    found = bytes(32)
    with database.connect() as connection:
        for position, row in enumerate(connection.execute(select(entries).order_by(entries.c.id)), 1):
            document = json.dumps([position, *row], sort_keys=True, separators=(",", ":"))
            found = hashlib.sha256(b"candor-audit-1\n" + found + document.encode()).digest()
    assert head(database) == Head(5, found, log[-1])
    assert verdict(database) == Verdict(Head(5, found, log[-1]), None)


def test_a_changed_entry_is_named(database: Database, log: list[int]) -> None:
    for column, value in (("by", "'nobody'"), ("at", "at - 1"), ("detail", "'{}'"), ("model", "NULL")):
        with database.connect() as connection:
            was = connection.execute(text(f"SELECT {column} FROM audit WHERE id = {log[2]}")).scalar_one()
        tamper(database, f"UPDATE audit SET {column} = {value} WHERE id = {log[2]}")
        whole, broken, _ = verdict(database)
        assert broken is not None
        assert broken.startswith(f"Entry {log[2]} (activate r3"), broken
        assert whole == Head(2, whole.head, log[1])
        with database.engine.begin() as connection:
            back = json.dumps(was) if isinstance(was, dict) else was
            connection.execute(
                text("SELECT 1")
                if connection.dialect.name == "sqlite"
                else text("SET LOCAL session_replication_role = replica")
            )
            connection.execute(text(f"UPDATE audit SET {column} = :was WHERE id = {log[2]}"), {"was": back})
        assert verdict(database).broken is None


def test_a_deleted_entry_is_named_with_and_without_its_link(database: Database, log: list[int]) -> None:
    tamper(database, f"DELETE FROM audit WHERE id = {log[1]}")
    assert verdict(database).broken == f"Entry {log[1]} was deleted (link 2)."
    tamper(database, "DELETE FROM audit_links WHERE position = 2")
    assert verdict(database).broken == f"Link 2 was deleted; entry {log[0]} is the last one before it."


def test_an_entry_that_was_slipped_in_is_named(database: Database, log: list[int]) -> None:
    with database.engine.begin() as connection:
        values = {"id": 99, "at": 5, "by": "ops", "action": "reject", "subject": "r9", "detail": {}}
        connection.execute(insert(entries).values(**values))
    broken = verdict(database).broken
    assert broken is not None
    assert broken.startswith("Entry 99 (reject r9 by ops, 1970-01-01"), broken
    assert log


def test_an_entry_that_is_dated_back_is_named_and_hides_nothing(
    database: Database, log: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(audit, "now_us", lambda: now_us() - 2 * 3_600_000_000)
        record(database, "r6")
    record(database, "r7")
    whole, broken, doubts = verdict(database)
    assert (whole.position, broken, len(doubts)) == (7, None, 1)
    assert "is dated back" in doubts[0]
    assert doubts[0].startswith(f"Entry {log[-1] + 1} (activate r6")
    tamper(database, f"UPDATE audit SET by = 'nobody' WHERE id = {log[-1] + 2}")
    assert "was changed after it was written" in (verdict(database).broken or "")


def test_the_head_of_an_empty_log_is_one(database: Database) -> None:
    empty = (0, head(database).head, "a:1")
    assert verdict(database, empty).broken is None
    record(database, "r1")
    assert verdict(database, empty).broken is None
    assert verdict(database, (0, b"x" * 32, "a:1")).broken == "Links were rewritten before link 1 (a:1)."


def test_an_end_that_was_cut_off_is_found(database: Database, log: list[int]) -> None:
    position, last, _ = head(database)
    cut = ("DELETE FROM audit_links WHERE position > 3", f"DELETE FROM audit WHERE id > {log[2]}")
    tamper(database, *cut)
    assert verdict(database).broken == "The end was cut off after link 3: 5 links were written."
    tamper(database, "UPDATE numbers SET last = 3 WHERE series = 'audit'")
    assert verdict(database).broken is None  # nothing in the database can tell
    broken = verdict(database, (position, last, "heads.jsonl:1")).broken
    assert broken == "The end was cut off after link 3: heads.jsonl:1 has link 5."


def test_a_chain_written_anew_is_found_by_a_head(database: Database, log: list[int]) -> None:
    heads = [(2, _link(database, 2), "a:1"), (4, _link(database, 4), "a:2"), (5, _link(database, 5), "a:3")]
    assert verdict(database, *heads).broken is None
    tamper(database, f"UPDATE audit SET by = 'other' WHERE id = {log[2]}", "DELETE FROM audit_links")
    tamper(database, "DELETE FROM numbers WHERE series = 'audit'")
    with database.begin() as connection:
        audit_chain.seal(connection, log)
    assert verdict(database).broken is None
    assert verdict(database, *heads).broken == "Links were rewritten between link 2 and link 4 (a:2)."


def _link(database: Database, position: int) -> bytes:
    with database.connect() as connection:
        return connection.execute(select(audit_links.c.head).where(audit_links.c.position == position)).scalar_one()


def test_of_many_at_once_each_has_its_link(database: Database, other: Database) -> None:
    def write(which: Database, name: str) -> None:
        for number in range(10):
            record(which, f"{name}{number}")

    threads = [
        threading.Thread(target=write, args=(which, name))
        for which, name in zip([database, other] * 2, "abcd", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdict(database).broken is None
    assert head(database).position == 40


def test_what_is_rolled_back_has_no_link(database: Database, log: list[int]) -> None:
    with database.begin() as connection:
        audit.append(connection, model=None, by="ops", action="x", subject="y")
        connection.rollback()
    record(database, "r6")
    assert verdict(database).broken is None
    assert head(database).position == 6
    assert len(log) == 5


def test_retention_and_erasure_keep_the_chain(database: Database, log: list[int]) -> None:
    prune(database, now_us(), by="ops")
    assert erase(database, "pets", Subject("reference", "tx-1"), by="ops") == Deleted()
    assert verdict(database).broken is None
    assert head(database).position == len(log) + 1


def test_entries_from_before_the_chain_are_linked_which_an_entry_says(database: Database, log: list[int]) -> None:
    tamper(database, "DELETE FROM audit_links", "DELETE FROM numbers WHERE series = 'audit'")
    with database.begin() as connection:
        assert audit_chain.chain_all(connection) == 5
    entry = audit.read(database)[0]
    assert (entry.action, entry.subject, entry.detail["through"]) == ("chain_audit", "5 entries", log[-1])
    assert verdict(database).broken is None
    assert head(database).position == 6


def test_the_links_cannot_be_changed_by_the_service(database: Database, log: list[int]) -> None:
    for statement in ("UPDATE audit_links SET entry = 1", "DELETE FROM audit_links"):
        with pytest.raises(Exception, match="append-only"), database.engine.begin() as connection:
            connection.execute(text(statement))
    assert head(database).position == len(log)
