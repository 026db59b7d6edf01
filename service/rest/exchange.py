"""Predictions over HTTP in any protocol: queries, cancellation, answers over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from service.errors import InputValueError
from service.operations.predicting import Predicting, Prediction
from service.places import in_query
from service.rest.bodies import ClientGoneError, Headers, Receive, Scope, Send, read_body

T = TypeVar("T")


class Written(NamedTuple):
    """Content of an answer, and the headers that describe it."""

    content: bytes
    headers: Headers


_UNWATCHED_S = 0.02  # most answers come sooner, and watching costs more than a small model's run


def query_values(query_string: bytes, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a query by name.

    Args:
        query_string: Query without the question mark.
        known: Allowed names.

    Raises:
        InputValueError: A parameter is unknown or given twice.
    """
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    values = dict(pairs)
    if unknown := sorted(values.keys() - set(known)):
        raise unknown_parameter(unknown[0], known)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in values if names.count(name) > 1)
        raise InputValueError(
            "Duplicate query parameter.",
            where=in_query(name),
            found=[value for given, value in pairs if given == name],
            expected="one value",
        )
    return values


def unknown_parameter(name: str, known: Sequence[str]) -> InputValueError:
    """Return the error of a query parameter that an endpoint does not have."""
    return InputValueError("Unknown query parameter.", where=in_query(name), found=name, expected=[*known])


def headers_of(prediction: Prediction[Any, Written], written: Written) -> Headers:
    """Return the headers of an answer: what describes its content, its length, and the revision that answered."""
    revision = prediction.served.revision.id
    length = b"%d" % len(written.content)
    return [*written.headers, (b"content-length", length), (b"x-candor-revision", revision.encode())]


async def answer(
    predicting: Predicting, prediction: Prediction[Any, Written], scope: Scope, receive: Receive, send: Send
) -> None:
    """Read the body of a request, predict, and send the answer. The scope gets what logs and traces say of it.

    Raises:
        CandorError: The request cannot be answered. Nothing has been sent yet.
        ClientGoneError: The client closed the connection.
    """
    body = await read_body(scope, receive, predicting.max_body)
    await unless_gone(receive, predicting.predict(prediction, body))
    written = await predicting.written(prediction)
    scope["answer"], scope["times"] = prediction.answer, prediction.times
    await send({"type": "http.response.start", "status": 200, "headers": headers_of(prediction, written)})
    await send({"type": "http.response.body", "body": written.content})


async def unless_gone(receive: Receive, prediction: Coroutine[Any, Any, T]) -> T:
    """Wait for a prediction; cancel it, which removes it from the queue, when the client disconnects.

    Args:
        receive: ASGI callable, after the body was read.
        prediction: Prediction to wait for.

    Raises:
        ClientGoneError: The client disconnected.
        CandorError: The prediction failed.
    """
    watch = _Watch(receive)
    try:
        return await prediction
    except asyncio.CancelledError:
        if watch.gone:
            raise ClientGoneError from None
        raise
    finally:
        watch.stop()


class _Watch:
    """Cancel the current task when the client disconnects. Starts after `_UNWATCHED_S`.

    Args:
        receive: The ASGI callable.

    Attributes:
        gone: Whether the client disconnected.
    """

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._waiting = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._begin)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._waiting is not None:
            self._waiting.cancel()
