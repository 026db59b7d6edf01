"""One request and its answer over httpx, with retries.

Only this module knows whether the caller blocks or awaits: the whole client is written in coroutines, and over
`BlockingHttp` none of them is ever suspended.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
from pydantic import ValidationError

from candor.contract.documents import Answer
from candor.errors import UnexpectedAnswerError, UnreachableError, error_for

T = TypeVar("T", bound=Answer)

_PIECE = 1 << 20
_UNAVAILABLE = frozenset({429, 502, 503, 504})
_TOO_MANY = 429  # refused before anything was done
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_DOUBLINGS = 10  # of the first pause, beyond the longest: a power without a limit is no float from 1,024 on
_LONGEST_RETRY_AFTER_S = 60.0
# Raised before a byte is sent: such a request may always be sent again.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LOST = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the service.

    Attributes:
        method: HTTP method.
        path: Below the service's URL.
        repeatable: Whether sending it twice does no harm.
        options: Other arguments of httpx: params, headers, content, json, files, data.
        file: File to stream as the body, opened again for each attempt.
    """

    method: str
    path: str
    repeatable: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None


class Http(Protocol):
    """Sends requests, and lets time pass."""

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once and return the response; raises httpx.RequestError."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Close the connections."""


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as stream:
        while piece := await asyncio.to_thread(stream.read, _PIECE):
            yield piece


class AsyncHttp:
    """Send over httpx.AsyncClient, on an asyncio event loop."""

    def __init__(self, **options: Any) -> None:
        self._client = httpx.AsyncClient(**options)

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once."""
        if request.file is None:
            return await self._client.request(request.method, request.path, **request.options)
        content = _pieces(request.file)
        return await self._client.request(request.method, request.path, **request.options, content=content)

    async def sleep(self, seconds: float) -> None:
        """Wait, and let other tasks run."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class BlockingHttp:
    """Send over httpx.Client; the coroutines block and are never suspended."""

    def __init__(self, **options: Any) -> None:
        self._client = httpx.Client(**options)

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once."""
        if request.file is None:
            return self._client.request(request.method, request.path, **request.options)
        with request.file.open("rb") as content:
            return self._client.request(request.method, request.path, **request.options, content=content)

    async def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)  # noqa: ASYNC251 - meant to block

    async def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Exchange:
    """Sends requests, and sends them again while that can help.

    A request that is not repeatable is sent again only if it cannot have arrived. The bound of the pauses doubles; each
    is drawn at random below it, so that clients do not return in step, and is never shorter than `Retry-After`.

    Args:
        http: Sends the requests.
        url: Shown in messages.
        retries: How often a request may be sent again.
    """

    def __init__(self, http: Http, *, url: str, retries: int) -> None:
        self.http = http
        self._url = url
        self._retries = retries

    async def success(self, request: Request, *, also: int = 200) -> httpx.Response:
        """Return a successful answer.

        Args:
            request: What to send.
            also: A status that counts as success too.

        Raises:
            ApiError: The service refused the request, or failed.
            UnreachableError: The service does not answer, or not in time.
        """
        response = await self.response(request)
        if response.is_success or response.status_code == also:
            return response
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            problem = {"title": f"HTTP {response.status_code}", "detail": response.text[:500]}
        raise error_for(response.status_code, problem, retry_after_s=_retry_after_s(response))

    async def response(self, request: Request) -> httpx.Response:
        """Return the last response, whatever its status.

        Raises:
            UnreachableError: The service does not answer, or not in time.
        """
        attempt = 0
        while True:
            retry_after_s = 0.0
            try:
                response = await self.http.send(request)
            except httpx.RequestError as error:
                again = isinstance(error, _NOT_SENT) or (request.repeatable and isinstance(error, _LOST))
                if not again or attempt == self._retries:
                    raise UnreachableError(
                        f"The service at {self._url} does not answer: {error or type(error).__name__}"
                    ) from error
            else:
                again = response.status_code == _TOO_MANY or (
                    request.repeatable and response.status_code in _UNAVAILABLE
                )
                retry_after_s = _retry_after_s(response) or 0.0
                if not again or attempt == self._retries or retry_after_s > _LONGEST_RETRY_AFTER_S:
                    return response
            await self.http.sleep(pause_s(attempt, retry_after_s, random.random()))  # noqa: S311 - no secret
            attempt += 1


def read(kind: type[T], response: httpx.Response) -> T:
    """Return an answer as a type of the contract.

    Raises:
        UnexpectedAnswerError: It is not one.
    """
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise UnexpectedAnswerError(
            f"Unexpected response from {response.url}: not a valid {kind.__name__} "
            f"({where or 'body'}: {first['msg']}). Does the URL lead to a Candor service of this version?"
        ) from error


def pause_s(attempt: int, retry_after_s: float, draw: float) -> float:
    """Seconds to wait before the next attempt.

    Args:
        attempt: Attempts made before the last one.
        retry_after_s: Seconds that the service asks to wait; 0 for none.
        draw: Drawn from [0, 1).

    Example:
        >>> pause_s(0, 0.0, 0.5), pause_s(3, 0.0, 0.5), pause_s(2_000, 0.0, 1.0), pause_s(0, 2.0, 0.5)
        (0.05, 0.4, 5.0, 2.05)
    """
    return retry_after_s + draw * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempt, _DOUBLINGS))


def _retry_after_s(response: httpx.Response) -> float | None:
    """Read Retry-After, seconds or a date (RFC 9110, section 10.2.3)."""
    value: str = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        until = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError):
        return None
    return max(0.0, until - time.time())
