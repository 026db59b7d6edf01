"""The health service (grpc.health.v1): the server under "" and the name of its service, and each model under its name.

Like /readyz, the server's own state requires no key. A model's state requires one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from grpc_health.v1 import health_pb2

from service.errors import UnknownModelError
from service.grpc.calls import OPEN, Call, Calls, parsed
from service.grpc.control import is_ready
from service.grpc.messages import SERVICE
from service.operations.readiness import readiness
from service.runtime import Runtime

_Response: Final = health_pb2.HealthCheckResponse
_SERVER: Final = ("", SERVICE.full_name)


class Health:
    """Answer health checks.

    Args:
        runtime: Parts of the service.
        calls: What all calls pass.
        stopping: Set when the service stops: watches end.
    """

    def __init__(self, runtime: Runtime, calls: Calls, stopping: asyncio.Event) -> None:
        self._runtime = runtime
        self._calls = calls
        self._stopping = stopping

    async def check(self, data: bytes, context: Any) -> bytes:
        """Return the present state.

        Raises:
            UnknownModelError: No model has this name.
            CandorError: The name of a model requires a key.
        """
        name = parsed(health_pb2.HealthCheckRequest, data).service
        return await self._calls.answer("Check", _scope(name), self._checked, data, self._calls.call(context))

    async def watch(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        """Return the present state, and each change.

        Raises:
            CandorError: The name of a model requires a key.
        """
        name = parsed(health_pb2.HealthCheckRequest, data).service
        await self._calls.answer("Watch", _scope(name), self._nothing, data, self._calls.call(context))
        last = None
        while not self._stopping.is_set():
            try:
                now = await self._state(name)
            except UnknownModelError:
                now = _Response.SERVICE_UNKNOWN
            if now != last:
                yield _Response(status=now).SerializeToString()
                last = now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._runtime.settings.poll_interval_s)
        if last != _Response.NOT_SERVING:
            yield _Response(status=_Response.NOT_SERVING).SerializeToString()

    async def _checked(self, data: bytes, _: Call) -> bytes:
        name = parsed(health_pb2.HealthCheckRequest, data).service
        content: bytes = _Response(status=await self._state(name)).SerializeToString()
        return content

    async def _nothing(self, _: bytes, __: Call) -> bytes:
        return b""

    async def _state(self, name: str) -> int:
        if name in _SERVER:
            ready = not (await readiness(self._runtime)).problems
        else:  # while a stop is delayed, models answer, but balancers that watch them are to go elsewhere
            ready = is_ready(self._runtime, self._runtime.models.get(name).name, None)
            ready = ready and not self._runtime.others.stopping
        state: int = _Response.SERVING if ready else _Response.NOT_SERVING
        return state


def _scope(name: str) -> str | None:
    return OPEN if name in _SERVER else None
