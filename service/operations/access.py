"""Access control: API keys, people whom a provider identifies, and the rule for a service without either."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from service.errors import (
    ConfigurationError,
    ForbiddenError,
    StateUnavailableError,
    UnauthenticatedError,
)
from service.operations.principal import LOCAL_ADMINISTRATOR, Principal
from service.operations.rates import Rates
from service.places import Place, in_header
from service.settings import is_loopback
from service.state.keys import ApiKey, KeyStore
from service.state.sessions import Session

if TYPE_CHECKING:
    from service.operations.people import People, Person

_REREAD_AFTER_S = 0.1
_FORWARDING = frozenset(("forwarded", "via", "x-real-ip"))
_LONGEST_ADDRESS = 512  # longer ones are not remembered: heads of 64 KiB would fill the memory


class Access:
    """Check API keys against a copy in memory, so that no request waits for the database.

    The owner calls `read` regularly; a revoked key stops working with the next call. While the database does not
    answer, the last copy stays in force.

    Args:
        keys: Store of the keys.
        rates: Request rates of the keys.
        insecure: Without keys, also answer requests that come from another machine or through a proxy.
        people: People whom an identity provider knows; None without one.
    """

    def __init__(self, keys: KeyStore, rates: Rates, *, insecure: bool = False, people: People | None = None) -> None:
        self.people = people
        self._insecure = insecure
        self._keys = keys
        self._rates = rates
        self._ring = keys.ring()
        self._read_at = time.monotonic()
        self._rereading = asyncio.Lock()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="keys")

    def refresh(self) -> None:
        """Read the keys again.

        Raises:
            StateUnavailableError: The database does not answer; the last copy stays in force.
        """
        began = time.monotonic()
        ring = self._keys.ring()
        if began > self._read_at:  # else a call that began later has newer keys
            self._ring, self._read_at = ring, began

    async def read(self) -> None:
        """Read the keys again, on a thread of their own: all others may wait for a revision that loads.

        Raises:
            StateUnavailableError: The database does not answer; the last copy stays in force.
        """
        await asyncio.get_running_loop().run_in_executor(self._reader, self.refresh)

    @property
    def guarded(self) -> bool:
        """Whether a key was ever made, or a provider knows people, so that every request requires one of them."""
        return bool(self._ring.by_digest) or self.people is not None

    @property
    def local_only(self) -> bool:
        """Whether only requests from this machine are answered, each sender being the administrator."""
        return not self.guarded and not self._insecure

    async def key(self, text: str) -> ApiKey | None:
        """Return the valid key with this secret text, or None."""
        if (key := self._ring.authenticate(text)) is not None:
            return key
        await self._read_again()
        return self._ring.authenticate(text)

    def prefix(self, text: str) -> str:
        """Return the prefix of a text if a valid key has that prefix, else ""; the secret is not checked."""
        key = self._ring.valid("".join(text.split("_")[1:2]))
        return "" if key is None else key.prefix

    async def session(self, digest: bytes) -> Session | None:
        """Return the open session with this digest, or None."""
        if (session := self._ring.session(digest)) is not None:
            return session
        await self._read_again()
        return self._ring.session(digest)

    def name(self, session: Session) -> str:
        """Return the name of a session's person, or of its key's holder; the prefix without a valid key."""
        key = self._ring.valid(session.key)
        return session.name or (session.key if key is None else key.name)

    def holder(self, session: Session) -> Principal | None:
        """Return the person of a session, or the holder of its key; None if that is no longer valid.

        A session of a person ends when the settings name another provider.

        Raises:
            RateLimitedError: The key, or the person, has sent too many requests.
            ForbiddenError: The person's groups may no longer do anything.
        """
        found: ApiKey | Person | None = None
        if session.groups is None:
            found = self._ring.valid(session.key)
        elif self.people is not None and session.issuer == self.people.provider.issuer:
            found = self.people.in_session(session)
        return None if found is None else self._spent(found)

    async def principal(self, authorization: str | None) -> Principal:
        """Return the holder of the key, or the person of the token, in an `Authorization` header or metadata.

        Until the first key is made, the service listens on loopback only and every sender is the local administrator.
        Revoking the last key does not reopen the service.

        Raises:
            UnauthenticatedError: The key or token is missing or not valid.
            RateLimitedError: Its holder has sent too many requests.
            ForbiddenError: The person's groups may do nothing.
            ProviderUnavailableError: The identity provider does not answer.
        """
        if not self.guarded:
            return LOCAL_ADMINISTRATOR
        text = _token(authorization)
        if self.people is not None and text.count(".") == 2:  # a token of a provider; keys have no dots
            return self._spent(await self.people.admit(text))
        key = await self.key(text)
        if key is None:
            raise UnauthenticatedError(
                "The API key is not valid.",
                expected="a key that exists, has not expired and is not revoked",
                remedy="List the keys with `candor keys list`.",
            )
        return self._spent(key)

    def charge(self, principal: Principal, rows: int) -> None:
        """Count rows that a key, or a person, was answered; see `Rates.charge`."""
        if principal.prefix is not None:
            self._rates.charge(principal.prefix, rows, principal.rows_per_s)

    def at_once(self, authorization: str | None, scope: str, model: str | None) -> Principal | None:
        """Return the sender by its `Authorization` header, None if it is not known to have scope and model.

        Only a request whose holder is returned is counted: `principal` has the last word on all others.

        Raises:
            UnauthenticatedError: The key is missing.
            RateLimitedError: The key has sent too many requests.
        """
        if not self.guarded:
            return LOCAL_ADMINISTRATOR
        text = _token(authorization)
        found = self._ring.authenticate(text) or (None if self.people is None else self.people.known(text))
        if found is None:
            return None
        holder = _holder(found)
        if not holder.reaches(model):
            return None
        if holder.grants:
            holder = holder.on(model)
        if not holder.allows(scope):
            return None
        self._rates.spend(found)
        return holder

    def check_bind(self, host: str) -> None:
        """Refuse to listen beyond loopback without a key or an identity provider.

        Raises:
            ConfigurationError: The host is not loopback, and neither exists.
        """
        if not is_loopback(host) and self.people is None and not self._keys.any():
            raise ConfigurationError(
                f"Without an API key, the service listens on loopback only, not on {host}.",
                where="CANDOR_HOST",
                found=host,
                expected="127.0.0.1, or a key",
                remedy="Make the first key: candor keys create --name ops --scope admin",
            )

    def _spent(self, found: ApiKey | Person) -> Principal:
        """Count a request, and return its sender."""
        self._rates.spend(found)
        return _holder(found)

    async def _read_again(self) -> None:
        """Read the keys for an unknown one, once for all concurrent requests and at a limited rate."""
        asked_at = time.monotonic()
        async with self._rereading:
            if self._read_at < asked_at:
                await asyncio.sleep(self._read_at + _REREAD_AFTER_S - asked_at)
                with contextlib.suppress(StateUnavailableError):
                    await self.read()


def _holder(found: ApiKey | Person) -> Principal:
    if not isinstance(found, ApiKey):
        return found.principal
    return Principal(found.name, found.scopes, found.prefix, found.models, found.source, (), found.rows_per_s)


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


def check_forwarded(names: Iterable[str]) -> None:
    """Refuse requests that a proxy forwards: without a key, everyone who reaches the proxy would be administrator.

    Args:
        names: Names of the request's headers or metadata, lower case.

    Raises:
        ForbiddenError: One of them is set by proxies.
    """
    for name in names:
        if name.startswith("x-forwarded-") or name in _FORWARDING:
            raise not_local(in_header(name.title()), "a request that a proxy forwards", "no proxy")


def not_local(where: Place, found: str, expected: str) -> ForbiddenError:
    """Return the error for a request from elsewhere to a service without keys."""
    return ForbiddenError(
        "Without an API key, the service accepts requests from this machine only.",
        where=where,
        found=found[:200],
        expected=expected,
        remedy="Make a key: candor keys create --name ops --scope admin",
    )


def names_loopback(address: str) -> bool:
    """Return whether an address with "//" names this machine. A malformed address does not, nor a long one.

    >>> names_loopback("http://localhost:8000"), names_loopback("//[::1]"), names_loopback("//["), names_loopback("//")
    (True, True, False, False)
    """
    return len(address) <= _LONGEST_ADDRESS and _names_loopback(address)


@lru_cache(maxsize=1024)
def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False
