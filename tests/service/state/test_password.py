"""The database's password from a file: what is in the file is the password, and nothing else becomes one."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from service.errors import ConfigurationError
from service.settings import Settings
from service.state.database import Database
from service.state.password import with_password

URL = "postgresql://candor@db:5432/candor"


@given(password=st.text(st.sampled_from(string.printable.replace("\n", "").replace("\r", "") + "éß✓"), min_size=1))
def test_every_password_arrives(password: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("secret") / "password"
    for ending in ("", "\n", "\r\n"):
        file.write_bytes((password + ending).encode())
        url = make_url(with_password(URL, file))
        assert url.password == password
        assert url.set(password="") == make_url(URL).set(password="")


def test_the_file_wins_over_the_url(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("right")
    settings = Settings(
        database_url="postgresql://candor:wrong@db/candor", database_password_file=tmp_path / "password"
    )
    assert make_url(settings.state_url).password == "right"
    assert "right" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "content", "complaint"),
    [
        (URL, None, "cannot be read"),
        (URL, b"", "one line"),
        (URL, b"\n", "one line"),
        (URL, b"first\nsecond\n", "one line"),
        (URL, b"a\0b", "one line"),
        (URL, b"\xff\xfe", "UTF-8"),
        ("sqlite:///state.db", b"secret", "Only PostgreSQL"),
        ("nonsense", b"secret", "Only PostgreSQL"),
    ],
)
def test_what_is_no_password_is_refused(url: str, content: bytes | None, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        with_password(url, file)
    assert caught.value.where == "CANDOR_DATABASE_PASSWORD_FILE"
    assert "secret" not in str(caught.value)


def test_without_a_file_the_url_stays(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/state.db")
    assert settings.state_url == settings.database_url
    Database.open(settings.state_url).close()
