"""API keys: only their digest is kept."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.errors import ConfigurationError
from service.operations.principal import Principal
from service.state import audit
from service.state.database import Database, now_us
from service.state.keys import LONGEST_NAME, SCOPES, ApiKey, KeyStore
from service.state.tables import api_keys


def test_a_key_is_known_by_its_text_alone(database: Database) -> None:
    store = KeyStore(database)
    key, text = store.create("till-4", ["predict", "feedback"])
    other, other_text = store.create("ops", ["admin"])
    assert text.startswith(f"cnd_{key.prefix}_")
    assert store.ring().authenticate(text) == key
    assert store.ring().authenticate(other_text) == other
    assert {found.name for found in store.list()} == {"till-4", "ops"}


def test_a_key_made_elsewhere_is_added_once(database: Database) -> None:
    store = KeyStore(database)
    text = f"cnd_0123456789ab_{'-made_elsewhere-' * 3}"
    assert store.find(text) is None
    key, same = store.create("from-a-secret", ["predict"], text=text)
    assert (key.prefix, same) == ("0123456789ab", text)
    assert store.ring().authenticate(text) == key
    store.revoke(key.prefix)
    found = store.find(text)
    assert found is not None
    assert (found.prefix, found.valid_at(now_us())) == (key.prefix, False)
    with pytest.raises(ConfigurationError, match="prefix 0123456789ab already exists"):
        store.create("another", ["predict"], text=f"cnd_0123456789ab_{'x' * 43}")
    for strange in ("", "secret", text[:50], text + " ", text.replace("cnd", "key"), text.replace("-", "é")):
        with pytest.raises(ConfigurationError, match="not the text of an API key") as refused:
            store.create("another", ["predict"], text=strange)
        assert strange == "" or strange not in str(refused.value.found)


def test_any_other_text_is_not(database: Database) -> None:
    store = KeyStore(database)
    _, text = store.create("till-4", ["predict"])
    strange = ("", "cnd_", "cnd__", "cnd_x_", "cnd_\x00_x", "cnd_\ud800_x", "cnd_%_y", "Bearer x", "é" * 99)
    for other in (text[:-1], text + "x", text.upper(), *strange):
        assert store.ring().authenticate(other) is None


def test_the_text_is_stored_nowhere(database: Database) -> None:
    _, text = KeyStore(database).create("till-4", ["predict"])
    random = text.split("_", 2)[2].encode()
    with database.connect() as connection:
        row = connection.execute(select(api_keys)).one()
    assert all(random not in str(value).encode() for value in row)
    assert random not in str(audit.read(database)).encode()


def test_revoked_and_expired_keys_are_refused(database: Database) -> None:
    store = KeyStore(database)
    assert not store.any()
    key, text = store.create("till-4", ["predict"])
    _, old_text = store.create("old", ["predict"], expires_at=now_us() - 1)
    assert store.ring().authenticate(old_text) is None
    assert store.any()
    assert store.revoke(key.prefix)
    assert not store.revoke(key.prefix)
    assert not store.revoke("unknown")
    assert store.ring().authenticate(text) is None
    assert not store.any()
    actions = [entry.action for entry in audit.read(database)]
    assert actions == ["revoke_key", "create_key", "create_key"]


def test_admin_may_do_everything_and_others_what_they_are_for(database: Database) -> None:
    store = KeyStore(database)
    admin, till = (
        Principal(key.name, key.scopes, key.prefix)
        for key, _ in (store.create("ops", ["admin"]), store.create("till", ["predict"]))
    )
    assert all(admin.allows(scope) for scope in SCOPES)
    assert [scope for scope in SCOPES if till.allows(scope)] == ["predict"]


def test_a_limit_that_limits_nothing_is_refused(database: Database) -> None:
    store = KeyStore(database)
    for models, source, where in (
        ([], None, "model"),
        ([""], None, "model"),
        (None, " ", "source"),
        (None, "a\nb", "source"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            store.create("till", ["feedback"], models=models, source=source)
        assert caught.value.where == where
    assert not store.any()


def test_unknown_scopes_are_refused(database: Database) -> None:
    store = KeyStore(database)
    for scopes in ([], ["root"], ["predict", "everything"]):
        with pytest.raises(ConfigurationError) as caught:
            store.create("till", scopes)
        assert caught.value.expected == list(SCOPES)
    assert not store.any()


def test_two_valid_keys_never_share_a_name(database: Database) -> None:
    store = KeyStore(database)
    first, _ = store.create("till", ["predict"])
    with pytest.raises(ConfigurationError) as caught:
        store.create("till", ["admin"])
    assert (caught.value.found, caught.value.remedy is not None) == (first.prefix, True)
    store.revoke(first.prefix)
    store.create("till", ["predict"], expires_at=now_us() - 1)
    store.create("till", ["predict"])


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x00", "x" * (LONGEST_NAME + 1)])
def test_a_name_must_say_something(database: Database, name: str) -> None:
    with pytest.raises(ConfigurationError):
        KeyStore(database).create(name, ["predict"])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_a_positive_number(database: Database, rate: float) -> None:
    for name in ("requests_per_s", "rows_per_s"):
        with pytest.raises(ConfigurationError):
            KeyStore(database).create("till", ["predict"], **{name: rate})  # type: ignore[arg-type]


def test_a_rotated_key_goes_on_for_its_grace_and_no_longer(database: Database) -> None:
    store = KeyStore(database)
    hour = 3_600_000_000
    limits = {"requests_per_s": 3.0, "rows_per_s": 50.0, "models": ["pets"], "source": "till"}
    old, old_text = store.create("till", ["predict", "feedback"], now_us() + 10 * hour, **limits)  # type: ignore[arg-type]
    new, text = store.rotate(old.prefix, grace_us=hour)
    assert text != old_text
    assert (new.name, new.scopes, new.requests_per_s, new.rows_per_s) == (old.name, old.scopes, 3.0, 50.0)
    assert (new.models, new.source) == (frozenset({"pets"}), "till")
    assert lifetime(new) == lifetime(old)
    ring = store.ring()
    assert ring.authenticate(text) == new
    replaced = ring.authenticate(old_text)
    assert replaced is not None
    assert 0 < (replaced.expires_at or 0) - now_us() <= hour
    store.rotate(new.prefix, grace_us=0)
    assert store.ring().authenticate(text) is None
    with pytest.raises(ConfigurationError):
        store.rotate(new.prefix, grace_us=hour)
    with pytest.raises(ConfigurationError):
        store.rotate("unknown", grace_us=hour)
    assert [entry.action for entry in audit.read(database)] == ["rotate_key", "rotate_key", "create_key"]


def test_a_grace_never_lengthens_a_life(database: Database) -> None:
    store = KeyStore(database)
    soon = now_us() + 60_000_000
    old, _ = store.create("till", ["predict"], soon)
    store.rotate(old.prefix, grace_us=3_600_000_000)
    assert next(key for key in store.list() if key.prefix == old.prefix).expires_at == soon


def lifetime(key: ApiKey) -> int:
    assert key.expires_at is not None
    return round((key.expires_at - key.created_at) / 1e6)
