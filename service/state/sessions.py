"""Sessions of the dashboard: random, stored as SHA-256 only, so that a copy of the state opens nothing."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from service.state import audit
from service.state.database import Database, now_us
from service.state.notices import announce
from service.state.tables import sessions

LIFETIME_S: Final = 12 * 3600
IDLE_S: Final = 3600
"""Seconds without use after which a session ends."""
MOST_OF_A_KEY: Final = 100
"""Maximum number of sessions of a key; the oldest end."""
_NOTED_US: Final = 60 * 1_000_000  # a use that soon after the last is not written down
_CLOCKS_DIFFER_US: Final = 5 * 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    Attributes:
        digest: SHA-256 of its text.
        key: Prefix of the API key that opened it.
        opened_at: Microseconds since the epoch, UTC.
        used_at: When it was used last, at most a minute late.
    """

    digest: bytes
    key: str
    opened_at: int
    used_at: int

    def valid_at(self, at: int) -> bool:
        """Return whether the session is open at a time, in microseconds since the epoch."""
        until = min(self.opened_at + LIFETIME_S * 1_000_000, self.used_at + IDLE_S * 1_000_000)
        return self.opened_at - _CLOCKS_DIFFER_US <= at < until

    def noted_at(self, at: int) -> bool:
        """Return whether a use at a time needs not be written down."""
        return at < self.used_at + _NOTED_US


class SessionStore:
    """Sessions of the service. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, key: str, by: str, address: str) -> str:
        """Open a session of the key with this prefix; return its text, which is not stored.

        Args:
            key: Prefix of the key.
            by: Name of its holder, for the audit log.
            address: Address of the browser, for the audit log.
        """
        text, now = secrets.token_urlsafe(32), now_us()
        with self._database.begin() as connection:
            over = [one for one in read_sessions(connection) if not one.valid_at(now)]
            own = sorted((one for one in read_sessions(connection) if one.key == key), key=lambda one: one.used_at)
            _end(connection, [one.digest for one in (*over, *own[: -MOST_OF_A_KEY + 1])])
            connection.execute(insert(sessions).values(digest=digest_of(text), key=key, opened_at=now, used_at=now))
            audit.append(connection, model=None, by=by, action="log_in", subject=key, detail={"address": address})
        return text

    def use(self, session: Session) -> None:
        """Write down that a session is used now."""
        with self._database.begin() as connection:
            connection.execute(update(sessions).where(sessions.c.digest == session.digest).values(used_at=now_us()))

    def end(self, session: Session, by: str, address: str) -> None:
        """End a session, everywhere. See `open`."""
        with self._database.begin() as connection:
            if _end(connection, [session.digest]):
                detail = {"address": address}
                audit.append(connection, model=None, by=by, action="log_out", subject=session.key, detail=detail)
            announce(connection)


def read_sessions(connection: Connection) -> list[Session]:
    """Return all sessions, also those that are over."""
    return [Session(*row) for row in connection.execute(select(sessions))]


def digest_of(text: str) -> bytes:
    """Return the digest by which a session is stored."""
    return hashlib.sha256(text.encode()).digest()


def _end(connection: Connection, digests: list[bytes]) -> int:
    """End sessions; return how many there were."""
    return sum(connection.execute(delete(sessions).where(sessions.c.digest == digest)).rowcount for digest in digests)
