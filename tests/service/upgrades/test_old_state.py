"""State and bundle as earlier schemas left them (make.py): the service of today goes on from there."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine, select

from service.settings import Settings
from service.state import audit, audit_chain, migrating, migrations
from tests.service.conftest import POLICIES, InThread

pytestmark = pytest.mark.usefixtures("refits_here")
ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
assert ARCHIVES, "no state of an older schema to open"
COUNTED_ON = {"numbers", "exposures"}  # migrations may add rows to these; no row of any table is lost or changed
FOLLOWS_THE_SCHEMA = "alembic_version"


@dataclass(frozen=True)
class Old:
    """What an earlier version left behind.

    Attributes:
        schema: Its newest schema.
        url: Its database.
        bundles: Its folder of bundles.
        facts: What was true of it.
    """

    schema: str
    url: str
    bundles: Path
    facts: dict[str, Any]


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, archive: Path, tmp_path: Path) -> Old:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    url = f"sqlite:///{tmp_path}/state.db"
    if request.param == "postgresql":
        address: str = request.getfixturevalue("empty_postgresql_url")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute((tmp_path / "state.sql").read_bytes())
        url = address.replace("postgresql://", "postgresql+psycopg://")
    facts = json.loads((tmp_path / "facts.json").read_text())[request.param]
    return Old(archive.name.partition(".")[0], url, tmp_path / "bundles", facts)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def archive(request: pytest.FixtureRequest) -> Path:
    chosen: Path = request.param
    return chosen


@pytest.fixture
def start_on(old: Old, tmp_path: Path) -> Iterator[Callable[[], InThread]]:
    """Start today's service on it, with the key of its administrator."""
    started: list[InThread] = []

    def run() -> InThread:
        settings = Settings(
            bundles=old.bundles,
            policies=POLICIES,
            database_url=old.url,
            uploads=tmp_path / "uploads",
            poll_interval_s=0.25,
            refit_cpu="low",
        )
        started.append(InThread(settings))
        started[-1].http.headers["authorization"] = f"Bearer {old.facts['keys']['ops']}"
        return started[-1]

    yield run
    for service in started:
        service.close()


def rows_of(connection: Connection, tables: MetaData) -> dict[str, Counter[str]]:
    """Return every row of every table, as text, in the columns that these tables have."""
    return {
        table.name: Counter(repr(tuple(row)) for row in connection.execute(select(*table.columns)))
        for table in tables.sorted_tables
        if table.name != FOLLOWS_THE_SCHEMA
    }


def one_migration(connection: Connection, scripts: ScriptDirectory) -> None:
    """Run the first migration that the database lacks."""

    def first_missing(revision: Any, _context: MigrationContext) -> list[MigrationStep]:
        *_, step = scripts.iterate_revisions("head", revision)
        return [MigrationStep.upgrade_from_script(scripts.revision_map, step)]

    context = MigrationContext.configure(connection, opts={"fn": first_missing})
    with Operations.context(context):
        context.run_migrations()


def test_no_migration_loses_or_changes_a_row(old: Old) -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    engine = create_engine(old.url)
    tables = MetaData()
    with engine.connect() as connection:
        tables.reflect(connection)
        before = rows_of(connection, tables)
        assert migrating.current(connection) == old.schema
    assert {name for name, rows in before.items() if not rows} <= {"secrets"} | COUNTED_ON
    assert before["predictions"].total() == old.facts["predictions"]
    seen = [old.schema]
    while seen[-1] != migrating.newest():
        with engine.begin() as connection:
            one_migration(connection, scripts)
            seen.append(str(migrating.current(connection)))
        with engine.connect() as connection:
            after = rows_of(connection, tables)
        for name, rows in before.items():
            assert not rows - after[name], f"{name}, after {seen[-1]}"
            assert name in COUNTED_ON or rows == after[name], f"{name}, after {seen[-1]}"
    engine.dispose()
    assert seen == sorted(set(seen))


def contains(new: Any, old: Any) -> bool:
    """Say whether a document says all that an earlier one said; it may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and contains(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(contains, new, old))
    return bool(new == old)


def test_it_is_served_as_it_was(old: Old, start_on: Callable[[], InThread]) -> None:
    service, facts = start_on(), old.facts
    page = service.revisions()
    assert (page["active"], page["epoch"]) == (facts["page"]["active"], facts["page"]["epoch"])
    assert service.http.get("/readyz").json()["models"] == {"digits": page["active"]}
    assert [(item["id"], item["state"]) for item in page["items"]] == [
        (item["id"], item["state"]) for item in facts["page"]["items"]
    ]
    for name, known in facts["revisions"].items():
        now = service.http.get(f"/v1/models/digits/revisions/{name}").json()
        assert now["calibrator"] == known["calibrator"]
        for policy, solved in known["policies"].items():
            thresholds = [band["threshold"] for band in solved["bands"]]
            assert [band["threshold"] for band in now["policies"][policy]["bands"]] == thresholds
            assert contains(now["policies"][policy]["policy"]["bands"], solved["policy"]["bands"])
        assert contains(now["report"], known["report"])
    images = np.array(facts["images"], dtype=np.uint8)
    for now, then in zip(service.predict(images, policy="auto-read"), facts["answer"]["predictions"], strict=True):
        assert (now["label"], now["decision"]["action"]) == (then["label"], then["decision"]["action"])
        assert now["probabilities"] == pytest.approx(then["probabilities"], abs=1e-6)
    done = [entry["action"] for entry in service.http.get("/v1/models/digits/audit").json()["items"]]
    assert done.count("activate") >= 3
    assert "rollback" in done
    latest = audit.read(service.runtime.database, limit=500)
    assert "chain_audit" in [entry.action for entry in latest]
    with service.runtime.database.connect() as connection:
        chain = audit_chain.verify(connection)
    assert (chain.whole.position, chain.broken) == (len(latest), None)


def test_its_keys_open_what_they_opened(old: Old, start_on: Callable[[], InThread]) -> None:
    service, keys = start_on(), old.facts["keys"]

    def asked_with(key: str, path: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return service.http.post(path, json={"inputs": old.facts["images"][:1]}, headers=headers).status_code

    assert asked_with(keys["till"], "/predict") == 200
    assert asked_with(keys["till"], "/recalibrate") == 403
    assert asked_with(keys["left"], "/predict") == 401


def test_its_labels_are_known_and_a_refit_goes_on_from_them(old: Old, start_on: Callable[[], InThread]) -> None:
    service, facts = start_on(), old.facts
    for key, sent in facts["feedback"].items():
        again = service.http.post("/feedback", json=sent["body"], headers={"idempotency-key": key})
        assert (again.status_code, again.json()) == (200, sent["answer"]), key
    waiting = facts["feedback"]["pending"]["body"]["items"][0]["reference"]
    came = {"inputs": facts["images"][:1], "references": [waiting]}
    assert service.http.post("/predict", json=came, params={"policy": "auto-read"}).status_code == 200
    assert service.runtime.log.flush()
    refit = service.recalibrate(mode="propose")
    assert refit.status_code == 200, refit.text
    found = refit.json()
    roles = ("fit", "certify", "gate")
    assert sum(found["rows"][role] for role in roles) == sum(facts["refit"]["rows"][role] for role in roles) + 1
    before = service.revisions()["active"]
    assert service.activate(found["revision"])["active"] == found["revision"]
    assert service.predict(np.array(facts["images"], dtype=np.uint8), policy="auto-read")
    assert service.rollback()["active"] == before
