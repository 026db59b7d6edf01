"""API keys: random, shown once, stored as SHA-256 only."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from service.errors import ConfigurationError
from service.state import audit
from service.state.database import Database, now_us
from service.state.tables import api_keys

SCOPES = ("predict", "feedback", "calibrate", "approve", "admin")
RANDOM_BYTES = 32  # as many as the digest has, so that guessing the text is no easier than inverting the digest


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key, without its secret.

    Attributes:
        prefix: Public part that names it.
        name: Who or what it was made for.
        scopes: What it may do, of `SCOPES`.
        created_at: Microseconds since the epoch, UTC.
        expires_at: From when on it is refused, None for never.
        revoked_at: When it was revoked, None if it was not.
    """

    prefix: str
    name: str
    scopes: frozenset[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys as they were when they were read.

    Attributes:
        by_digest: Each key by the sha256 of its secret text; revoked and expired ones too. Looking a digest up tells an
            attacker's clock nothing: a digest cannot be steered towards another.
    """

    by_digest: Mapping[bytes, ApiKey]

    def authenticate(self, text: str) -> ApiKey | None:
        """Return the key whose secret text this is, None when there is none or it is revoked or expired."""
        key = self.by_digest.get(_digest(text))
        if key is None or key.revoked_at is not None:
            return None
        return None if key.expires_at is not None and key.expires_at <= now_us() else key


class KeyStore:
    """API keys of the service. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, name: str, scopes: Iterable[str], expires_at: int | None = None, *, by: str = "local"
    ) -> tuple[ApiKey, str]:
        """Make a key.

        Args:
            name: Who or what it is for.
            scopes: Of `SCOPES`, at least one.
            expires_at: From when on it is refused, in microseconds since the epoch.
            by: Who makes it.

        Returns:
            The key, and its secret text "cnd_<prefix>_<random>", which is kept nowhere else.

        Raises:
            ConfigurationError: A scope is unknown, or none is given.
        """
        wanted = frozenset(scopes)
        if not wanted or not wanted.issubset(SCOPES):
            raise ConfigurationError(
                "A key needs known scopes.", where="scopes", found=sorted(wanted), expected=list(SCOPES)
            )
        prefix = secrets.token_hex(6)
        text = f"cnd_{prefix}_{secrets.token_urlsafe(RANDOM_BYTES)}"
        key = ApiKey(prefix, name, wanted, now_us(), expires_at, None)
        with self._database.begin() as connection:
            connection.execute(
                insert(api_keys).values(
                    prefix=prefix,
                    name=name,
                    scopes=sorted(wanted),
                    digest=_digest(text),
                    created_at=key.created_at,
                    expires_at=expires_at,
                )
            )
            detail = {"name": name, "scopes": sorted(wanted), "expires_at": expires_at}
            audit.append(connection, model=None, by=by, action="create_key", subject=prefix, detail=detail)
        return key, text

    def ring(self) -> KeyRing:
        """Return all keys as a value that tells them by their secret text without asking the database again."""
        with self._database.connect() as connection:
            return KeyRing({row.digest: _key(row) for row in connection.execute(select(api_keys))})

    def list(self) -> tuple[ApiKey, ...]:
        """Return every key, revoked and expired ones too, oldest first."""
        query = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.prefix)
        with self._database.connect() as connection:
            return tuple(_key(row) for row in connection.execute(query))

    def revoke(self, prefix: str, *, by: str = "local") -> bool:
        """Refuse a key from now on; returns False when there is no such key that is not revoked yet."""
        with self._database.begin() as connection:
            living = (api_keys.c.prefix == prefix) & api_keys.c.revoked_at.is_(None)
            revoked = connection.execute(update(api_keys).where(living).values(revoked_at=now_us())).rowcount == 1
            if revoked:
                audit.append(connection, model=None, by=by, action="revoke_key", subject=prefix)
        return revoked

    def any(self) -> bool:
        """Tell whether there is a key that is neither revoked nor expired."""
        now = now_us()
        return any(key.revoked_at is None and (key.expires_at is None or key.expires_at > now) for key in self.list())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(row.prefix, row.name, frozenset(row.scopes), row.created_at, row.expires_at, row.revoked_at)
