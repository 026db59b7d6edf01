"""Sessions of the dashboard: a signed cookie, opened with an API key and limited to its scopes."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final, Literal

from starlette.requests import cookie_parser

from service.errors import ForbiddenError, RateLimitedError, UnauthenticatedError
from service.operations.access import Access, names_loopback
from service.operations.principal import Principal
from service.rest.access import sender
from service.rest.bodies import Scope, header

SESSION_COOKIE: Final = "candor_session"
THEME_COOKIE: Final = "candor_theme"
LIFETIME_S: Final = 12 * 3600
ATTEMPTS: Final = 10
"""Maximum number of failed logins per address and minute."""

Theme = Literal["auto", "light", "dark"]
_MINUTE_S = 60.0
_MOST_ADDRESSES = 10_000
_SESSION = re.compile(r"(?P<prefix>[0-9a-f]{1,64})\.(?P<until>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Visit:
    """The cookies of a request, read.

    Attributes:
        prefix: Of the API key whose session it is; None without a session that is valid.
        token: What its forms must carry.
        theme: Which colours it wants.
        secure: Whether its cookies travel over TLS only; not on this machine itself.
    """

    prefix: str | None
    token: str
    theme: Theme
    secure: bool


class Sessions:
    """Open sessions and read them back. They are signed, not stored, so that every replica can read them.

    A session lasts as long as its key does, and at most `LIFETIME_S`.

    Args:
        access: The API keys.
        secret: Random, and the same on all replicas.
    """

    def __init__(self, access: Access, secret: bytes) -> None:
        self._access = access
        self._secret = hmac.digest(secret, b"dashboard sessions", "sha256")
        self._failures: defaultdict[str, deque[float]] = defaultdict(deque)

    def visit(self, scope: Scope) -> Visit:
        """Read a request's cookies."""
        cookies = cookie_parser(header(scope, b"cookie") or "")
        session = cookies.get(SESSION_COOKIE, "")
        prefix = self._prefix(session)
        theme = cookies.get(THEME_COOKIE)
        return Visit(
            prefix,
            token=self._sign("form", session if prefix else ""),
            theme="light" if theme == "light" else "dark" if theme == "dark" else "auto",
            secure=not names_loopback(f"//{header(scope, b'host') or ''}"),
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
        principal = None if visit.prefix is None else self._access.holder(visit.prefix)
        if principal is None:
            raise UnauthenticatedError(
                "Log in with an API key to see this.",
                found="no session" if visit.prefix is None else "a session whose key is gone",
                expected="a session",
                remedy="Log in at /dashboard/login.",
            )
        return principal

    async def open(self, scope: Scope, text: str) -> str:
        """Check an API key and return its new session.

        Raises:
            RateLimitedError: Too many keys from this address were wrong.
            UnauthenticatedError: The key is not valid.
        """
        address = (scope.get("client") or ("",))[0]
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
        until = int(time.time()) + LIFETIME_S
        return f"{key.prefix}.{until}.{self._sign('session', f'{key.prefix}.{until}')}"

    def check_form(self, scope: Scope, token: str) -> None:
        """Refuse forms that another site made a browser send.

        Raises:
            ForbiddenError: The request does not come from a page of this dashboard.
        """
        site = header(scope, b"sec-fetch-site")
        if site is not None:
            own = site == "same-origin"
        else:  # older browsers, and plain HTTP beyond this machine
            own = (header(scope, b"origin") or "").partition("://")[2] == header(scope, b"host")
        visit: Visit = scope["visit"]
        if not own or not hmac.compare_digest(token.encode(), visit.token.encode()):
            raise ForbiddenError(
                "This form does not come from a page of this dashboard, or from one of an earlier session.",
                found=site or header(scope, b"origin") or "no origin",
                expected="a form of this dashboard, with its token",
                remedy="Open the page again and repeat it there.",
            )

    def _prefix(self, session: str) -> str | None:
        match = _SESSION.fullmatch(session)
        if match is None or int(match["until"]) <= time.time():
            return None
        expected = self._sign("session", f"{match['prefix']}.{match['until']}")
        return match["prefix"] if hmac.compare_digest(match["mac"], expected) else None

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def _forget(self, now: float) -> None:
        """Drop addresses whose failures are old, where there are many."""
        if len(self._failures) > _MOST_ADDRESSES:
            for address in [
                key for key, failed in self._failures.items() if not failed or failed[-1] < now - _MINUTE_S
            ]:
                del self._failures[address]
