"""What every prediction over HTTP has in common, whatever its protocol: limits, its wait for an answer, sending it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import numpy.typing as npt

from service.errors import InputValueError
from service.metrics import Metrics
from service.models import Models
from service.plane import Answer, Served
from service.rest.bodies import ClientGoneError, Receive, Send
from service.rest.decoding import Decoders
from service.rest.encoded import decode_images
from service.settings import Settings

T = TypeVar("T")

LARGE: Final = 64 * 1024  # bytes; what is larger is parsed and written off the event loop
_UNWATCHED_S = 0.02  # most answers come sooner; to watch a client from the start costs more than a small model's run


class Predicting:
    """What answers predictions needs.

    Args:
        models: The models of this process.
        settings: Limits and deadline.
        metrics: Where requests are counted.
        decoders: Threads for what takes long to decode.
    """

    def __init__(self, models: Models, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        self._models = models
        self._max_pixels = settings.max_pixels
        self._max_rows = settings.max_rows_per_request
        self._max_body = settings.max_body_bytes
        self._deadline_s = settings.deadline_s
        self._metrics = metrics
        self._decoders = decoders

    async def _decoded(self, inputs: npt.NDArray[Any] | list[bytes], served: Served, size: int) -> npt.NDArray[Any]:
        """Return inputs as an array: as they are, or decoded where they are files of images, `size` bytes in all."""
        if not isinstance(inputs, list):
            return inputs
        decode = partial(decode_images, inputs, served.input, max_pixels=self._max_pixels)
        return await self._decoders.run(decode, size)


def query_values(query_string: bytes, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a query by name.

    Args:
        query_string: As it came, without the question mark.
        known: Names that a parameter may have.

    Raises:
        InputValueError: One is unknown, or is there twice: taking either would leave the other unheard.
    """
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
    values = dict(pairs)
    if unknown := sorted(values.keys() - set(known)):
        raise InputValueError("Unknown query parameter.", where=f"?{unknown[0]}", found=unknown[0], expected=[*known])
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in values if names.count(name) > 1)
        raise InputValueError(
            "A query parameter is there more than once.",
            where=f"?{name}",
            found=[value for given, value in pairs if given == name],
            expected="one value",
        )
    return values


async def unless_gone(receive: Receive, prediction: Coroutine[Any, Any, T]) -> T:
    """Wait for a prediction; give it up, so that it is dropped from the queue, when the client goes.

    Args:
        receive: The ASGI callable; the body has been read.
        prediction: What is waited for. It is cancelled when the client goes.

    Raises:
        ClientGoneError: Nobody waits for the answer any more.
        CandorError: What the prediction raises.
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
    """Cancels the task that makes it when the client goes; begins after a moment.

    Args:
        receive: The ASGI callable.

    Attributes:
        gone: Whether the client went.
    """

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._waiting = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._begin)

    def stop(self) -> None:
        """Watch no longer."""
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


async def send_answer(send: Send, answer: Answer, content: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Send `content` with status 200, its length, and the revision that answered."""
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                *headers,
                (b"content-length", str(len(content)).encode()),
                (b"x-candor-revision", answer.served.revision.id.encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": content})
