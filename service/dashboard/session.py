"""Sessions of the dashboard: a random cookie, opened with an API key and limited to its scopes."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final, Literal

from starlette.requests import cookie_parser

from service.errors import RateLimitedError, StateUnavailableError, UnauthenticatedError
from service.operations.access import Access, names_loopback
from service.operations.principal import Principal
from service.rest.access import sender
from service.rest.bodies import Scope, header
from service.state.database import now_us
from service.state.sessions import Session, SessionStore

SESSION_COOKIE: Final = "candor_session"
THEME_COOKIE: Final = "candor_theme"
ATTEMPTS: Final = 10
"""Maximum number of failed logins per address and minute."""

Theme = Literal["auto", "light", "dark"]
_MINUTE_S = 60.0
_MOST_ADDRESSES = 10_000
_SESSION = re.compile(r"[\w-]{43}", re.ASCII)
_POLLING = ("live", "job")  # parts of pages that reload themselves: nobody has to be there


@dataclass(frozen=True, slots=True)
class Visit:
    """The cookies of a request, read.

    Attributes:
        session: Its open session, None without one.
        token: What its forms must carry.
        theme: Which colours it wants.
        secure: Whether its cookies travel over TLS only; on this machine itself, only if it came over TLS.
    """

    session: Session | None
    token: str
    theme: Theme
    secure: bool


class Sessions:
    """Open sessions, read them back, end them. The state has them, so that every replica knows them.

    A session lasts as long as its key does, at most `LIFETIME_S`, and at most `IDLE_S` without use.

    Args:
        access: The API keys.
        store: The sessions.
        secret: The same on all replicas; for the forms of visitors without a session.
    """

    def __init__(self, access: Access, store: SessionStore, secret: bytes) -> None:
        self._access = access
        self._store = store
        self._secret = secret
        self._failures: defaultdict[str, deque[float]] = defaultdict(deque)

    async def visit(self, scope: Scope) -> Visit:
        """Read a request's cookies."""
        cookies = cookie_parser(header(scope, b"cookie") or "")
        secure = scope["scheme"] == "https" or not names_loopback(f"//{header(scope, b'host') or ''}")
        text = cookies.get(cookie_of_session(secure=secure)[0], "")
        session = await self._access.session(text) if _SESSION.fullmatch(text) else None
        theme = cookies.get(THEME_COOKIE)
        return Visit(
            session,
            token=hmac.digest(text.encode() if session else self._secret, b"form", "sha256").hex(),
            theme="light" if theme == "light" else "dark" if theme == "dark" else "auto",
            secure=secure,
        )

    async def principal(self, scope: Scope) -> Principal:
        """Return the sender of a request.

        Raises:
            UnauthenticatedError: There are keys, and the request has no session, or one whose key is gone.
            ForbiddenError: The service has no keys, and the request does not come from this machine.
        """
        if not self._access.guarded:
            return await sender(self._access, scope)
        visit: Visit = scope["visit"]
        principal = None if visit.session is None else self._access.holder(visit.session.key)
        if principal is None:
            raise UnauthenticatedError(
                "Log in with an API key to see this.",
                found="no session",
                expected="a session",
                remedy="Log in at /dashboard/login.",
            )
        if visit.session is not None and not visit.session.noted_at(now_us()) and not _polls(scope):
            with contextlib.suppress(StateUnavailableError):
                await asyncio.to_thread(self._store.use, visit.session)
        return principal

    async def open(self, scope: Scope, text: str) -> str:
        """Check an API key and return its new session.

        Raises:
            RateLimitedError: Too many keys from this address were wrong.
            UnauthenticatedError: The key is not valid.
            StateUnavailableError: The database does not answer.
        """
        address = _address(scope)
        now = time.monotonic()
        failures = self._failures[address]
        while failures and failures[0] < now - _MINUTE_S:
            failures.popleft()
        if len(failures) >= ATTEMPTS:
            raise RateLimitedError(
                "Too many keys were wrong.",
                retry_after_s=failures[0] + _MINUTE_S - now,
                found=f"{ATTEMPTS} in a minute",
                remedy="Wait a minute, then try again.",
            )
        failures.append(now)  # before anything is waited for, or all that come at once would pass
        key = await self._access.key(text)
        if key is None:
            self._forget(now)
            raise UnauthenticatedError(
                "This API key is not valid.",
                expected="a key that exists, has not expired and is not revoked",
                remedy="List the keys with `candor keys list`.",
            )
        failures.remove(now)
        text = await asyncio.to_thread(self._store.open, key.prefix, key.name, address)
        await self.end(scope)  # the session that this browser had
        return text

    async def end(self, scope: Scope) -> None:
        """End the session of a request, if it has one.

        Raises:
            StateUnavailableError: The database does not answer; the session goes on.
        """
        visit: Visit = scope["visit"]
        if visit.session is not None:
            holder = self._access.name(visit.session.key)
            await asyncio.to_thread(self._store.end, visit.session, holder, _address(scope))
        await self._access.read()

    def _forget(self, now: float) -> None:
        """Drop addresses whose failures are old, where there are many."""
        if len(self._failures) > _MOST_ADDRESSES:
            for address in [
                key for key, failed in self._failures.items() if not failed or failed[-1] < now - _MINUTE_S
            ]:
                del self._failures[address]


def cookie_of_session(*, secure: bool) -> tuple[str, str]:
    """Return the name and path of the cookie; over TLS, a name that browsers take from this host alone."""
    return (f"__Host-{SESSION_COOKIE}", "/") if secure else (SESSION_COOKIE, "/dashboard")


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("a Unix socket",))[0])


def _polls(scope: Scope) -> bool:
    return header(scope, b"hx-trigger") in _POLLING
