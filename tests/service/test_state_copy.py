"""`candor state copy`: a state that has seen everything goes on elsewhere, and a copy is whole or absent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import func, select

from service.ids import ids_of
from service.state import tables
from service.state.database import Database, now_us
from service.state.keys import KeyStore
from service.state.predictions import PredictionLog
from service.times import DAY_US
from tests.waiting import until

from .conftest import InThread, Spawn
from .state.conftest import batch


def rows_of(url: str) -> dict[str, int]:
    database = Database.open(url, readonly=True)
    with database.connect() as connection:
        found = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.sorted_tables
        }
    database.close()
    return found


@pytest.fixture
def old(spawn: Spawn) -> str:
    """The URL of an empty SQLite state."""
    url = spawn.environment["CANDOR_DATABASE_URL"]
    Database.open(url).close()
    return url


@pytest.mark.usefixtures("checks_here", "refits_here")
def test_a_state_goes_on_in_postgresql_and_comes_back(
    start: Callable[..., InThread],
    spawn: Spawn,
    digits: Any,
    postgresql_url: str,
    tmp_path: Path,
) -> None:
    service = start(keep_inputs="all", limit_action_change=1.0)
    service.teach(digits.dimmed, digits.labels)
    assert service.http.post("/feedback", json={"items": [{"reference": "tx-9", "label": "1"}]}).status_code == 200
    answer = service.recalibrate(mode="activate", calibrator="temperature")
    assert answer.status_code == 200, answer.text
    np.savez(tmp_path / "set.npz", inputs=digits.images, label=np.array(digits.labels))
    headers = {"content-type": "application/x-npz"}
    content = (tmp_path / "set.npz").read_bytes()
    uploaded = service.http.post("/v1/models/digits/labelled-sets", content=content, headers=headers)
    assert uploaded.status_code in (200, 201), uploaded.text
    revisions, audit = service.revisions(), service.http.get("/v1/models/digits/audit").json()
    last = service.predict(digits.images[:1])[0]
    assert service.runtime.log.flush()
    service.close()
    old = f"sqlite:///{tmp_path}/state.db"
    before = rows_of(old)
    assert all(before[name] for name in ("predictions", "inputs", "feedback", "revisions", "jobs", "audit"))
    assert before["labelled_rows"]

    done = spawn.run("state", "copy", old, postgresql_url)
    assert done.returncode == 0, done.stderr
    assert f"{sum(before.values())} rows" in done.stdout.replace(",", "")
    assert rows_of(postgresql_url) == before | {name: before[name] + 1 for name in ("audit", "audit_links")}

    served = start(state=postgresql_url)
    assert served.revisions() == revisions
    assert served.http.get("/v1/models/digits/audit").json()["items"] == audit["items"]
    again = served.predict(digits.images[:1])[0]
    assert {**again, "prediction_id": ""} == {**last, "prediction_id": ""}
    late = {"items": [{"prediction_id": last["prediction_id"], "label": digits.labels[0]}]}
    assert served.http.post("/feedback", json=late).json()["items"] == [{"status": "stored"}]
    served.propose_policy()  # numbers go on
    assert served.recalibrate(mode="dry_run", calibrator="temperature").status_code in (200, 409)
    served.close()

    back = f"sqlite:///{tmp_path}/back.db"
    assert spawn.run("state", "copy", "--json", postgresql_url, back).returncode == 0
    after = rows_of(postgresql_url)
    assert rows_of(back) == after | {name: after[name] + 1 for name in ("audit", "audit_links")}


def test_rows_of_days_after_the_target_was_made_are_copied(spawn: Spawn, old: str, postgresql_url: str) -> None:
    Database.open(postgresql_url).close()
    source = Database.open(old)
    log = PredictionLog(source)
    later_us = now_us() + 3 * DAY_US
    log.append(batch(ids_of(later_us // 1000, bytes(10) + b"\x01" * 10), created_at=later_us))
    log.close()
    source.close()
    done = spawn.run("state", "copy", old, postgresql_url)
    assert done.returncode == 0, done.stderr
    assert rows_of(postgresql_url)["predictions"] == 2


def refused(spawn: Spawn, source: str, target: str) -> str:
    done = spawn.run("state", "copy", source, target)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_states_in_use_or_of_another_schema_and_targets_with_rows_are_refused(
    start: Callable[..., InThread], spawn: Spawn, old: str, postgresql_url: str, tmp_path: Path
) -> None:
    assert "onto itself" in refused(spawn, old, old)
    assert "no file" in refused(spawn, f"sqlite:///{tmp_path}/none.db", postgresql_url)
    assert not (tmp_path / "none.db").exists()
    service = start()
    assert "Another server" in refused(spawn, old, postgresql_url)
    service.close()
    service = start(state=postgresql_url)
    until(lambda: service.runtime.notices.arrive)
    assert "A service is using" in refused(spawn, postgresql_url, f"sqlite:///{tmp_path}/new.db")
    service.close()
    told = refused(spawn, old, postgresql_url)
    assert "The target is not empty" in told
    assert "1 rows in revisions" in told
    with psycopg.connect(postgresql_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    assert "schema 0001" in refused(spawn, postgresql_url, f"sqlite:///{tmp_path}/new.db")


def test_a_copy_that_differs_leaves_nothing(spawn: Spawn, old: str, postgresql_url: str) -> None:
    database = Database.open(old)
    KeyStore(database).create("ops", ["admin"])
    database.close()
    Database.open(postgresql_url).close()
    with psycopg.connect(postgresql_url) as connection:
        connection.execute(
            "CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.name := 'else'; RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER damage BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION damage()")
    assert "The copy of api_keys differs" in refused(spawn, old, postgresql_url)
    assert rows_of(postgresql_url) == dict.fromkeys(rows_of(old), 0) | {"secrets": 1}
    with psycopg.connect(postgresql_url) as connection:
        connection.execute("DROP TRIGGER damage ON api_keys")
    done = spawn.run("state", "copy", "--json", old, postgresql_url)
    assert json.loads(done.stdout)["rows"]["api_keys"] == 1
