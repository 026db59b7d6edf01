"""Replicas behind PgBouncer in transaction mode: every transaction may get another session, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from service.errors import StateUnavailableError
from service.state import notices, postgresql
from service.state.database import Database, now_us
from service.state.expiry import drop_before
from service.state.partitions import cover, parts_of
from service.times import DAY_US
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

from .conftest import InThread
from .test_notices import active

SESSIONS = 12


@pytest.fixture(params=["", "max_prepared_statements = 0"], ids=["as-it-comes", "nothing-prepared"])
def pooled(request: pytest.FixtureRequest, postgresql_url: str) -> Iterator[str]:
    """The URL of a database by way of a PgBouncer of the test's own."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    if request.param and tuple(map(int, version.split(".")[:2])) < (1, 21):
        pytest.skip(f"PgBouncer {version} never keeps prepared statements")
    there = urlsplit(postgresql_url)
    name, user, password = there.path.removeprefix("/"), there.username, there.password or ""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        become = []
        if os.getuid() == 0:  # which it refuses
            shutil.chown(folder, "postgres")
            become = ["runuser", "-u", "postgres", "--"]
        users, ini, log = (Path(folder, file) for file in ("users.txt", "pgbouncer.ini", "log"))
        users.write_text(f'"{user}" "{password}"\n')
        ini.write_text(f"""[databases]
{name} = host={there.hostname} port={there.port or 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
logfile = {log}
pool_mode = transaction
default_pool_size = {SESSIONS}
server_round_robin = 1
{request.param}
""")
        running = subprocess.Popen([*become, program, "--quiet", str(ini)])
        url = urlunsplit(there._replace(netloc=f"{user}@127.0.0.1:{port}"))

        def answers() -> bool:
            assert running.poll() is None, log.read_text()
            try:
                psycopg.connect(url).close()
            except psycopg.OperationalError:
                return False
            return True

        until(answers)
        yield url
        running.terminate()
        running.wait(PATIENCE_S)


@pytest.mark.usefixtures("refits_here")
def test_the_loop_runs_and_replicas_agree(
    start: Callable[..., InThread], digits: Any, pooled: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_HEARD_WITHIN_S", 0.2)
    one = start(state=pooled)
    other = start(state=pooled, database_direct_url=postgresql_url, poll_interval_s=3600.0)
    until(lambda: other.runtime.notices.arrive)
    for _ in range(8):  # statements come often enough to be prepared, on sessions that do not know them
        one.predict(digits.images[:2])
        assert one.http.post("/feedback", json={"items": [{"reference": "tx", "label": "1"}]}).status_code == 200
    one.teach(digits.dimmed, digits.labels)
    answer = one.recalibrate(mode="propose", calibrator="temperature")
    assert answer.status_code == 200, answer.text
    revision = answer.json()["revision"]
    one.activate(revision)
    assert active(one) == revision
    until(lambda: active(other) == revision)
    other.activate(other.propose_policy())
    until(lambda: active(one) == active(other) != revision)  # by polling
    assert one.runtime.notices.arrive is False
    assert one.http.get("/v1/models/digits/audit").status_code == 200


def test_locks_and_settings_are_those_of_a_transaction(pooled: str, postgresql_url: str) -> None:
    with (
        closing(Database.open(pooled)) as one,
        closing(Database.open(pooled)) as other,
        closing(Database.open(postgresql_url)) as direct,
        closing(Database.open(pooled, readonly=True)) as reader,
    ):
        _check_sessions(one, other, direct, reader)
    with psycopg.connect(postgresql_url) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        ).fetchone()
    assert left == (0,)


def test_a_drop_waits_for_readers_no_longer_than_a_lock_may_take(
    pooled: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Database.open(pooled)) as database, psycopg.connect(postgresql_url) as reader:
        old = now_us() // DAY_US - 40
        with database.begin() as connection:
            connection.exec_driver_sql("DROP TABLE predictions_before, inputs_before")
            cover(connection, [old, old + 40])
        reader.execute("SELECT count(*) FROM predictions")
        monkeypatch.setattr(postgresql, "ANSWER_TIMEOUT_S", 0.2)
        with pytest.raises(StateUnavailableError):
            drop_before(database, now_us() - 30 * DAY_US, None, lambda: False)
        reader.rollback()
        monkeypatch.undo()
        drop_before(database, now_us() - 30 * DAY_US, None, lambda: False)
        with database.connect() as connection:
            left = [part.name for part in parts_of(connection, "predictions")]
        assert len(left) == 1
        with database.begin() as connection:  # the connection goes on
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def _check_sessions(one: Database, other: Database, direct: Database, reader: Database) -> None:
    shown = "SELECT current_setting('lock_timeout'), current_setting('transaction_read_only')"
    for database, wanted in ((one, ("10s", "off")), (reader, ("10s", "on")), (direct, ("10s", "off"))):
        for _ in range(SESSIONS):  # round robin: every session in turn
            with database.connect() as connection:
                assert tuple(connection.exec_driver_sql(shown).one()) == wanted
    for _ in range(SESSIONS):
        with one.try_lock("jobs/digits") as taken, other.try_lock("jobs/digits") as refused:
            assert (taken, refused) == (True, False)
            with direct.try_lock("jobs/digits") as also_refused:
                assert not also_refused
