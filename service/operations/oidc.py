"""An OpenID provider: its discovery document and keys, the tokens that it signs, the codes that it exchanges."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus, urlencode, urlsplit

import httpx
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from service.errors import ConfigurationError, OverloadedError, ProviderUnavailableError, UnauthenticatedError
from service.settings import Settings, is_secure

logger = structlog.get_logger(__name__)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are accepted: only a private key makes them."""
REREAD_S: Final = 300.0
"""Interval in seconds at which the keys are read again, so that a withdrawn one is soon refused."""
REFETCH_S: Final = 10.0
"""Minimum time in seconds from the end of a read to the next one, however many tokens name unknown keys."""
WAIT_S: Final = 5.0
"""Maximum time in seconds that a request waits for a read."""
STALE_S: Final = 24 * 3600.0
"""Time in seconds that keys are used for while the provider does not answer."""
EXCHANGES: Final = 16
"""Maximum number of codes that are exchanged at once."""
EXCHANGE_S: Final = 10.0
"""Maximum time in seconds of an exchange."""
_TIMEOUT_S: Final = 5.0  # of one request to the provider, from beginning to end
_THREADS: Final = 4  # for these requests: others must not wait for a provider that hangs
_MOST_BYTES: Final = 1024 * 1024
_MOST_KEYS: Final = 100
_MOST_TOKEN: Final = 16 * 1024
_KINDS: Final = ("RSA", "EC", "OKP")  # no shared secrets
_FEWEST_BITS: Final = 2048
_NOT_OF_ACCESS: Final = ("nonce", "at_hash", "c_hash", "events")  # claims of ID tokens and of log-out tokens
_TYPES: Final = ("jwt", "at+jwt")
T = TypeVar("T")
_PLACES: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class Description:
    """What a provider says of itself.

    Attributes:
        authorization: Address at which people log in.
        token: Address at which a code becomes a token.
        keys: Public keys by id, "" without one: the algorithm that it is for, None for any that fits, and the key.
        posts_secret: Whether the secret goes into the body, because the provider does not read it in a header.
    """

    authorization: str
    token: str
    keys: Mapping[str, tuple[str | None, Any]]
    posts_secret: bool

    def key(self, name: str | None) -> tuple[str | None, Any]:
        """Return the key that a token names, and the algorithm that it is for; (None, None) without one.

        A token may leave its key unnamed if the provider has a single one (OpenID Connect Core, section 10.1).
        """
        if name is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(name, (None, None)) if name else (None, None)


class Provider:
    """The provider of the settings. Its methods are for the event loop; they read in threads of their own.

    Args:
        settings: Settings of the service, with an issuer.
        clock: Seconds, never going back.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.issuer = settings.oidc_issuer or ""
        self.client_id = settings.oidc_client_id or ""
        self.changes = 0  # how often the keys have changed
        self._secret = _secret(settings.oidc_client_secret_file)
        self._redirect = settings.oidc_redirect_url or ""
        self._requested = settings.oidc_requested_scopes
        self._skew_s = settings.oidc_clock_skew_s
        self._clock = clock
        self._found: Description | None = None
        self._found_at = self._read_at = -STALE_S
        self._reading: asyncio.Task[None] | None = None
        self._complaint: object = None  # what was logged last, so that it is not logged each time
        self._failures = 0  # in a row
        self._exchanging = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="identity")

    async def read(self) -> None:
        """Read the discovery document and the keys, once for all who wait, unless a read ended `REFETCH_S` ago or less.

        Return after `WAIT_S` even if the read goes on. If the provider cannot be read, log why, unless that was logged
        last; what was read before stays in use for `STALE_S`.
        """
        if self._reading is None:
            if self._clock() < self._read_at + REFETCH_S:
                return
            self._reading = asyncio.create_task(self._read_once())
        await asyncio.wait((self._reading,), timeout=WAIT_S)

    async def _read_once(self) -> None:
        try:
            found = await self._in_thread(self._read)
        except Exception as error:  # a provider may answer anything, and the next read must come
            self._failures += 1
            complaint = error.found if isinstance(error, ProviderUnavailableError) else repr(error)
            if complaint != self._complaint:
                self._complaint = complaint
                unknown = not isinstance(error, ProviderUnavailableError)
                logger.warning("identity provider not read", error=str(error), found=complaint, exc_info=unknown)
        else:
            if self._failures:
                logger.info("identity provider read again", failures=self._failures)
            self._complaint, self._failures = None, 0
            if self._found is None or found.keys != self._found.keys:
                self.changes += 1
            self._found, self._found_at = found, self._clock()
        finally:
            self._read_at, self._reading = self._clock(), None

    @property
    def pause_s(self) -> float:
        """Time in seconds to the next regular read: short after a failure, longer after each more."""
        return min(REREAD_S, REFETCH_S * 2 ** min(self._failures - 1, 8)) if self._failures else REREAD_S

    async def description(self) -> Description:
        """Return what the provider says of itself.

        Raises:
            ProviderUnavailableError: It does not answer, and has not for `STALE_S`.
        """
        if self._known is None:
            await self.read()
        if (known := self._known) is None:
            raise ProviderUnavailableError(
                "The identity provider does not answer, so nobody can be identified by it.",
                expected=f"the discovery document of {self.issuer}",
                remedy="Try again later; API keys work as before.",
            )
        return known

    async def claims(self, token: str, audience: str, nonce: str | None = None) -> dict[str, Any]:
        """Return what a token says, after all checks.

        Args:
            token: The token, as it was sent.
            audience: Whom it must be for.
            nonce: What an ID token must repeat; None for another token.

        Raises:
            UnauthenticatedError: A check fails.
            ProviderUnavailableError: The provider's keys are not known.
        """
        try:
            header = jwt.get_unverified_header(token) if len(token) <= _MOST_TOKEN else {}
        except (jwt.PyJWTError, ValueError, RecursionError):
            header = {}
        algorithm, name = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or not isinstance(name, str | None):
            raise refused(f"algorithm {str(algorithm)[:20]!r}, key {str(name)[:100]!r}", "a signature by a public key")
        if name not in (await self.description()).keys:
            await self.read()  # it may have made new ones, also where the token names none
        allowed, key = (await self.description()).key(name)
        if key is None or allowed not in (None, algorithm):
            raise refused(
                f"the key {str(name)[:100]!r} for {algorithm}",
                "a key of the identity provider, by its id (kid) unless there is only one",
            )
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=audience,
                issuer=self.issuer,
                leeway=self._skew_s,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise refused(str(error)[:200], "a token of the identity provider for this service, in force") from None
        if nonce is not None:
            self._check_login(claims, nonce)
        else:
            _check_access(header, claims)
        return claims

    def _check_login(self, claims: dict[str, Any], nonce: str) -> None:
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise refused("another nonce", "the nonce of this login")
        party = claims.get("azp", self.client_id if claims["aud"] in (self.client_id, [self.client_id]) else None)
        if party != self.client_id:
            raise refused(f"a token for {str(party)[:100]!r}", f"a token for {self.client_id!r}")

    async def login(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which a person logs in.

        Args:
            state: What the provider sends back.
            nonce: What the ID token will repeat.
            verifier: Secret of this login (PKCE), of which the provider gets the digest.

        Raises:
            ProviderUnavailableError: The provider does not answer.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self._redirect,
            "scope": self._requested,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        at = (await self.description()).authorization
        return f"{at}{'&' if '?' in at else '?'}{urlencode(query, quote_via=quote)}"

    async def exchange(self, code: str, verifier: str) -> str:
        """Return the ID token for a code.

        Raises:
            UnauthenticatedError: The provider refuses the code.
            ProviderUnavailableError: It does not answer, or answers something else.
            OverloadedError: `EXCHANGES` are under way.
        """
        if self._exchanging >= EXCHANGES:
            raise OverloadedError(
                "Too many people are logging in.",
                found=f"{EXCHANGES} at once",
                remedy="Reload this page in a few seconds.",
            )
        self._exchanging += 1
        try:
            async with asyncio.timeout(EXCHANGE_S):
                return await self._exchange(code, verifier)
        except TimeoutError:
            raise _unusable(self.issuer, f"no answer in {EXCHANGE_S:g} s") from None
        finally:
            self._exchanging -= 1

    async def _exchange(self, code: str, verifier: str) -> str:
        known = await self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": verifier,
        }
        headers = {}
        if self._secret is None:
            form["client_id"] = self.client_id
        elif known.posts_secret:
            form |= {"client_id": self.client_id, "client_secret": self._secret}
        else:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self._secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, document = await self._in_thread(self._ask, "POST", known.token, data=form, headers=headers)
        if status in (400, 401):
            raise refused(f"{status} {str(document.get('error'))[:100]!r}", "a code that the identity provider accepts")
        token = document.get("id_token")
        if status != 200 or not isinstance(token, str):
            raise _unusable(known.token, f"{status}, without an ID token")
        return token

    @property
    def _known(self) -> Description | None:
        return self._found if self._clock() < self._found_at + STALE_S else None

    async def _in_thread(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *given, **named))

    def _read(self) -> Description:
        """Read the discovery document and the keys.

        Raises:
            ProviderUnavailableError: The provider does not answer, or is not the one of the settings.
        """
        at = f"{self.issuer.removesuffix('/')}/.well-known/openid-configuration"
        status, document = self._ask("GET", at)
        if status != 200 or document.get("issuer") != self.issuer:
            raise _unusable(at, f"{status}, issuer {str(document.get('issuer'))[:200]!r}")
        authorization, token, keys_at = (str(document.get(name)) for name in _PLACES)
        for place in (authorization, token, keys_at):
            if not is_secure(place) or (urlsplit(place).scheme != "https" and self.issuer.startswith("https:")):
                raise _unusable(at, f"the address {place[:200]!r}")
        status, listed = self._ask("GET", keys_at)
        found = listed.get("keys")
        if status != 200 or not isinstance(found, list):
            raise _unusable(keys_at, f"{status}, without keys")
        keys = {one.get("kid", ""): key for one in found[:_MOST_KEYS] if (key := _key(one)) is not None}
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if not isinstance(methods, list):
            raise _unusable(at, f"token_endpoint_auth_methods_supported {str(methods)[:200]!r}")
        posts = "client_secret_basic" not in methods and "client_secret_post" in methods
        return Description(authorization, token, keys, posts)

    def _ask(self, method: str, url: str, **request: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and document of an answer; redirects are not followed.

        Raises:
            ProviderUnavailableError: None came in time, or it is not JSON.
        """
        headers = {"accept": "application/json", "accept-encoding": "identity", **request.pop("headers", {})}
        try:
            status, body = asyncio.run(_fetch(method, url, headers=headers, **request))
            document = json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError) as error:
            raise _unusable(url, str(error)[:200] or type(error).__name__) from None
        return status, document if isinstance(document, dict) else {}


async def _fetch(method: str, url: str, **request: Any) -> tuple[int, bytes]:
    """Return the status and body of an answer."""
    body = bytearray()
    async with (
        asyncio.timeout(_TIMEOUT_S),  # of all of it: bytes that trickle extend the client's own
        httpx.AsyncClient(timeout=_TIMEOUT_S) as client,
        client.stream(method, url, **request) as answer,
    ):
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise _unusable(url, f"an answer of more than {_MOST_BYTES} bytes")
    return answer.status_code, bytes(body)


def refused(found: str, expected: str) -> UnauthenticatedError:
    """Return the error for a token or login that fails a check."""
    return UnauthenticatedError(
        "The identity provider does not vouch for this request.",
        found=found,
        expected=expected,
        remedy="Log in again. If that fails, compare CANDOR_OIDC_… with the provider's settings.",
    )


def _check_access(header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
    """Refuse a token for the API that the provider made for something else, such as a login or a log-out.

    Raises:
        UnauthenticatedError: It says so.
    """
    if of_others := [name for name in _NOT_OF_ACCESS if name in claims]:
        raise refused(f"a token with {', '.join(of_others)}", "an access token, not an ID token or a log-out token")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
        raise refused(f"a token of type {str(kind)[:100]!r}", "an access token: type JWT or at+jwt")
    if claims.get("typ", "Bearer") != "Bearer":
        raise refused(f"a token whose claim typ is {str(claims['typ'])[:100]!r}", "an access token: Bearer, or no typ")


def _unusable(url: str, found: str) -> ProviderUnavailableError:
    return ProviderUnavailableError("The identity provider gives no usable answer.", where=url, found=found)


def _key(document: Any) -> tuple[str | None, Any] | None:
    """Return a public key for signatures, with the algorithm that it is for; None if it cannot be one."""
    if not isinstance(document, dict) or document.get("kty") not in _KINDS or document.get("use", "sig") != "sig":
        return None
    algorithm = document.get("alg")
    if not isinstance(document.get("kid", ""), str) or algorithm not in (None, *ALGORITHMS):
        return None
    public = {name: value for name, value in document.items() if name != "d"}
    try:
        key = jwt.PyJWK(public).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if isinstance(key, RSAPublicKey) and key.key_size < _FEWEST_BITS else (algorithm, key)


def _secret(file: Path | None) -> str | None:
    """Return the client's secret.

    Raises:
        ConfigurationError: Its file cannot be read, or is empty.
    """
    if file is None:
        return None
    try:
        secret, found = file.read_text(encoding="utf-8").strip(), "an empty file"
    except (OSError, UnicodeDecodeError) as error:
        secret, found = "", str(error)
    if not secret:
        raise ConfigurationError(
            "The secret of the identity provider's client cannot be read.",
            where="CANDOR_OIDC_CLIENT_SECRET_FILE",
            found=found,
            expected="a file that contains the secret",
        )
    return secret
