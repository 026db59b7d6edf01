"""Who may do what: API keys from the Authorization header, scopes, and the rule for a service without keys."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from service.errors import (
    ConfigurationError,
    ForbiddenError,
    RateLimitedError,
    StateUnavailableError,
    UnauthenticatedError,
)
from service.rest.bodies import Scope, header
from service.rest.rates import Rates
from service.state.keys import ApiKey, KeyStore

LOCAL = "local"
_REREAD_AFTER_S = 0.1
# The scope that a request needs, by method and end of path, checked before its body is read. All other paths need a key
# of any scope.
_SCOPES = (
    ("POST", re.compile(r".*/(?:predict|infer)"), "predict"),
    ("POST", re.compile(r".*/feedback"), "feedback"),
    ("POST", re.compile(r".*/recalibrate"), "calibrate"),
    ("POST", re.compile(r".*/labelled-sets"), "calibrate"),
    ("DELETE", re.compile(r".*/labelled-sets/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/prior-shift"), "calibrate"),
    ("PUT", re.compile(r".*/policies/[^/]+"), "calibrate"),
    ("POST", re.compile(r".*/policies/[^/]+/simulate"), "calibrate"),
    ("POST", re.compile(r".*/(?:activate|rollback|reject)"), "approve"),
    ("GET", re.compile(r".*/audit"), "approve"),
    ("DELETE", re.compile(r"/v1/jobs/[^/]+"), "calibrate"),
    ("POST", re.compile(r"/v1/jobs/[^/]+/propose"), "calibrate"),
    ("POST", re.compile(r".*/(?:load|unload|erase)"), "admin"),
    ("GET", re.compile(r"/dashboard/.*/(?:simulate|recalibrate)"), "calibrate"),
    ("GET", re.compile(r"/dashboard/.*/(?:activate|rollback|reject)"), "approve"),
    ("POST", re.compile(r"/dashboard/jobs/[^/]+/(?:cancel|propose)"), "calibrate"),
)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request.

    Attributes:
        name: Goes into the audit log.
        scopes: What it may do; "admin" implies all.
        prefix: Public part of its key, None without one.
    """

    name: str
    scopes: frozenset[str]
    prefix: str | None = None

    def allows(self, scope: str) -> bool:
        """Tell whether this principal may do what `scope` covers."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise ForbiddenError unless this principal has `scope`."""
        if not self.allows(scope):
            raise ForbiddenError(
                f"The API key {self.name!r} may not do this.",
                found=sorted(self.scopes),
                expected=scope,
                remedy=f"Use a key with the scope {scope!r}: candor keys create --scope {scope}",
            )


LOCAL_ADMINISTRATOR = Principal(LOCAL, frozenset({"admin"}), None)


@lru_cache(maxsize=1024)
def needed_scope(method: str, path: str) -> str | None:
    """Return the scope that a request needs, None where any key will do.

    >>> needed_scope("POST", "/v1/models/digits/feedback"), needed_scope("GET", "/v1/models")
    ('feedback', None)
    """
    return next((scope for verb, pattern, scope in _SCOPES if method == verb and pattern.fullmatch(path)), None)


class Access:
    """Checks API keys against what was read of them last, so that no request waits for the database.

    Whoever owns it calls `refresh` again and again; a revoked key stops working with the first call after. While the
    database does not answer, the keys last read stay in force.

    Args:
        keys: Where the keys are.
        rates: What each of them may send.
    """

    def __init__(self, keys: KeyStore, rates: Rates) -> None:
        self._keys = keys
        self._rates = rates
        self._ring = keys.ring()
        self._read_at = time.monotonic()
        self._rereading = asyncio.Lock()

    def refresh(self) -> None:
        """Read the keys again.

        Raises:
            StateUnavailableError: The database does not answer; what was read before stays.
        """
        began = time.monotonic()
        ring = self._keys.ring()
        if began > self._read_at:  # else somebody who began later was quicker, and knows more
            self._ring, self._read_at = ring, began

    @property
    def guarded(self) -> bool:
        """Whether anybody has ever made a key, so that every request needs one."""
        return bool(self._ring.by_digest)

    async def key(self, text: str) -> ApiKey | None:
        """Return the valid key whose secret text this is, None when there is none."""
        return self._ring.authenticate(text) or await self._made_just_now(text)

    def holder(self, prefix: str) -> Principal | None:
        """Return who holds the key with this prefix, None when there is no such key that is valid.

        Raises:
            RateLimitedError: The key has sent too many requests.
        """
        key = self._ring.valid(prefix)
        if key is None:
            return None
        self._rates.spend(key)
        return Principal(key.name, key.scopes, key.prefix)

    async def principal(self, scope: Scope) -> Principal:
        """Return who sends a request.

        As long as nobody has ever made a key (the service then listens on loopback only), everybody is the local
        administrator; but not a web page that makes a person's browser send something. Revoking the last key opens
        nothing.

        Raises:
            UnauthenticatedError: A key is needed and none, or no valid one, came.
            ForbiddenError: There is no key, and the request does not come from this machine itself.
            RateLimitedError: The key has sent too many requests.
        """
        if not self.guarded:
            _check_local(scope)
            return LOCAL_ADMINISTRATOR
        kind, _, token = (header(scope, b"authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise UnauthenticatedError(
                "This service needs an API key.",
                found="no bearer token",
                expected="Authorization: Bearer cnd_…",
                remedy="Make a key with `candor keys create` and send it, or set CANDOR_API_KEY for the command line.",
            )
        key = await self.key(token.strip())
        if key is None:
            raise UnauthenticatedError(
                "The API key is not valid.",
                expected="a key that exists, has not expired and is not revoked",
                remedy="List the keys with `candor keys list`.",
            )
        self._rates.spend(key)
        return Principal(key.name, key.scopes, key.prefix)

    async def knows(self, scope: Scope) -> bool:
        """Tell whether `principal` would name who sends a request."""
        try:
            await self.principal(scope)
        except (UnauthenticatedError, ForbiddenError, RateLimitedError):
            return False
        return True

    def check_bind(self, host: str) -> None:
        """Refuse to listen beyond loopback while there is no key.

        Raises:
            ConfigurationError: Anybody on the network could do everything.
        """
        if not is_loopback(host) and not self._keys.any():
            raise ConfigurationError(
                f"Without an API key the service listens on loopback only, not on {host}.",
                where="CANDOR_HOST",
                found=host,
                expected="127.0.0.1, or a key",
                remedy="Make the first key: candor keys create --name ops --scope admin",
            )

    async def _made_just_now(self, token: str) -> ApiKey | None:
        """Look an unknown key up in the database, for all that ask at once together and at most every so often."""
        asked_at = time.monotonic()
        async with self._rereading:
            if self._read_at < asked_at:
                await asyncio.sleep(self._read_at + _REREAD_AFTER_S - asked_at)
                with contextlib.suppress(StateUnavailableError):
                    await asyncio.to_thread(self.refresh)
        return self._ring.authenticate(token)


def _check_local(scope: Scope) -> None:
    """Refuse what a web page could make a browser on this machine send.

    Raises:
        ForbiddenError: The Host or the Origin is another machine's.
    """
    for name in (b"host", b"origin"):
        value = header(scope, name)
        if value is not None and not names_loopback(value if name == b"origin" else f"//{value}"):
            raise ForbiddenError(
                "Without an API key only this machine itself is answered.",
                where=name.decode().capitalize(),
                found=value[:200],
                expected="localhost or 127.0.0.1",
                remedy="Make a key: candor keys create --name ops --scope admin",
            )


@lru_cache(maxsize=1024)
def names_loopback(address: str) -> bool:
    """Say whether an address with "//" names this machine; one that cannot be read does not.

    >>> names_loopback("http://localhost:8000"), names_loopback("//[::1]"), names_loopback("//["), names_loopback("//")
    (True, True, False, False)
    """
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Say whether `host` can be reached from this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
