"""candor-state: what is backed up comes back, and nothing is replaced by what is no back-up."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.state.database import Database
from service.state.keys import KeyStore

SCRIPT = Path(__file__).parents[2] / "docker" / "candor-state"


def run(file: Path, verb: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "CANDOR_DATABASE_URL": f"sqlite:///{file}"}
    return subprocess.run(
        [sys.executable, SCRIPT, verb], input=given, capture_output=True, env=environment, check=False
    )


def names(file: Path) -> list[str]:
    database = Database.open(f"sqlite:///{file}", readonly=True)
    try:
        return [key.name for key in KeyStore(database).list()]
    finally:
        database.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Database]:
    """State with one key, open as a running service holds it."""
    database = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    KeyStore(database).create("first", ["admin"])
    yield database
    database.close()


def test_a_backup_beside_a_running_service_comes_back(serving: Database, tmp_path: Path) -> None:
    copy = run(tmp_path / "state.db", "backup")
    assert copy.returncode == 0, copy.stderr
    KeyStore(serving).create("second", ["predict"])
    refused = run(tmp_path / "state.db", "restore", copy.stdout)
    assert refused.returncode == 1
    assert b"The service is running. Stop it first." in refused.stderr
    serving.close()

    restored = run(tmp_path / "state.db", "restore", copy.stdout)
    assert restored.returncode == 0, restored.stderr
    assert names(tmp_path / "state.db") == ["first"]
    assert names(tmp_path / "state.db.before-restore") == ["first", "second"]
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_a_restore_makes_its_folder(serving: Database, tmp_path: Path) -> None:
    copy = run(tmp_path / "state.db", "backup").stdout
    folder = tmp_path / "on a new" / "host"
    assert run(folder / "state.db", "restore", copy).returncode == 0
    assert names(folder / "state.db") == ["first"]
    assert (folder / "state.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("given", [b"", b"no database at all" * 100], ids=["empty", "text"])
def test_what_is_no_backup_changes_nothing(serving: Database, tmp_path: Path, given: bytes) -> None:
    serving.close()
    refused = run(tmp_path / "state.db", "restore", given)
    assert refused.returncode == 1
    assert b"Nothing has changed" in refused.stderr
    assert names(tmp_path / "state.db") == ["first"]
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_backup_is_refused(serving: Database, tmp_path: Path) -> None:
    copy = bytearray(run(tmp_path / "state.db", "backup").stdout)
    copy[4096:12288] = bytes(8192)
    serving.close()
    assert run(tmp_path / "state.db", "restore", bytes(copy)).returncode == 1
    assert names(tmp_path / "state.db") == ["first"]


def test_a_restore_that_fails_leaves_no_copy_behind(serving: Database, tmp_path: Path) -> None:
    copy = run(tmp_path / "state.db", "backup").stdout
    serving.close()
    (tmp_path / "state.db.before-restore").mkdir()
    assert run(tmp_path / "state.db", "restore", copy).returncode == 1
    assert names(tmp_path / "state.db") == ["first"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("first", [0, 100], ids=["its header", "its first page"])
def test_a_restore_over_a_damaged_state(serving: Database, tmp_path: Path, first: int) -> None:
    """Where it is needed most."""
    copy = run(tmp_path / "state.db", "backup").stdout
    serving.close()
    state = tmp_path / "state.db"
    damaged = bytearray(state.read_bytes())
    damaged[first : first + 1000] = bytes(1000)
    state.write_bytes(damaged)
    (tmp_path / "state.db-wal").write_bytes(b"not read any more")
    restored = run(state, "restore", copy)
    assert restored.returncode == 0, restored.stderr
    assert names(state) == ["first"]
    assert (tmp_path / "state.db.before-restore").read_bytes() == damaged
    assert not (tmp_path / "state.db-wal").exists()


@pytest.mark.parametrize("url", [None, "", "sqlite://", "postgresql://candor:hidden@db/candor"])
def test_another_state_than_sqlite_is_refused_without_its_password(url: str | None, tmp_path: Path) -> None:
    environment = {} if url is None else {"CANDOR_DATABASE_URL": url}
    for verb in ("backup", "restore"):
        done = subprocess.run(
            [sys.executable, SCRIPT, verb], env=environment, cwd=tmp_path, input=b"", capture_output=True, check=False
        )
        said = b"CANDOR_DATABASE_URL must be sqlite:///FILE. For PostgreSQL, use pg_dump and pg_restore.\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, b"", said)
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_lock_file_is_no_obstacle(tmp_path: Path) -> None:
    """A killed server leaves its pid behind, and in a container the next one has the same pid."""
    (tmp_path / "state.db.lock").write_text(str(os.getpid()))
    database = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    with (tmp_path / "state.db.lock").open("a") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    database.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
