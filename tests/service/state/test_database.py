"""Opening the state, and what is said when that is not possible."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError

from service.errors import ConfigurationError, StateUnavailableError
from service.state.database import Database
from service.state.tables import numbers


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def test_the_secret_is_made_once_and_kept(database: Database, url: str) -> None:
    first = database.secret
    database.close()
    again = Database.open(url)
    try:
        assert again.secret == first
        assert len(first) == 32
    finally:
        again.close()


def test_two_databases_have_different_secrets(tmp_path: Path) -> None:
    opened = [Database.open(sqlite_url(tmp_path / name)) for name in ("a.db", "b.db")]
    assert opened[0].secret != opened[1].secret
    for database in opened:
        database.close()


def write(database: Database, *series: str, broken: bool = False) -> None:
    with database.begin() as connection:
        for name in series:
            connection.execute(insert(numbers).values(series=name, last=1))
        if broken:
            raise RuntimeError("half-way")


def test_a_write_transaction_is_whole_or_absent(database: Database) -> None:
    with pytest.raises(RuntimeError, match="half-way"):
        write(database, "a", broken=True)
    write(database, "b")
    with database.connect() as connection:
        assert connection.execute(select(numbers.c.series)).scalars().all() == ["b"]


def test_a_read_transaction_sees_one_state(tmp_path: Path) -> None:
    database = Database.open(sqlite_url(tmp_path / "state.db"))
    with database.connect() as reader:
        assert reader.execute(select(numbers)).all() == []
        with database.begin() as writer:
            writer.execute(insert(numbers).values(series="a", last=1))
        assert reader.execute(select(numbers)).all() == []
    database.close()


class TestLocks:
    def test_one_holder_among_threads_and_servers(self, database: Database, other: Database) -> None:
        with database.try_lock("a") as mine, other.try_lock("a") as theirs, database.try_lock("b") as different:
            assert (mine, theirs, different) == (True, False, True)
        with other.try_lock("a") as theirs:
            assert theirs

    def test_who_waits_comes_in_when_the_holder_goes(self, database: Database, other: Database) -> None:
        inside: list[int] = []

        def enter(number: int) -> None:
            with (database, other)[number % 2].locked("a"):
                inside.append(number)
                assert len(inside) == 1
                inside.pop()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(enter, range(16)))

    def test_an_error_inside_lets_it_go(self, database: Database) -> None:
        with pytest.raises(KeyError), database.locked("a"):
            raise KeyError
        with database.try_lock("a") as taken:
            assert taken

    def test_a_lost_connection_lets_it_go(self, database: Database, other: Database, url: str) -> None:
        if url.startswith("sqlite"):
            pytest.skip("SQLite has one server only")
        with database.try_lock("a") as mine:
            assert mine
            with other.begin() as connection:
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
                        "WHERE locktype = 'advisory' AND datname = current_database()"
                    )
                )
            with other.locked("a"):
                pass


def test_mistakes_are_not_taken_for_an_outage(database: Database) -> None:
    with pytest.raises(IntegrityError):
        write(database, "a", "a")


def test_readonly_reads_beside_a_server_and_changes_nothing(database: Database, url: str) -> None:
    reader = Database.open(url, readonly=True)
    try:
        assert reader.secret == database.secret
        with pytest.raises(StateUnavailableError):
            write(reader, "a")
    finally:
        reader.close()
    with database.connect() as connection:
        assert connection.execute(select(numbers)).all() == []


def test_readonly_makes_nothing(empty_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not contain a state") as caught:
        Database.open(empty_url, readonly=True)
    assert caught.value.remedy is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad", ["", "state.db", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:///a?b=c"]
)
def test_a_url_that_names_no_lasting_database_is_refused(bad: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Database.open(bad)
    assert caught.value.where == "CANDOR_DATABASE_URL"
    assert "sqlite:////" in caught.value.expected


def test_postgresql_that_does_not_answer_is_unavailable_and_keeps_its_password() -> None:
    with pytest.raises(StateUnavailableError, match="cannot be used") as caught:
        Database.open("postgresql://candor:hush@127.0.0.1:9/state")
    assert "hush" not in str(caught.value)
    assert "Start PostgreSQL" in str(caught.value.remedy)


def test_many_replicas_may_open_an_empty_postgresql_at_once(empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        pytest.skip("one server per SQLite file")
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: Database.open(empty_url), range(4)))
    assert len({database.secret for database in opened}) == 1
    for database in opened:
        database.close()


def test_a_newer_schema_is_refused(empty_url: str) -> None:
    database = Database.open(empty_url)
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(ConfigurationError, match="newer") as caught:
        Database.open(empty_url)
    assert caught.value.found == "schema 9999"
    with pytest.raises(ConfigurationError, match="newer"):
        Database.open(empty_url, readonly=True)


def test_a_postgresql_that_was_restarted_is_found_again(database: Database, url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("SQLite has no server to restart")

    def cut() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    write(database, "before")
    cut()
    write(database, "after")
    unfinished = database.begin()
    unfinished.__enter__().execute(insert(numbers).values(series="during", last=1))
    cut()
    with pytest.raises(StateUnavailableError, match="cannot be used"):
        unfinished.__exit__(None, None, None)
    with database.connect() as connection:
        assert set(connection.scalars(select(numbers.c.series))) == {"before", "after"}


class TestSqliteFile:
    def test_it_is_made_with_its_folders_and_for_its_owner_alone(self, tmp_path: Path) -> None:
        file = tmp_path / "a" / "b" / "state.db"
        database = Database.open(sqlite_url(file))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
        assert set(modes) >= {"state.db", "state.db.lock", "state.db-wal"}
        assert set(modes.values()) == {0o600}
        database.close()

    def test_every_commit_reaches_the_disk(self, tmp_path: Path) -> None:
        database = Database.open(sqlite_url(tmp_path / "state.db"))
        for transaction in (database.connect, database.begin):
            with transaction() as connection:
                pragmas = {
                    name: connection.execute(text(f"PRAGMA {name}")).scalar()
                    for name in ("journal_mode", "synchronous", "foreign_keys")
                }
            assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
        database.close()

    def test_a_second_server_is_refused_by_name_and_pid(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        database = Database.open(sqlite_url(file))
        with pytest.raises(ConfigurationError) as caught:
            Database.open(sqlite_url(file))
        assert str(file) in str(caught.value)
        assert str(os.getpid()) in str(caught.value)
        database.close()
        Database.open(sqlite_url(file)).close()

    def test_a_server_that_was_refused_has_not_ended_the_locks_of_this_one(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        database = Database.open(sqlite_url(file))
        write(database, "a")
        with pytest.raises(ConfigurationError, match="Another server"):
            Database.open(sqlite_url(file))
        look = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM numbers').fetchall()"
        subprocess.run([sys.executable, "-c", look, file], check=True)  # the last of all would delete the log
        assert file.with_name("state.db-wal").exists()
        database.close()

    def test_another_name_of_the_same_file_is_the_same_file(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "alias").symlink_to(tmp_path / "real")
        database = Database.open(sqlite_url(tmp_path / "real" / "state.db"))
        with pytest.raises(ConfigurationError, match="Another server"):
            Database.open(sqlite_url(tmp_path / "alias" / "state.db"))
        database.close()

    def test_a_file_that_is_no_database_is_left_as_it_is(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        file.write_bytes(b"meeting notes, not a database " * 100)
        before = file.read_bytes()
        with pytest.raises(ConfigurationError, match="not a database") as caught:
            Database.open(sqlite_url(file))
        assert "Restore it from a backup" in str(caught.value.remedy)
        assert file.read_bytes() == before

    def test_a_damaged_file_is_refused_at_the_next_open(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        Database.open(sqlite_url(file)).close()
        content = bytearray(file.read_bytes())
        content[100:4096] = b"\xa5" * (4096 - 100)  # the page that lists the tables
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="malformed") as caught:
            Database.open(sqlite_url(file))
        assert "Restore it from a backup" in str(caught.value.remedy)

    def test_damage_that_is_met_later_is_an_outage(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        database = Database.open(sqlite_url(file))
        with database.begin() as connection:
            rows = [{"series": f"{number:05d}", "last": number} for number in range(5_000)]
            connection.execute(insert(numbers), rows)
        database.close()
        raw = sqlite3.connect(file)
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'numbers'").fetchone()
        raw.close()
        with file.open("r+b") as stream:
            stream.seek((page - 1) * 4096)
            stream.write(b"\xa5" * 4096)
        database = Database.open(sqlite_url(file))
        with pytest.raises(StateUnavailableError, match="malformed") as caught, database.connect() as connection:
            connection.execute(select(numbers)).all()
        assert "Restore it from a backup" in str(caught.value.remedy)
        database.close()

    def test_a_folder_that_cannot_be_one_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("a file")
        with pytest.raises(ConfigurationError, match="cannot be opened for writing") as caught:
            Database.open(sqlite_url(tmp_path / "state" / "state.db"))
        assert str(tmp_path / "state") in str(caught.value.remedy)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_is_not_ours_is_named(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(ConfigurationError, match="Permission denied") as caught:
            Database.open(sqlite_url(tmp_path / "state.db"))
        assert str(tmp_path) in str(caught.value.remedy)

    def test_a_write_that_another_program_blocks_is_an_outage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.state.sqlite.BUSY_TIMEOUT_S", 0.01)
        file = tmp_path / "state.db"
        database = Database.open(sqlite_url(file))
        intruder = sqlite3.connect(file, isolation_level=None)
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateUnavailableError, match="locked"), database.begin():
            pass
        intruder.execute("ROLLBACK")
        intruder.close()
        with database.begin():
            pass
        database.close()

    def test_a_write_that_a_long_write_blocks_is_an_outage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.state.sqlite.BUSY_TIMEOUT_S", 0.01)
        database = Database.open(sqlite_url(tmp_path / "state.db"))
        with database.begin(), ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: database.begin().__enter__())
            with pytest.raises(StateUnavailableError, match="takes too long"):
                waiting.result()
        database.close()


READ_ONLY_FOLDER = """
import os, sys
from service.errors import ConfigurationError
from service.state.database import Database

os.setgid(65534)
os.setuid(65534)
try:
    Database.open(sys.argv[1])
except ConfigurationError as error:
    print(error, error.remedy)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_folder_is_refused_for_an_ordinary_user(tmp_path: Path, existing: bool) -> None:
    if existing:
        Database.open(sqlite_url(tmp_path / "state.db")).close()
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    command = [sys.executable, "-c", READ_ONLY_FOLDER, sqlite_url(tmp_path / "state.db")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Permission denied" in answer
    assert f"Grant user 65534 write access to {tmp_path}" in answer
