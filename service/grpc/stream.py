"""ModelStreamInfer: the requests of a stream run together and are answered in their order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from grpc import StatusCode

from service.errors import CandorError, ForbiddenError, MalformedBodyError, UnauthenticatedError
from service.grpc.calls import Calls, Handler, parsed
from service.grpc.errors import details_of
from service.grpc.infer import ModelInferRequest, ModelStreamInferResponse

METHOD: Final = "ModelStreamInfer"
_AHEAD: Final = 64  # requests of a stream that are read before the first of them is answered


class Streams:
    """Answer streams until the service stops.

    Args:
        calls: What every request of a stream passes.
        handler: Answers a request.
        stopping: Set when the service stops: requests that were read are answered, then the stream ends.
    """

    def __init__(self, calls: Calls, handler: Handler, stopping: asyncio.Event) -> None:
        self._calls = calls
        self._handler = handler
        self._stopping = stopping

    async def __call__(self, requests: AsyncIterable[bytes], context: Any) -> AsyncIterator[bytes]:
        """Answer one stream.

        Raises:
            UnauthenticatedError: The key is missing or not valid.
            ForbiddenError: The key has not the required scope.
        """
        answers: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        room = asyncio.Semaphore(_AHEAD)

        async def read() -> None:
            try:
                await room.acquire()
                async for data in requests:
                    answers.put_nowait(asyncio.create_task(self._answer(data, context)))
                    await room.acquire()
            finally:
                answers.put_nowait(None)

        reader = asyncio.create_task(read())
        stopper = asyncio.create_task(self._stopping.wait())
        stopper.add_done_callback(lambda _: reader.cancel())
        answer: asyncio.Task[bytes] | None = None
        try:
            while (answer := await answers.get()) is not None:
                yield await answer
                room.release()
            if self._stopping.is_set():
                await context.abort(StatusCode.UNAVAILABLE, "The service stops. Open a new stream.")
            await reader
        finally:
            stopper.cancel()
            while answer is not None:
                answer.cancel()
                answer.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody waits for it
                answer = None if answers.empty() else answers.get_nowait()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _answer(self, data: bytes, context: Any) -> bytes:
        try:
            return await self._calls.answer(METHOD, "predict", self._handler, data, self._calls.call(context))
        except (UnauthenticatedError, ForbiddenError):
            raise
        except CandorError as error:
            response = ModelStreamInferResponse(error_message=details_of(error))
            with contextlib.suppress(MalformedBodyError):
                response.infer_response.id = parsed(ModelInferRequest, data).id
            content: bytes = response.SerializeToString()
            return content
