"""Which key a prediction was answered to, and what shows that someone changed it."""

from __future__ import annotations

import zlib

import pytest
from sqlalchemy import delete, insert, select, update

from service.ids import new_ids
from service.state import answered_ids
from service.state.access_record import AccessRecord
from service.state.database import Database, now_us
from service.state.retention import prune
from service.state.tables import answered_ids as table


def record(database: Database, prefix: str, ids: list[str], model: str = "pets") -> None:
    made = AccessRecord(database)
    made.predicted(prefix, f"holder of {prefix}", model, ids[:-1])
    made.predicted(prefix, f"holder of {prefix}", model, ids[-1:])
    made.take()
    made.write()


def problem(database: Database) -> str | None:
    with database.connect() as connection:
        return answered_ids.verify(connection)


def test_every_row_names_its_key(database: Database) -> None:
    sent = {prefix: new_ids(40) for prefix in ("aa", "bb")}
    for prefix, ids in sent.items():
        record(database, prefix, ids)
    with database.connect() as connection:
        for prefix, ids in sent.items():
            for id_ in ids:
                found = answered_ids.find(connection, id_)
                assert found is not None
                assert (found.key, found.name, found.model, found.whole) == (
                    prefix,
                    f"holder of {prefix}",
                    "pets",
                    True,
                )
        assert answered_ids.find(connection, new_ids(1)[0]) is None
        assert answered_ids.find(connection, sent["aa"][0][13:] + sent["aa"][1][:13]) is None  # across two ids
    assert problem(database) is None


@pytest.mark.parametrize("how", ["another", "damaged", "deleted", "added"])
def test_changed_ids_are_named(database: Database, how: str) -> None:
    ids = new_ids(3)
    record(database, "aa", ids)
    record(database, "bb", new_ids(2))
    with database.begin() as connection:
        first, second = connection.scalars(select(table.c.entry).order_by(table.c.entry))
        match how:
            case "another":
                other = zlib.compress("".join([*ids[:2], new_ids(1)[0]]).encode())
                connection.execute(update(table).where(table.c.entry == first).values(ids=other))
            case "damaged":
                connection.execute(update(table).where(table.c.entry == first).values(ids=b"?"))
            case "deleted":
                connection.execute(delete(table).where(table.c.entry == second))
            case "added":
                connection.execute(insert(table).values(entry=second + 1, model="pets", at=1, ids=b""))
    said = problem(database)
    assert said is not None
    named = {"added": f"entry {second + 1}", "deleted": f"entry {second} (pets by the key bb"}
    assert named.get(how, f"entry {first} (pets by the key aa") in said
    if how == "another":
        with database.connect() as connection:
            found = answered_ids.find(connection, ids[0])
        assert found is not None
        assert not found.whole


def test_retention_deletes_them_and_says_so(database: Database) -> None:
    record(database, "aa", new_ids(3))
    prune(database, now_us() + 1, by="ops")
    record(database, "bb", new_ids(3))
    with database.connect() as connection:
        entry = connection.execute(select(table.c.entry)).scalar_one()
    assert problem(database) is None
    with database.begin() as connection:
        connection.execute(delete(table))
    said = problem(database)
    assert said is not None
    assert f"entry {entry} (pets by the key bb" in said
