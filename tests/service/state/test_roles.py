"""docker/postgres/roles.sh makes roles that can do what they need and no more, and can be run again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

import psycopg
import pytest
from httpx import URL
from psycopg.errors import InsufficientPrivilege

SCRIPT = Path(__file__).parents[3] / "docker" / "postgres" / "roles.sh"
FOLDER_OF = {"": "database", "_replica": "replica"}


@pytest.fixture
def superuser(empty_postgresql_url: str) -> Iterator[str]:
    """A URL of a superuser with a password, whose database and roles the script may make."""
    name = f"test_{token_hex(6)}"
    with psycopg.connect(empty_postgresql_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'image'")
        yield str(URL(empty_postgresql_url).copy_with(username=name, path="/postgres"))
        connection.execute(f"DROP DATABASE IF EXISTS {name}_candor WITH (FORCE)")
        for role in (f"{name}_candor_replica", f"{name}_candor", name):
            connection.execute(f"DROP ROLE IF EXISTS {role}")


@pytest.fixture
def run(superuser: str, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Runs the script and returns the URLs of its roles by the end of their name."""
    own = f"{URL(superuser).username}_candor"
    text = re.sub(r"\bcandor(?=_replica\b|\b)", own, SCRIPT.read_text()).replace("/secrets", str(tmp_path))
    (tmp_path / "roles.sh").write_text(text)
    for folder in FOLDER_OF.values():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "password").write_text(f"{folder}'s first\n")

    def start() -> dict[str, str]:
        at = URL(superuser)
        environment = {"PATH": "/usr/bin:/bin", "POSTGRES_USER": at.username, "PGHOST": at.host, "PGPORT": str(at.port)}
        subprocess.run(["sh", tmp_path / "roles.sh"], env=environment, check=True)
        return {end: str(at.copy_with(username=own + end, path=f"/{own}")) for end in FOLDER_OF}

    return start


def stored(superuser: str) -> dict[str, str | None]:
    """Return the stored passwords of the superuser and the script's roles by name."""
    with psycopg.connect(superuser) as connection:
        query = "SELECT rolname, rolpassword FROM pg_authid WHERE starts_with(rolname, %s)"
        return dict(connection.execute(query, [URL(superuser).username]).fetchall())


def test_replicas_read_and_write_rows_of_tables_that_they_cannot_change(run: Callable[[], dict[str, str]]) -> None:
    urls = run()
    with psycopg.connect(urls[""]) as owner:
        owner.execute("CREATE TABLE rows (x integer)")
    with psycopg.connect(urls["_replica"], autocommit=True) as replica:
        replica.execute("INSERT INTO rows VALUES (1)")
        replica.execute("UPDATE rows SET x = 2")
        assert replica.execute("SELECT x FROM rows").fetchall() == [(2,)]
        replica.execute("DELETE FROM rows")
        for ddl in (b"CREATE TABLE mine ()", b"DROP TABLE rows", b"TRUNCATE rows", b"ALTER TABLE rows ADD y int"):
            with pytest.raises(InsufficientPrivilege):
                replica.execute(ddl)
    for url in urls.values():
        with psycopg.connect(url) as connection, pytest.raises(InsufficientPrivilege):
            connection.execute("CREATE ROLE another")


def test_run_again_it_renews_passwords_and_the_rights_of_a_restored_schema(
    run: Callable[[], dict[str, str]], superuser: str, tmp_path: Path
) -> None:
    urls = run()
    before = stored(superuser)
    with psycopg.connect(urls[""], autocommit=True) as owner:
        owner.execute("DROP SCHEMA public CASCADE")
        owner.execute("CREATE SCHEMA public")
        owner.execute("CREATE TABLE public.rows (x integer)")
    with psycopg.connect(urls["_replica"]) as replica, pytest.raises(InsufficientPrivilege):
        replica.execute("SELECT x FROM public.rows")
    (tmp_path / "replica" / "password").write_text("another")
    run()
    with psycopg.connect(urls["_replica"]) as replica:
        assert replica.execute("SELECT x FROM public.rows").fetchall() == []
    after = stored(superuser)
    name = URL(superuser).username
    assert before.keys() == after.keys() == {name, f"{name}_candor", f"{name}_candor_replica"}
    assert after[f"{name}_candor_replica"] != before[f"{name}_candor_replica"]
    assert before[name] is after[name] is None
