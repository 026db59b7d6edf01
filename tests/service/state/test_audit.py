"""The audit log only grows."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.state import audit
from service.state.database import Database


def record(database: Database, model: str | None, subject: str) -> None:
    with database.begin() as connection:
        audit.append(connection, model=model, by="ops", action="activate", subject=subject, detail={"epoch": 1})


def test_newest_first_by_page_and_by_model(database: Database) -> None:
    for number in range(5):
        record(database, "pets" if number % 2 else "cars", f"r{number}")
    record(database, None, "key")
    assert [entry.subject for entry in audit.read(database, limit=3)] == ["key", "r4", "r3"]
    page = audit.read(database, limit=3)
    assert [entry.subject for entry in audit.read(database, before=page[-1].id)] == ["r2", "r1", "r0"]
    assert [entry.subject for entry in audit.read(database, "pets")] == ["r3", "r1"]
    entry = audit.read(database, "pets")[0]
    assert (entry.by, entry.action, entry.detail) == ("ops", "activate", {"epoch": 1})


@pytest.mark.parametrize("statement", ["UPDATE audit SET by = 'nobody'", "DELETE FROM audit"])
def test_nothing_in_it_can_be_changed(database: Database, statement: str) -> None:
    record(database, "pets", "r1")
    with pytest.raises(DBAPIError, match="append-only"), database.engine.begin() as connection:
        connection.execute(text(statement))
    assert [entry.by for entry in audit.read(database)] == ["ops"]


def test_postgresql_cannot_truncate_it(database: Database) -> None:
    if database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no TRUNCATE")
    with pytest.raises(DBAPIError, match="append-only"), database.engine.begin() as connection:
        connection.execute(text("TRUNCATE audit"))


def test_what_is_rolled_back_was_not_done(database: Database) -> None:
    with database.begin() as connection:
        audit.append(connection, model=None, by="ops", action="x", subject="y")
        connection.rollback()
    assert audit.read(database) == []


def test_an_unstorable_detail_is_refused(database: Database) -> None:
    with pytest.raises(Exception, match="not JSON compliant"), database.begin() as connection:
        audit.append(connection, model=None, by="ops", action="x", subject="y", detail={"nll": float("nan")})
    assert audit.read(database) == []
