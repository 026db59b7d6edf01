"""Several processes on one SQLite file: its names are locked among all, and their writes take turns."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import update

from service.errors import ConfigurationError, StateUnavailableError
from service.state import database as databases
from service.state import sqlite
from service.state.database import Database, lock_server
from service.state.shared_lock import ByteLock
from service.state.tables import secrets

NAME = "jobs/digits"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def both(url: str) -> Iterator[list[Database]]:
    """Two that share the file: their locks are of open files, so they need no processes of their own."""
    lock = lock_server(url)
    opened = [Database.open(url, lock_is_held=True) for _ in range(2)]
    yield opened
    for database in opened:
        database.close()
    assert lock is not None
    lock.release()


def hold(path: Path, held: object) -> None:
    assert ByteLock(path, 7).take()
    held.set()  # type: ignore[attr-defined]
    multiprocessing.Event().wait()


def test_the_lock_is_of_all_and_a_server_beside_them_is_refused(both: list[Database], url: str) -> None:
    with pytest.raises(ConfigurationError, match="Another server"):
        Database.open(url)


def test_a_name_is_held_by_one_of_all(both: list[Database]) -> None:
    one, other = both
    with one.try_lock(NAME) as first, other.try_lock(NAME) as second, other.try_lock("jobs/other") as another:
        assert (first, second, another) == (True, False, True)
    with other.try_lock(NAME) as again:
        assert again


def test_writes_of_all_take_turns(both: list[Database]) -> None:
    def write(number: int) -> None:
        with both[number % 2].begin() as connection:
            connection.execute(update(secrets).values(name=secrets.c.name))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))


def test_a_write_that_gets_no_turn_says_so(both: list[Database], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    with both[0].begin(), pytest.raises(StateUnavailableError, match="takes too long"), both[1].begin():
        pass
    with both[1].begin():
        pass


def test_a_lock_that_fails_takes_nobodys_turn(both: list[Database], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ByteLock) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr(ByteLock, "take", fail)
        with pytest.raises(StateUnavailableError, match="cannot be locked") as refused, both[0].begin():
            pass
    assert refused.value.found == "No locks available"
    with both[0].begin():
        pass


def test_the_end_of_a_process_frees_what_it_held(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(tmp_path / "lock", held))
    process.start()
    held.wait()
    mine = ByteLock(tmp_path / "lock", 7)
    assert not mine.take()
    process.kill()
    process.join()
    assert mine.take()
    mine.close()
    assert databases.WRITING > 7
