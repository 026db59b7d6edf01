"""One request and its answer: over httpx, again when that helps, with a pause in between.

Whether the caller blocks or awaits is decided here and nowhere else: all of the client is written in coroutines, and
over `BlockingHttp` none of them is ever suspended.
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
from typing import Any, Protocol

import httpx

from service.client.errors import UnexpectedAnswerError, UnreachableError, error_for

_PIECE = 1 << 20
_UNAVAILABLE = frozenset({429, 502, 503, 504})
_TOO_MANY = 429  # refused before anything was done
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_LONGEST_RETRY_AFTER_S = 60.0
# What goes wrong before a byte has been sent: such a request may always be sent again.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LOST = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class Request:
    """What goes to the service.

    Attributes:
        method: HTTP method.
        path: Below the service's URL.
        repeatable: Whether to send it twice does no harm.
        options: What httpx takes beside: params, headers, content, json, files, data.
        file: File whose bytes are the body; read as they are sent, each time that they are.
    """

    method: str
    path: str
    repeatable: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None


class Http(Protocol):
    """Sends requests, and lets time pass."""

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once and return whatever comes back; raises httpx.RequestError."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Close the connections."""


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as stream:
        while piece := await asyncio.to_thread(stream.read, _PIECE):
            yield piece


class AsyncHttp:
    """Over httpx.AsyncClient, for an event loop of asyncio's."""

    def __init__(self, **options: Any) -> None:
        self._client = httpx.AsyncClient(**options)

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once."""
        if request.file is None:
            return await self._client.request(request.method, request.path, **request.options)
        content = _pieces(request.file)
        return await self._client.request(request.method, request.path, **request.options, content=content)

    async def sleep(self, seconds: float) -> None:
        """Let others run meanwhile."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class BlockingHttp:
    """Over httpx.Client; its coroutines block, and end without ever being suspended."""

    def __init__(self, **options: Any) -> None:
        self._client = httpx.Client(**options)

    async def send(self, request: Request) -> httpx.Response:
        """Send a request once."""
        if request.file is None:
            return self._client.request(request.method, request.path, **request.options)
        with request.file.open("rb") as content:
            return self._client.request(request.method, request.path, **request.options, content=content)

    async def sleep(self, seconds: float) -> None:
        """Hold up this thread."""
        time.sleep(seconds)  # noqa: ASYNC251 - it is meant to block

    async def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Exchange:
    """Sends requests until they are answered or nothing is gained by sending them again.

    A request that is not repeatable goes out again only where it cannot have arrived. Pauses double, are drawn at
    random below their bound so that clients do not come back in step, and never end before `Retry-After` says.

    Args:
        http: What sends.
        url: For messages.
        retries: How often a request may be sent again.
    """

    def __init__(self, http: Http, *, url: str, retries: int) -> None:
        self.http = http
        self._url = url
        self._retries = retries

    async def document(self, request: Request, *, also: int = 200) -> Any:
        """Return the JSON of a successful answer.

        Args:
            request: What to send.
            also: A status beside those of success whose answer is wanted too.

        Raises:
            ApiError: The service refused the request, or failed.
            UnreachableError: No service answers, or not in time.
            UnexpectedAnswerError: What answers sends no JSON.
        """
        response = await self.response(request)
        try:
            document = response.json()
        except ValueError:
            document = None
        if response.is_success or response.status_code == also:
            if document is None:
                raise UnexpectedAnswerError(f"What answers at {self._url}{request.path} sends no JSON.")
            return document
        if not isinstance(document, dict):
            document = {"title": f"HTTP {response.status_code}", "detail": response.text[:500]}
        raise error_for(response.status_code, document, retry_after_s=_retry_after_s(response))

    async def response(self, request: Request) -> httpx.Response:
        """Return the last answer, whatever it is.

        Raises:
            UnreachableError: No service answers, or not in time.
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
                        f"No service answers at {self._url}: {error or type(error).__name__}"
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


def pause_s(attempt: int, retry_after_s: float, draw: float) -> float:
    """Seconds to wait before the next attempt.

    Args:
        attempt: Attempts made before the last one.
        retry_after_s: Seconds that the service asked for; 0 for none.
        draw: Drawn from [0, 1).

    Example:
        >>> pause_s(0, 0.0, 0.5), pause_s(3, 0.0, 0.5), pause_s(20, 0.0, 1.0), pause_s(0, 2.0, 0.5)
        (0.05, 0.4, 5.0, 2.05)
    """
    return retry_after_s + draw * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt)


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
