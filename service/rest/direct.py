"""Predictions and labels that the connection answers itself, without ASGI and, for most predictions, without a task.

The steps are the same as over ASGI; only who calls them differs
(docs/explanation/decisions/0025-predictions-without-asgi.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog

from service.errors import CandorError, InputError
from service.operations.access import Access
from service.operations.predicting import LARGE
from service.rest import feedback
from service.rest.access import sender_at_once
from service.rest.bodies import Headers, Scope
from service.rest.connections import Cycle
from service.rest.endpoints import Endpoints
from service.rest.exchange import Written, headers_of
from service.rest.paths import Labels, Predicts, Target
from service.rest.problems import CLIENT_GONE
from service.rest.requests import Requests
from service.runtime import Runtime
from service.serving.plane import Logged


class Direct:
    """Answer predictions and labels whose bodies are small and arrive as announced.

    Args:
        runtime: Parts of the service.
        endpoints: The endpoints that predict.
        access: Access control.
        requests: Names and counts requests.
    """

    def __init__(self, runtime: Runtime, endpoints: Endpoints, access: Access, requests: Requests) -> None:
        self.runtime = runtime
        self.endpoints = endpoints
        self.requests = requests
        self._access = access

    def __call__(self, target: Target, scope: Scope) -> Cycle | None:
        """Return what answers a request whose head has arrived; None if ASGI has to."""
        asks = target.asks
        needed = "feedback" if isinstance(asks, Labels) else "predict"
        principal = sender_at_once(self._access, scope, needed, asks.model)
        if principal is None:
            return None
        scope["principal"] = principal
        return _Labels(self, asks, scope) if isinstance(asks, Labels) else _Prediction(self, asks, scope)


class _Exchange(Cycle):
    """A request and its answer.

    Args:
        direct: The service.
        route: Template of its path.
        scope: Its scope.
    """

    __slots__ = ("_began", "_direct", "_request_id", "_route", "_scope", "_task")

    def __init__(self, direct: Direct, route: str, scope: Scope) -> None:
        super().__init__()
        self._began = time.perf_counter()
        self._direct = direct
        self._route = route
        self._scope = scope
        self._request_id = direct.requests.name(scope)
        self._task: asyncio.Task[None] | None = None

    def gone(self) -> None:
        """Give up: the client has closed the connection."""
        self.response_complete = True
        self._ended(CLIENT_GONE)

    def _go_on(self, steps: Coroutine[Any, Any, None]) -> None:
        """Go on in a task: a step has to wait for a thread."""
        self._task = asyncio.get_running_loop().create_task(self._in_task(steps))

    async def _in_task(self, steps: Coroutine[Any, Any, None]) -> None:
        structlog.contextvars.bind_contextvars(request_id=self._request_id)
        try:
            await steps
        except Exception as error:  # noqa: BLE001 — it is answered
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Answer an error."""
        requests = self._direct.requests
        if isinstance(error, CandorError):
            response = requests.refused(error, self._scope)
        else:
            with structlog.contextvars.bound_contextvars(request_id=self._request_id):
                response = requests.failed(error, self._scope)
        self._reply(response.status_code, response.raw_headers, bytes(response.body))

    def _reply(self, status: int, headers: Headers, content: bytes) -> None:
        if self.response_complete:
            return
        more, lines = self._direct.requests.ending(self._scope, self._request_id)
        self.reply(status, [*headers, *more], lines, content)
        self._ended(status)

    def _ended(self, status: int) -> None:
        self._direct.requests.ended(self._scope, self._request_id, self._route, status, self._began, quiet=False)


class _Labels(_Exchange):
    """A request with labels. What has arrived is stored, also if the client is gone by then.

    Args:
        direct: The service.
        asks: What its path asks for.
        scope: Its scope.
    """

    __slots__ = ("_asks", "_request")

    def __init__(self, direct: Direct, asks: Labels, scope: Scope) -> None:
        super().__init__(direct, asks.route, scope)
        self._asks = asks

    def begin(self) -> None:
        """Refuse what needs no body to be refused."""
        try:
            self._request = feedback.labelling(self._direct.runtime, self._asks.model, self._scope)
        except Exception as error:  # noqa: BLE001 — it is answered
            self._failed(error)

    def answer(self, body: bytes, *, alone: bool) -> None:  # noqa: ARG002  # labels that come together share a commit
        """Store the labels, and answer."""
        self._go_on(self._store(body))

    def gone(self) -> None:
        """Note that the client has closed the connection: what is stored is counted as stored."""
        self.response_complete = True
        if self._task is None:
            self._ended(CLIENT_GONE)

    def _reply(self, status: int, headers: Headers, content: bytes) -> None:
        if self.response_complete:
            self._ended(status)
        else:
            super()._reply(status, headers, content)

    async def _store(self, body: bytes) -> None:
        response = await feedback.store(self._direct.runtime, self._request, body)
        self._reply(response.status_code, response.raw_headers, bytes(response.body))


class _Prediction(_Exchange):
    """A prediction; for the batcher, what waits for a result.

    Args:
        direct: The service.
        asks: What its path asks for.
        scope: Its scope.
    """

    __slots__ = ("_asks", "_cancelled", "_predicting", "_prediction")

    def __init__(self, direct: Direct, asks: Predicts, scope: Scope) -> None:
        super().__init__(direct, asks.route, scope)
        self._asks = asks
        self._cancelled = False
        self._prediction: Any = None  # while it is not answered: it has inputs and scores

    def begin(self) -> None:
        """Find out what is asked, or refuse it before its body has arrived."""
        try:
            self._predicting, self._prediction = self._direct.endpoints.asked(self._asks, self._scope)
        except Exception as error:  # noqa: BLE001 — it is answered
            self._failed(error)

    def answer(self, body: bytes, *, alone: bool) -> None:
        """Answer, now or later. Nothing is raised."""
        prediction = self._prediction
        try:
            prediction.arrived = time.perf_counter()
            if not prediction.quick(body):
                self._wait(self._predicting.predict(prediction, body))
                return
            prediction.parse(body)
            if prediction.encoded:
                self._wait(self._predicting.resume(prediction, len(body)))
                return
            plane, given = prediction.model.plane, prediction.asked()
            try:
                plane.begin(prediction.served, prediction.inputs, self, alone=alone, **given)
            except InputError as error:
                prediction.place(error)
                raise
        except Exception as error:  # noqa: BLE001 — it is answered
            if isinstance(error, InputError):
                prediction.refused(error)
            self._failed(error)

    def gone(self) -> None:
        """Give up, which takes it out of the queue: the client has closed the connection."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        super().gone()

    def done(self) -> bool:
        """Return whether the request was answered or given up."""
        return self.response_complete

    def cancelled(self) -> bool:
        """Return whether it was given up."""
        return self._cancelled

    def set_result(self, result: Logged, /) -> None:
        """Answer a prediction."""
        try:
            self._prediction.answered(result[0])
            if self._prediction.size > LARGE:
                self._wait(None)
            else:
                self._send(self._prediction.written())
        except Exception as error:  # noqa: BLE001 — it is answered
            self._failed(error)

    def set_exception(self, exception: Exception, /) -> None:
        """Answer a prediction that failed."""
        self._prediction.failed(exception)
        self._failed(exception)

    def _wait(self, predicting: Awaitable[None] | None) -> None:
        self._go_on(self._write(predicting))

    async def _write(self, predicting: Awaitable[None] | None) -> None:
        if predicting is not None:
            await predicting
        self._send(await self._predicting.written(self._prediction))

    def _send(self, written: Written) -> None:
        prediction = self._prediction
        self._scope["answer"] = prediction.answer
        self._reply(200, headers_of(prediction, written), written.content)

    def _ended(self, status: int) -> None:
        self._prediction = None
        super()._ended(status)
