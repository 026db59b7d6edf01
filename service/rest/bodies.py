"""Read the headers and body of an ASGI request, within limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from service.errors import BodyTooLargeError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


class ClientGoneError(Exception):
    """The client closed the connection."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header, None if it is missing. `name` is lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def too_large(found: int | str, limit: int) -> BodyTooLargeError:
    """Return the error for a body that exceeds the limit."""
    return BodyTooLargeError(
        "The request body is too large.",
        found=f"{found} bytes",
        expected=f"at most {limit} bytes",
        remedy="Send less per request. CANDOR_MAX_BODY_BYTES limits bodies of predictions and labels.",
    )


def check_values(body: bytes, most: int) -> None:
    """Refuse a JSON body with too many values before it is parsed: that keeps all other requests waiting.

    Args:
        body: The body, which is not parsed.
        most: Maximum number of commas and opening brackets.

    Raises:
        BodyTooLargeError: It has more.
    """
    found = body.count(b",") + body.count(b"[") + body.count(b"{")
    if found > most:
        raise BodyTooLargeError(
            "The request body has too many values.",
            found=f"{found} commas and brackets",
            expected=f"at most {most}",
            remedy="Send fewer rows per request, or the inputs as .npy or binary tensors.",
        )


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the whole body. Stop as soon as it is known to exceed the limit.

    Raises:
        BodyTooLargeError: More than `limit` bytes are announced or received.
        ClientGoneError: The connection closed before the body was complete.
    """
    announced = header(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise too_large(announced, limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    if not message.get("more_body", False):  # the usual case: one chunk, no copy
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(len(body), limit)
        return body
    chunks = bytearray(message.get("body", b""))
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunks += message.get("body", b"")
        if len(chunks) > limit:
            raise too_large(f"more than {limit}", limit)
    return bytes(chunks)


class LimitedReceive:
    """Wrap `receive` to limit the size of the body.

    Args:
        receive: ASGI callable.
        limit: Maximum bytes.
    """

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        """Pass the next message on.

        Raises:
            BodyTooLargeError: The body exceeds the limit.
        """
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise too_large(f"more than {self._limit}", self._limit)
        return message
