"""`candor worker` beside services that only serve: who updates the state, who runs recalibrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from httpx import URL
from psycopg.errors import InsufficientPrivilege

import bundle as bundles
from service.errors import StateUnavailableError
from service.state.database import now_us
from service.state.keys import KeyStore
from service.state.partitions import cover
from service.times import DAY_US
from tests.waiting import until

from .conftest import InThread, Spawn, contents


def test_a_worker_updates_the_state_and_runs_what_services_leave_to_it(
    spawn: Spawn, digits: Any, empty_postgresql_url: str
) -> None:
    service = spawn(wait=False, database_url=empty_postgresql_url, background="false")
    until(lambda: "waiting for `candor worker`" in "".join(service.log), lambda: "".join(service.log))
    worker = spawn("worker", database_url=empty_postgresql_url, background="false", workers="2")
    service.wait_until_it_listens()
    assert (service.metric("candor_background"), worker.metric("candor_background")) == (0, 1)
    assert service.http.get("/readyz").status_code == worker.http.get("/readyz").status_code == 200

    service.teach(digits.dimmed, digits.labels)
    answer = service.recalibrate(mode="propose", calibrator="temperature")
    assert answer.status_code == 200, answer.text
    assert answer.json()["gate"]["passed"]
    count = "candor_recalibrations_total"
    assert (service.metric(count), until(lambda: worker.metric(count))) == (0, 1)


@pytest.fixture
def roles(empty_postgresql_url: str) -> Iterator[dict[str, str]]:
    """URLs of the two roles that docs/how-to/deploy.md creates, neither of which is a superuser."""
    text = Path("docs/how-to/deploy.md").read_text()
    sql = text[text.index("CREATE ROLE candor_owner") :].partition("```")[0]
    names = {name: f"{name}_{token_hex(6)}" for name in ("candor_owner", "candor_app")}
    for name, own in names.items():
        sql = sql.replace(name, own)
    with psycopg.connect(empty_postgresql_url, autocommit=True) as superuser:
        superuser.execute(sql)  # type: ignore[arg-type]  # not a literal
        yield {name: str(URL(empty_postgresql_url).copy_with(username=own)) for name, own in names.items()}
        for own in names.values():
            superuser.execute(f"DROP OWNED BY {own} CASCADE")  # type: ignore[arg-type]
            superuser.execute(f"DROP ROLE {own}")  # type: ignore[arg-type]


def test_a_role_without_ddl_serves_what_the_owner_migrates(
    start: Callable[..., InThread], spawn: Spawn, digits: Any, roles: dict[str, str]
) -> None:
    early = spawn.run("state", "migrate", "--database-url", roles["candor_app"])
    assert early.returncode == 2, early.stderr
    assert "permission denied for schema public.\n" in early.stderr
    assert "candor state migrate" in early.stderr
    done = spawn.run("state", "migrate", "--database-url", roles["candor_owner"])
    assert done.returncode == 0, done.stderr
    app = roles["candor_app"].replace("postgresql://", "postgresql+psycopg://")
    running = start(state=app, background=False, log_mode="sync")
    running.teach(digits.dimmed[:20], digits.labels[:20])
    running.activate(running.propose_policy())
    KeyStore(running.runtime.database).create("ops", ["admin"])
    for ddl in ("CREATE TABLE mine ()", "ALTER TABLE audit DISABLE TRIGGER ALL", "DROP TABLE sessions"):
        with psycopg.connect(roles["candor_app"]) as connection, pytest.raises(InsufficientPrivilege):
            connection.execute(ddl)

    def there() -> None:
        with running.runtime.database.begin() as connection:
            assert cover(connection, [now_us() // DAY_US + 30]) == []

    with pytest.raises(StateUnavailableError) as missing:
        there()
    assert "candor state migrate" in str(missing.value.remedy)
    assert spawn.run("state", "migrate", "--days", "30", "--database-url", roles["candor_owner"]).returncode == 0
    there()
    running.close()


@pytest.mark.parametrize("command", [["serve", "--no-background"], ["worker"]])
def test_a_state_in_sqlite_is_refused(spawn: Spawn, command: list[str]) -> None:
    done = spawn.process(*command)
    assert done.returncode == 2
    assert "A state in SQLite has one server" in done.stderr
    assert "Use PostgreSQL" in done.stderr


def test_one_of_several_models_is_served_alone(
    start: Callable[..., InThread], spawn: Spawn, digits: Any, tmp_path: Path, postgresql_url: str
) -> None:
    for name in ("a", "b"):
        bundles.write(tmp_path, contents(digits.bundle, model=name))
    shared = {"database_url": postgresql_url, "bundles": str(tmp_path), "policies": str(tmp_path)}
    refused = spawn.process("serve", **shared, models="a")
    assert refused.returncode == 2
    assert "requires CANDOR_BACKGROUND=false" in refused.stderr
    worker = spawn("worker", **shared, background="false", models="a")  # its jobs are of all models
    service = spawn(**shared, background="false", models="a")
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    mistyped = start(state=state, bundles=tmp_path, policies=tmp_path, background=False, models="a,bb")
    answer = mistyped.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["problems"] == {"bb": f"no bundle in {tmp_path}"}
    served = [[model["model"] for model in each.http.get("/v1/models").json()["items"]] for each in (worker, service)]
    assert served == [["a", "b"], ["a"]]
    assert service.http.post("/v1/models/b/load").status_code == 404
