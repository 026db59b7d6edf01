"""Sessions of the dashboard: random, stored as digests only, so that a copy of the state opens nothing."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from service.errors import UnauthenticatedError
from service.state import audit
from service.state.database import Database, now_us
from service.state.notices import announce
from service.state.quotas import Quota
from service.state.tables import sessions, used_logins

LIFETIME_S: Final = 12 * 3600
IDLE_S: Final = 3600
"""Seconds without use after which a session ends."""
MOST_OF_A_KEY: Final = 100
"""Maximum number of sessions of a key; the oldest end."""
LOGIN_S: Final = 600
"""Maximum time in seconds that a login through an identity provider takes."""
CLOCKS_DIFFER_S: Final = 300
"""Maximum difference in seconds between the clocks of replicas."""
_NOTED_US: Final = 60 * 1_000_000  # a use that soon after the last is not written down


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    Attributes:
        digest: Digest of its text, see `SessionStore.digest`.
        key: Prefix of the API key that opened it, or the id of a person.
        opened_at: Microseconds since the epoch, UTC.
        used_at: When it was used last, at most a minute late.
        name: Name of the person; None for a key.
        groups: Groups of the person; None for a key.
        issuer: The provider that knows the person; None for a key.
    """

    digest: bytes
    key: str
    opened_at: int
    used_at: int
    name: str | None = None
    groups: tuple[str, ...] | None = None
    issuer: str | None = None

    def valid_at(self, at: int) -> bool:
        """Return whether the session is open at a time, in microseconds since the epoch."""
        until = min(self.opened_at + LIFETIME_S * 1_000_000, self.used_at + IDLE_S * 1_000_000)
        return self.opened_at - CLOCKS_DIFFER_S * 1_000_000 <= at < until

    def noted_at(self, at: int) -> bool:
        """Return whether a use at a time needs not be written down."""
        return at < self.used_at + _NOTED_US


@dataclass(frozen=True, slots=True)
class Arrival:
    """A person who comes from an identity provider.

    Attributes:
        login: SHA-256 of the login, which opens one session.
        issuer: The provider.
        subject: Its own name for the person.
        groups: Groups of the person.
    """

    login: bytes
    issuer: str
    subject: str
    groups: tuple[str, ...]


class SessionStore:
    """Sessions of the service. Methods raise StateUnavailableError when the database does not answer.

    Args:
        database: The state.
        secret: Key of the digests: sessions that were opened under another one are over. Replicas have the same.
        logins: Quota to which logins count.
    """

    def __init__(self, database: Database, secret: bytes, logins: Quota) -> None:
        self._database = database
        self._secret = secret
        self._logins = logins

    def digest(self, text: str) -> bytes:
        """Return the digest by which a session is stored (HMAC-SHA-256)."""
        return hmac.digest(self._secret, text.encode(), "sha256")

    def open(self, key: str, by: str, address: str, person: Arrival | None = None) -> str:
        """Open a session; return its text, which is not stored.

        Args:
            key: Prefix of the key, or the id of a person.
            by: Name of its holder, for the audit log.
            address: Address of the browser, for the audit log.
            person: How the person has logged in; None for a key.

        Raises:
            UnauthenticatedError: The person's login has opened a session before.
            RateLimitedError: The holder's quota is used up.
        """
        text, now = secrets.token_urlsafe(32), now_us()
        detail: dict[str, Any] = {"address": address}
        more: dict[str, Any] = {}
        if person is not None:
            detail |= {"issuer": person.issuer, "subject": person.subject, "groups": list(person.groups)}
            more = {"name": by, "groups": list(person.groups), "issuer": person.issuer}
        self._logins.spend(self._database, by)
        with self._database.begin() as connection:
            if person is not None:
                _use_login(connection, person.login, now)
            over = [one for one in read_sessions(connection) if not one.valid_at(now)]
            own = sorted((one for one in read_sessions(connection) if one.key == key), key=lambda one: one.used_at)
            end_sessions(connection, [one.digest for one in (*over, *own[: -MOST_OF_A_KEY + 1])])
            values = {"digest": self.digest(text), "key": key, "opened_at": now, "used_at": now, **more}
            connection.execute(insert(sessions).values(**values))
            audit.append(connection, model=None, by=by, action="log_in", subject=key, detail=detail)
        return text

    def use(self, session: Session) -> None:
        """Write down that a session is used now."""
        with self._database.begin() as connection:
            connection.execute(update(sessions).where(sessions.c.digest == session.digest).values(used_at=now_us()))

    def end(self, session: Session, by: str, address: str) -> None:
        """End a session, everywhere. See `open`."""
        with self._database.begin() as connection:
            if end_sessions(connection, [session.digest]):
                detail = {"address": address}
                audit.append(connection, model=None, by=by, action="log_out", subject=session.key, detail=detail)
            announce(connection)


def read_sessions(connection: Connection) -> list[Session]:
    """Return all sessions, also those that are over."""
    return [
        Session(digest, key, opened_at, used_at, name, None if groups is None else tuple(groups), issuer)
        for digest, key, opened_at, used_at, name, groups, issuer in connection.execute(select(sessions))
    ]


def end_sessions(connection: Connection, digests: list[bytes]) -> int:
    """End sessions; return how many there were."""
    return sum(connection.execute(delete(sessions).where(sessions.c.digest == digest)).rowcount for digest in digests)


def _use_login(connection: Connection, login: bytes, now: int) -> None:
    connection.execute(delete(used_logins).where(used_logins.c.at < now - 2 * (LOGIN_S + CLOCKS_DIFFER_S) * 1_000_000))
    try:
        connection.execute(insert(used_logins).values(digest=login, at=now))
    except IntegrityError:
        raise UnauthenticatedError(
            "This login has opened a session before.",
            found="a login that was used",
            expected="a new login",
            remedy="Log in again.",
        ) from None
