"""API keys: random, shown once, stored as SHA-256 only."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from service.errors import ConfigurationError
from service.state import audit
from service.state.database import Database, now_us
from service.state.sessions import Session, end_sessions, read_sessions
from service.state.tables import api_keys, sessions

SCOPES = ("predict", "feedback", "review", "read", "calibrate", "approve", "metrics", "admin")
LONGEST_NAME = 100
_TEXT = re.compile(r"cnd_[0-9a-f]{12}_[\w-]{40,200}", re.ASCII)
RANDOM_BYTES = 32  # like the digest, so that guessing the text is as hard as inverting the digest


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret.

    Attributes:
        prefix: Public part that identifies it.
        name: Name of its holder.
        scopes: Its scopes, of `SCOPES`.
        created_at: Microseconds since the epoch, UTC.
        expires_at: When it expires; None for never.
        revoked_at: When it was revoked; None if it was not.
        requests_per_s: Its own rate limit; None for the settings' limit.
        models: The only models that it may reach; None for all.
        source: The only source of the labels that it sends; None for any.
        rows_per_s: Its own rate limit of predicted rows; None for the settings' limit.
    """

    prefix: str
    name: str
    scopes: frozenset[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    requests_per_s: float | None = None
    models: frozenset[str] | None = None
    source: str | None = None
    rows_per_s: float | None = None

    def valid_at(self, at: int) -> bool:
        """Return whether the key is valid at a time, in microseconds since the epoch."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > at)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """A snapshot of all keys and sessions.

    Attributes:
        by_digest: All keys, also revoked and expired ones, by the SHA-256 of the secret text. The time of a look-up
            tells an attacker nothing, because nobody can steer a digest towards another.
        sessions: All sessions, by digest.
    """

    by_digest: Mapping[bytes, ApiKey]
    sessions: Mapping[bytes, Session]

    def authenticate(self, text: str) -> ApiKey | None:
        """Return the valid key with this secret text; None without one."""
        key = self.by_digest.get(_digest(text))
        return key if key is not None and key.valid_at(now_us()) else None

    def valid(self, prefix: str) -> ApiKey | None:
        """Return the valid key with this prefix; None without one."""
        return next((key for key in self.by_digest.values() if key.prefix == prefix and key.valid_at(now_us())), None)

    def session(self, digest: bytes) -> Session | None:
        """Return the open session with this digest, of a person or of a valid key; None without one."""
        found = self.sessions.get(digest)
        if found is None or not found.valid_at(now_us()):
            return None
        return found if found.groups is not None or self.valid(found.key) else None


class KeyStore:
    """API keys of the service. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        expires_at: int | None = None,
        *,
        requests_per_s: float | None = None,
        models: Iterable[str] | None = None,
        source: str | None = None,
        rows_per_s: float | None = None,
        text: str | None = None,
        by: str = "local",
    ) -> tuple[ApiKey, str]:
        """Make a key.

        Args:
            name: Name of its holder in the audit log, unique among valid keys.
            scopes: One or more of `SCOPES`.
            expires_at: When it expires, in microseconds since the epoch.
            requests_per_s: Its own rate limit, > 0; None for the settings' limit.
            models: Names of the only models that it may reach; None for all.
            source: The only source of the labels that it sends; None for any.
            rows_per_s: Its own rate limit of predicted rows, > 0; None for the settings' limit.
            text: Its secret text where another program made it; None makes one.
            by: Actor.

        Returns:
            The key, and its secret text "cnd_<prefix>_<random>", which is not stored.

        Raises:
            ConfigurationError: A scope is unknown or missing; there are no models; the only scope is metrics, which are
                of all models; the source is empty or too long; the name is empty, too long or taken; a rate is not a
                positive number; the text is not that of a key, or its prefix is taken.
        """
        wanted = frozenset(scopes)
        limited = None if models is None else frozenset(models)
        _check(name, wanted, limited, source, {"rate": requests_per_s, "rows-rate": rows_per_s}, text)
        with self._database.locked("keys"), self._database.begin() as connection:
            known = _read(connection)
            taken = next((key for key in known if key.name == name and key.valid_at(now_us())), None)
            if taken is not None:
                raise ConfigurationError(
                    f"A valid key called {name!r} already exists.",
                    where="name",
                    found=taken.prefix,
                    expected="a name that no valid key has",
                    remedy=f"Choose another name, or replace the key: candor keys rotate {taken.prefix}",
                )
            key, text = _new(name, wanted, expires_at, requests_per_s, limited, source, rows_per_s, text)
            if any(other.prefix == key.prefix for other in known):
                raise ConfigurationError(
                    f"A key with the prefix {key.prefix} already exists.",
                    where="key",
                    found=key.prefix,
                    expected="another",
                )
            _insert(connection, key, text)
            detail: dict[str, Any] = {"name": name, "scopes": sorted(wanted), "expires_at": expires_at}
            detail |= {} if limited is None else {"models": sorted(limited)}
            detail |= {} if source is None else {"source": source}
            rates = {"requests_per_s": requests_per_s, "rows_per_s": rows_per_s}
            detail |= {name: rate for name, rate in rates.items() if rate is not None}
            audit.append(connection, model=None, by=by, action="create_key", subject=key.prefix, detail=detail)
        return key, text

    def rotate(self, prefix: str, *, grace_us: int, by: str = "local") -> tuple[ApiKey, str]:
        """Replace a key by a new one with the same name, scopes, models, source, rates and lifetime.

        Args:
            prefix: Prefix of the old key.
            grace_us: Microseconds for which the old key stays valid, ≥ 0.
            by: Actor.

        Returns:
            The new key and its secret text.

        Raises:
            ConfigurationError: No valid key has this prefix.
        """
        with self._database.locked("keys"), self._database.begin() as connection:
            now = now_us()
            old = next((key for key in _read(connection) if key.prefix == prefix and key.valid_at(now)), None)
            if old is None:
                raise ConfigurationError(
                    f"No valid key has the prefix {prefix!r}.",
                    where="prefix",
                    found=prefix,
                    expected="the prefix of a key that has not expired and is not revoked",
                    remedy="List the keys with `candor keys list`.",
                )
            lifetime = None if old.expires_at is None else old.expires_at - old.created_at
            until = None if lifetime is None else now + lifetime
            key, text = _new(old.name, old.scopes, until, old.requests_per_s, old.models, old.source, old.rows_per_s)
            _insert(connection, key, text)
            until = now + grace_us if old.expires_at is None else min(now + grace_us, old.expires_at)
            connection.execute(update(api_keys).where(api_keys.c.prefix == prefix).values(expires_at=until))
            detail = {"name": old.name, "replaced": prefix, "replaced_until": until, "expires_at": key.expires_at}
            audit.append(connection, model=None, by=by, action="rotate_key", subject=key.prefix, detail=detail)
        return key, text

    def ring(self) -> KeyRing:
        """Return a snapshot of all keys and sessions, for look-ups without the database."""
        with self._database.connect() as connection:
            keys = {row.digest: _key(row) for row in connection.execute(select(api_keys))}
            return KeyRing(keys, {session.digest: session for session in read_sessions(connection)})

    def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, also revoked and expired ones, oldest first."""
        with self._database.connect() as connection:
            return _read(connection)

    def revoke(self, prefix: str, *, by: str = "local") -> bool:
        """Revoke a key, or end the sessions of a person with this id; return False if there was nothing to end."""
        with self._database.begin() as connection:
            of_person = [
                one.digest for one in read_sessions(connection) if one.key == prefix and one.groups is not None
            ]
            if end_sessions(connection, of_person):
                audit.append(connection, model=None, by=by, action="end_sessions", subject=prefix)
                return True
            living = (api_keys.c.prefix == prefix) & api_keys.c.revoked_at.is_(None)
            revoked = connection.execute(update(api_keys).where(living).values(revoked_at=now_us())).rowcount == 1
            if revoked:
                audit.append(connection, model=None, by=by, action="revoke_key", subject=prefix)
        return revoked

    def end_sessions(self, *, by: str = "local") -> int:
        """End the sessions of all keys and people; return how many there were."""
        with self._database.begin() as connection:
            ended = connection.execute(delete(sessions)).rowcount
            detail = {"sessions": ended}
            audit.append(connection, model=None, by=by, action="end_sessions", subject="all", detail=detail)
        return ended

    def find(self, text: str) -> ApiKey | None:
        """Return the key with this secret text, valid or not; None without one."""
        return self.ring().by_digest.get(_digest(text))

    def any(self) -> bool:
        """Return whether a valid key exists."""
        now = now_us()
        return any(key.valid_at(now) for key in self.list())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.prefix,
        row.name,
        frozenset(row.scopes),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.requests_per_s,
        None if row.models is None else frozenset(row.models),
        row.source,
        row.rows_per_s,
    )


def _read(connection: Connection) -> tuple[ApiKey, ...]:
    query = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.prefix)
    return tuple(_key(row) for row in connection.execute(query))


def _check(
    name: str,
    scopes: frozenset[str],
    models: frozenset[str] | None,
    source: str | None,
    rates: Mapping[str, float | None],
    text: str | None,
) -> None:
    """Refuse a new key's fields, as `KeyStore.create` describes them."""
    if not scopes or not scopes.issubset(SCOPES):
        raise ConfigurationError(
            "A key requires known scopes.", where="scopes", found=sorted(scopes), expected=list(SCOPES)
        )
    if not name.isprintable() or not 0 < len(name.strip()) <= LONGEST_NAME:
        raise ConfigurationError(
            "A key requires a name.",
            where="name",
            found=name[:LONGEST_NAME],
            expected=f"1 to {LONGEST_NAME} printable characters",
        )
    if models is not None and not all(models or [""]):
        raise ConfigurationError(
            "A key limited to models requires their names.", where="model", found=sorted(models), expected="a name"
        )
    if models is not None and scopes == {"metrics"}:
        raise ConfigurationError(
            "A key limited to models cannot read metrics: they cover all models.",
            where="model",
            found=sorted(models),
            expected="no model",
            remedy="Make the key without --model.",
        )
    if source is not None and not (source.isprintable() and 0 < len(source.strip()) <= LONGEST_NAME):
        raise ConfigurationError(
            "This is not a source of labels.",
            where="source",
            found=source[:LONGEST_NAME],
            expected=f"1 to {LONGEST_NAME} printable characters, such as reviewer",
        )
    for where, rate in rates.items():
        if rate is not None and not 0 < rate < math.inf:
            raise ConfigurationError("A key's rate must be a positive number.", where=where, found=rate, expected="> 0")
    if text is not None and not _TEXT.fullmatch(text):
        raise ConfigurationError(
            "This is not the text of an API key.",
            where="key",
            found=f"{len(text)} characters",
            expected="cnd_, 12 hexadecimal digits, _, and at least 40 random letters, digits, - or _",
        )


def _new(
    name: str,
    scopes: frozenset[str],
    expires_at: int | None,
    requests_per_s: float | None,
    models: frozenset[str] | None,
    source: str | None,
    rows_per_s: float | None,
    text: str | None = None,
) -> tuple[ApiKey, str]:
    if text is None:
        text = f"cnd_{secrets.token_hex(6)}_{secrets.token_urlsafe(RANDOM_BYTES)}"
    prefix = text.split("_")[1]
    return ApiKey(prefix, name, scopes, now_us(), expires_at, None, requests_per_s, models, source, rows_per_s), text


def _insert(connection: Connection, key: ApiKey, text: str) -> None:
    connection.execute(
        insert(api_keys).values(
            prefix=key.prefix,
            name=key.name,
            scopes=sorted(key.scopes),
            digest=_digest(text),
            created_at=key.created_at,
            expires_at=key.expires_at,
            requests_per_s=key.requests_per_s,
            models=None if key.models is None else sorted(key.models),
            source=key.source,
            rows_per_s=key.rows_per_s,
        )
    )
