"""Access control: API keys, and the rule for a service without keys."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from functools import lru_cache
from urllib.parse import urlsplit

from service.errors import (
    ConfigurationError,
    StateUnavailableError,
    UnauthenticatedError,
)
from service.operations.principal import LOCAL_ADMINISTRATOR, Principal
from service.operations.rates import Rates
from service.state.keys import ApiKey, KeyStore

_REREAD_AFTER_S = 0.1


class Access:
    """Check API keys against a copy in memory, so that no request waits for the database.

    The owner calls `refresh` regularly; a revoked key stops working with the next call. While the database does not
    answer, the last copy stays in force.

    Args:
        keys: Store of the keys.
        rates: Request rates of the keys.
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
            StateUnavailableError: The database does not answer; the last copy stays in force.
        """
        began = time.monotonic()
        ring = self._keys.ring()
        if began > self._read_at:  # else a call that began later has newer keys
            self._ring, self._read_at = ring, began

    @property
    def guarded(self) -> bool:
        """Whether a key was ever made, so that every request requires one."""
        return bool(self._ring.by_digest)

    async def key(self, text: str) -> ApiKey | None:
        """Return the valid key with this secret text, or None."""
        return self._ring.authenticate(text) or await self._made_just_now(text)

    def holder(self, prefix: str) -> Principal | None:
        """Return the holder of the valid key with this prefix, or None.

        Raises:
            RateLimitedError: The key has sent too many requests.
        """
        key = self._ring.valid(prefix)
        if key is None:
            return None
        self._rates.spend(key)
        return Principal(key.name, key.scopes, key.prefix)

    async def principal(self, authorization: str | None) -> Principal:
        """Return the holder of the key in an `Authorization` header or metadata.

        Until the first key is made, the service listens on loopback only and every sender is the local administrator.
        Revoking the last key does not reopen the service.

        Raises:
            UnauthenticatedError: The key is missing or not valid.
            RateLimitedError: The key has sent too many requests.
        """
        if not self.guarded:
            return LOCAL_ADMINISTRATOR
        key = await self.key(_token(authorization))
        if key is None:
            raise UnauthenticatedError(
                "The API key is not valid.",
                expected="a key that exists, has not expired and is not revoked",
                remedy="List the keys with `candor keys list`.",
            )
        self._rates.spend(key)
        return Principal(key.name, key.scopes, key.prefix)

    def at_once(self, authorization: str | None, scope: str) -> Principal | None:
        """Return the holder of the key in an `Authorization` header, None if it is not known here to have `scope`.

        Only a request whose holder is returned is counted: `principal` has the last word on all others.

        Raises:
            UnauthenticatedError: The key is missing.
            RateLimitedError: The key has sent too many requests.
        """
        if not self.guarded:
            return LOCAL_ADMINISTRATOR
        key = self._ring.authenticate(_token(authorization))
        if key is None:
            return None
        holder = Principal(key.name, key.scopes, key.prefix)
        if not holder.allows(scope):
            return None
        self._rates.spend(key)
        return holder

    def check_bind(self, host: str) -> None:
        """Refuse to listen beyond loopback without a key.

        Raises:
            ConfigurationError: The host is not loopback, and no key exists.
        """
        if not is_loopback(host) and not self._keys.any():
            raise ConfigurationError(
                f"Without an API key, the service listens on loopback only, not on {host}.",
                where="CANDOR_HOST",
                found=host,
                expected="127.0.0.1, or a key",
                remedy="Make the first key: candor keys create --name ops --scope admin",
            )

    async def _made_just_now(self, token: str) -> ApiKey | None:
        """Look an unknown key up in the database, once for all concurrent requests and at a limited rate."""
        asked_at = time.monotonic()
        async with self._rereading:
            if self._read_at < asked_at:
                await asyncio.sleep(self._read_at + _REREAD_AFTER_S - asked_at)
                with contextlib.suppress(StateUnavailableError):
                    await asyncio.to_thread(self.refresh)
        return self._ring.authenticate(token)


def _token(authorization: str | None) -> str:
    """Return the bearer token of an `Authorization` header.

    Raises:
        UnauthenticatedError: It has none.
    """
    kind, _, token = (authorization or "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(
            "The service requires an API key.",
            found="no bearer token",
            expected="Authorization: Bearer cnd_…",
            remedy="Make a key with `candor keys create` and send it, or set CANDOR_API_KEY for the command line.",
        )
    return token.strip()


@lru_cache(maxsize=1024)
def names_loopback(address: str) -> bool:
    """Return whether an address with "//" names this machine. A malformed address does not.

    >>> names_loopback("http://localhost:8000"), names_loopback("//[::1]"), names_loopback("//["), names_loopback("//")
    (True, True, False, False)
    """
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable from this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
