"""Who may do what: API keys from the Authorization header, scopes, and the rule for a service without keys."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from dataclasses import dataclass

from service.errors import ConfigurationError, ForbiddenError, UnauthenticatedError
from service.state.keys import KeyStore

LOCAL = "local"
_CACHE_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request.

    Attributes:
        name: Goes into the audit log.
        scopes: What it may do; "admin" implies all.
    """

    name: str
    scopes: frozenset[str]

    def require(self, scope: str) -> None:
        """Raise ForbiddenError unless this principal has `scope`."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise ForbiddenError(
                f"The API key {self.name!r} may not do this.",
                found=sorted(self.scopes),
                expected=scope,
                remedy=f"Use a key with the scope {scope!r}: candor keys create --scope {scope}",
            )


class Access:
    """Checks API keys, remembering each answer for one poll interval so that the hot path asks no database.

    Args:
        keys: Where the keys are.
        remember_s: How long an answer is remembered; a revoked key stops working within it.
    """

    def __init__(self, keys: KeyStore, *, remember_s: float) -> None:
        self._keys = keys
        self._remember_s = remember_s
        self._remembered: dict[str, tuple[float, Principal | None]] = {}
        self._open: tuple[float, bool] = (float("-inf"), False)

    async def principal(self, authorization: str | None) -> Principal:
        """Return who sends this Authorization header; only what is not remembered leaves the event loop.

        As long as nobody has ever made a key (the service then listens on loopback only), everybody is the local
        administrator. Revoking the last key opens nothing.

        Raises:
            UnauthenticatedError: A key is needed and none, or no valid one, came.
        """
        if await self._without_keys():
            return Principal(LOCAL, frozenset({"admin"}))
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise UnauthenticatedError(
                "This service needs an API key.",
                found="no bearer token",
                expected="Authorization: Bearer cnd_…",
                remedy="Make a key with `candor keys create` and send it, or set CANDOR_API_KEY for the command line.",
            )
        principal = await self._look_up(token.strip())
        if principal is None:
            raise UnauthenticatedError(
                "The API key is not valid.",
                expected="a key that exists, has not expired and is not revoked",
                remedy="List the keys with `candor keys list`.",
            )
        return principal

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

    async def _without_keys(self) -> bool:
        checked_at, without = self._open
        now = time.monotonic()
        if now - checked_at > self._remember_s:
            without = not await asyncio.to_thread(self._keys.list)
            self._open = (now, without)
        return without

    async def _look_up(self, token: str) -> Principal | None:
        now = time.monotonic()
        remembered = self._remembered.get(token)
        if remembered is not None and now - remembered[0] <= self._remember_s:
            return remembered[1]
        key = await asyncio.to_thread(self._keys.authenticate, token)
        principal = None if key is None else Principal(key.name, frozenset(key.scopes))
        if len(self._remembered) >= _CACHE_SIZE:  # a stream of wrong keys must not grow it
            self._remembered.clear()
        self._remembered[token] = (now, principal)
        return principal


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
