"""Sessions of the dashboard: a random cookie, opened with an API key or by a person, limited to their scopes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, unquote

from starlette.requests import cookie_parser

from service.errors import (
    CandorError,
    RateLimitedError,
    StateUnavailableError,
    UnauthenticatedError,
    UnavailableError,
)
from service.operations.access import Access, names_loopback
from service.operations.principal import Principal
from service.rest.access import sender
from service.rest.bodies import Scope, header
from service.settings import CALLBACK
from service.state.database import now_us
from service.state.sessions import CLOCKS_DIFFER_S, LOGIN_S, Arrival, Session, SessionStore

if TYPE_CHECKING:
    from service.operations.people import People

SESSION_COOKIE: Final = "candor_session"
LOGIN_COOKIE: Final = "candor_login"
THEME_COOKIE: Final = "candor_theme"
ATTEMPTS: Final = 10
"""Maximum number of failed logins of an address per minute: by a key of one prefix, by other texts, by a provider."""
LONGEST_PATH: Final = 2000
"""Maximum length of a page's quoted address in the cookie of a login."""

Theme = Literal["auto", "light", "dark"]
_MINUTE_S = 60.0
_MOST_COUNTED = 10_000
_LOGIN = re.compile(rf"(?P<at>[0-9]{{1,12}})\.[\w-]{{43}}\.(?P<to>[\w%.~-]{{1,{LONGEST_PATH}}})", re.ASCII)
_SESSION = re.compile(r"[\w-]{43}", re.ASCII)
_POLLING = ("live", "job")  # parts of pages that reload themselves, also when nobody looks


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

    A session lasts as long as its key does, if it has one, at most `LIFETIME_S`, and at most `IDLE_S` without use.

    Args:
        access: The API keys.
        store: The sessions.
        secret: The same on all replicas; for the forms of visitors without a session.
    """

    def __init__(self, access: Access, store: SessionStore, secret: bytes) -> None:
        self._access = access
        self._store = store
        self._secret = secret
        self._failures: dict[tuple[str, str, str], deque[float]] = {}

    async def visit(self, scope: Scope) -> Visit:
        """Read a request's cookies."""
        cookies = cookie_parser(header(scope, b"cookie") or "")
        secure = scope["scheme"] == "https" or not names_loopback(f"//{header(scope, b'host') or ''}")
        text = cookies.get(cookie_of_session(secure=secure)[0], "")
        session = await self._access.session(self._store.digest(text)) if _SESSION.fullmatch(text) else None
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
        principal = None if visit.session is None else self._access.holder(visit.session)
        if principal is None:
            raise UnauthenticatedError(
                "Log in to see this.",
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
            RateLimitedError: Too many keys of this prefix from this address were wrong.
            UnauthenticatedError: The key is not valid.
            StateUnavailableError: The database does not answer.
        """
        address = _address(scope)
        with self._counted("key", address, self._access.prefix(text)):
            key = await self._access.key(text)
            if key is None:
                raise UnauthenticatedError(
                    "This API key is not valid.",
                    expected="a key that exists, has not expired and is not revoked",
                    remedy="List the keys with `candor keys list`.",
                )
        text = await asyncio.to_thread(self._store.open, key.prefix, key.name, address)
        await self.end(scope)  # the session that this browser had
        return text

    @property
    def people(self) -> People | None:
        """People who may log in through an identity provider; None if nobody may."""
        people = self._access.people
        return people if people is not None and people.logs_in else None

    async def begin(self, to: str) -> tuple[str, str]:
        """Begin a login through the identity provider.

        Args:
            to: Page to show afterwards.

        Returns:
            The login's cookie, and the address to send the browser to.

        Raises:
            UnauthenticatedError: People cannot log in here.
            ProviderUnavailableError: The provider does not answer.
        """
        login = f"{int(time.time())}.{secrets.token_urlsafe(32)}.{quote(to, safe='')}"
        address = await self._people().provider.login(
            state=_part(login, "state"), nonce=_part(login, "nonce"), verifier=_part(login, "verifier")
        )
        return login, address

    async def arrive(self, scope: Scope, answer: Mapping[str, str]) -> tuple[str, str]:
        """Check what the identity provider has sent a browser back with.

        Args:
            scope: The request's scope, with the cookie of the login.
            answer: Parameters of the callback.

        Returns:
            The new session, and the page to show.

        Raises:
            RateLimitedError: Too many logins from this address have failed.
            UnauthenticatedError: This browser has not begun this login, it took too long, or a check fails.
            ForbiddenError: No group of the person may do anything here.
            ProviderUnavailableError: The provider does not answer.
            OverloadedError: Too many people are logging in.
            StateUnavailableError: The database does not answer.
        """
        people, visit, address = self._people(), scope["visit"], _address(scope)
        login = cookie_parser(header(scope, b"cookie") or "").get(cookie_of_login(secure=visit.secure)[0], "")
        found = _LOGIN.fullmatch(login)
        # Uncounted until the answer is one to a login of this browser: pages of other sites can make it come here too.
        if found is None or not -CLOCKS_DIFFER_S <= time.time() - int(found["at"]) <= LOGIN_S + CLOCKS_DIFFER_S:
            raise _begin_again("no login that was begun here less than 10 minutes ago")
        if not hmac.compare_digest(answer.get("state", "").encode(), _part(login, "state").encode()):
            raise _begin_again("the answer to another login")
        if answer.get("iss", people.provider.issuer) != people.provider.issuer:
            raise _begin_again("the answer of another provider")
        if "code" not in answer:
            raise _begin_again(f"the provider's answer {answer.get('error', '')[:100]!r}")
        with self._counted("provider", address):
            nonce, verifier = _part(login, "nonce"), _part(login, "verifier")
            person = await people.arrive(answer["code"], verifier=verifier, nonce=nonce)
            arrival = Arrival(
                hashlib.sha256(login.encode()).digest(), people.provider.issuer, person.subject, person.groups
            )
            text = await asyncio.to_thread(self._store.open, person.prefix, person.name, address, arrival)
        await self.end(scope)  # the session that this browser had
        return text, unquote(found["to"])

    def _people(self) -> People:
        if self.people is None:
            raise UnauthenticatedError(
                "This service has no login through an identity provider.",
                expected="CANDOR_OIDC_CLIENT_ID",
                remedy="Log in with an API key.",
            )
        return self.people

    @contextlib.contextmanager
    def _counted(self, way: Literal["key", "provider"], address: str, prefix: str = "") -> Iterator[None]:
        """Count a login that fails, and refuse one more when there are too many."""
        now = time.monotonic()
        who = (way, address, prefix)
        failures = self._failures.pop(who, deque())
        self._failures[who] = failures  # the latest is the last
        if len(self._failures) > _MOST_COUNTED:
            del self._failures[next(iter(self._failures))]
        while failures and failures[0] < now - _MINUTE_S:
            failures.popleft()
        if len(failures) >= ATTEMPTS:
            raise RateLimitedError(
                "Too many logins have failed.",
                retry_after_s=failures[0] + _MINUTE_S - now,
                found=f"{ATTEMPTS} in a minute",
                remedy="Wait a minute, then try again.",
            )
        failures.append(now)  # before anything is waited for, or all that come at once would pass
        try:
            yield
        except CandorError as error:
            if isinstance(error, UnavailableError):
                failures.remove(now)
            raise
        failures.remove(now)

    async def end(self, scope: Scope) -> None:
        """End the session of a request, if it has one.

        Raises:
            StateUnavailableError: The database does not answer; the session goes on.
        """
        visit: Visit = scope["visit"]
        if visit.session is not None:
            holder = self._access.name(visit.session)
            await asyncio.to_thread(self._store.end, visit.session, holder, _address(scope))
        await self._access.read()


def cookie_of_session(*, secure: bool) -> tuple[str, str]:
    """Return the name and path of the cookie; over TLS, a name that browsers take from this host alone."""
    return (f"__Host-{SESSION_COOKIE}", "/") if secure else (SESSION_COOKIE, "/dashboard")


def cookie_of_login(*, secure: bool) -> tuple[str, str]:
    """Return the name and path of the cookie of a login through an identity provider, likewise."""
    return (f"__Host-{LOGIN_COOKIE}", "/") if secure else (LOGIN_COOKIE, CALLBACK)


def _part(login: str, name: str) -> str:
    """Return a secret of a login, which only its browser can derive."""
    return hmac.digest(login.encode(), name.encode(), "sha256").hex()


def _begin_again(found: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        "This login did not succeed.",
        found=found,
        expected="the answer of the identity provider to a login of this browser",
        remedy="Log in again.",
    )


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("a Unix socket",))[0])


def _polls(scope: Scope) -> bool:
    return header(scope, b"hx-trigger") in _POLLING
