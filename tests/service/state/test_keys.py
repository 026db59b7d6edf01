"""API keys: only their digest is kept."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.errors import ConfigurationError
from service.state import audit
from service.state.database import Database, now_us
from service.state.keys import SCOPES, KeyStore
from service.state.tables import api_keys


def test_a_key_is_known_by_its_text_alone(database: Database) -> None:
    store = KeyStore(database)
    key, text = store.create("till-4", ["predict", "feedback"])
    other, other_text = store.create("ops", ["admin"])
    assert text.startswith(f"cnd_{key.prefix}_")
    assert store.authenticate(text) == key
    assert store.authenticate(other_text) == other
    assert {found.name for found in store.list()} == {"till-4", "ops"}


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "x", lambda t: t.upper(), lambda t: ""])
def test_any_other_text_is_not(database: Database, change: object) -> None:
    store = KeyStore(database)
    _, text = store.create("till-4", ["predict"])
    assert store.authenticate(change(text)) is None  # type: ignore[operator]


@pytest.mark.parametrize(
    "text", ["cnd_", "cnd__", "cnd_x_", "cnd_\x00_x", "cnd_\ud800_x", "cnd_%_y", "Bearer x", "é" * 99]
)
def test_strange_texts_are_no_keys(database: Database, text: str) -> None:
    assert KeyStore(database).authenticate(text) is None


def test_the_text_is_stored_nowhere(database: Database) -> None:
    _, text = KeyStore(database).create("till-4", ["predict"])
    random = text.rsplit("_", 1)[1].encode()
    with database.connect() as connection:
        row = connection.execute(select(api_keys)).one()
    assert all(random not in str(value).encode() for value in row)
    assert random not in str(audit.read(database)).encode()


def test_revoked_and_expired_keys_are_refused(database: Database) -> None:
    store = KeyStore(database)
    assert not store.any()
    key, text = store.create("till-4", ["predict"])
    _, old_text = store.create("old", ["predict"], expires_at=now_us() - 1)
    assert store.authenticate(old_text) is None
    assert store.any()
    assert store.revoke(key.prefix)
    assert not store.revoke(key.prefix)
    assert not store.revoke("unknown")
    assert store.authenticate(text) is None
    assert not store.any()
    actions = [entry.action for entry in audit.read(database)]
    assert actions == ["revoke_key", "create_key", "create_key"]


def test_admin_may_do_everything_and_others_what_they_are_for(database: Database) -> None:
    store = KeyStore(database)
    admin, _ = store.create("ops", ["admin"])
    till, _ = store.create("till", ["predict"])
    assert all(admin.allows(scope) for scope in SCOPES)
    assert [scope for scope in SCOPES if till.allows(scope)] == ["predict"]


@pytest.mark.parametrize("scopes", [[], ["root"], ["predict", "everything"]])
def test_unknown_scopes_are_refused(database: Database, scopes: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KeyStore(database).create("till", scopes)
    assert caught.value.expected == list(SCOPES)
    assert not KeyStore(database).any()
