"""The gRPC server: asyncio, in the event loop of the HTTP server, started and drained with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # the service forks only to start other programs

import grpc
import structlog
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from service.errors import CandorError, ConfigurationError
from service.grpc import control
from service.grpc.calls import Calls, Handler
from service.grpc.connections import ConnectionsByAddress
from service.grpc.errors import code_of, details_of, trailers_of
from service.grpc.health import Health
from service.grpc.infer import Infer
from service.grpc.messages import POOL, SERVICE
from service.grpc.stream import METHOD, Streams
from service.operations.access import Access
from service.operations.decoding import Decoders
from service.runtime import Runtime
from service.workers.listening import bound
from service.workers.tls import Certificates

logger = structlog.get_logger(__name__)

_IDLE_MS: Final = 300_000  # of a connection without calls; clients connect again by themselves
_PROBE_MS: Final = 120_000  # between pings of a client that may have vanished

_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

for _described in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):  # reflection shows one pool
    POOL.Add(FileDescriptorProto.FromString(_described.serialized_pb))


class Server:
    """The gRPC server of a service.

    Args:
        runtime: Parts of the service.
        access: Access control.
        decoders: Threads for slow decoding.
        port: Port to listen on.
        certificates: Those of TLS; None without it.

    Attributes:
        refused: Why it could not listen.
    """

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        decoders: Decoders,
        port: int,
        certificates: Certificates | None = None,
    ) -> None:
        self._certificates = certificates
        self._runtime = runtime
        self._port = port
        self._calls = Calls(runtime, access)
        self._infer = Infer(runtime.models, runtime.settings, runtime.metrics, decoders)
        self._stopping = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self.refused: ConfigurationError | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigurationError: The port is in use, or not allowed.
        """
        settings = self._runtime.settings
        alone = not self._runtime.others.supervised
        if alone:
            self._check_port()
        server = self._server = grpc.aio.server(
            maximum_concurrent_rpcs=settings.max_connections,
            options=[
                ("grpc.max_receive_message_length", settings.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                # Workers share the port, which their supervisor keeps from others. Without one, a second server on the
                # same port would take half of the calls.
                ("grpc.so_reuseport", int(not alone)),
                ("grpc.server_handshake_timeout_ms", round(settings.client_timeout_s * 1000)),
                ("grpc.max_allowed_incoming_connections", settings.max_connections),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.keepalive_time_ms", _PROBE_MS),
            ],
        )
        server.add_generic_rpc_handlers((self._methods(), self._health()))
        reflection.enable_server_reflection((SERVICE.full_name, _HEALTH, reflection.SERVICE_NAME), server, POOL)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        if self._certificates is None:
            server.add_insecure_port(f"{host}:{self._port}")
        else:
            server.add_secure_port(f"{host}:{self._port}", self._certificates.for_grpc())
        await server.start()
        if settings.max_connections_per_address is not None:
            by_address = ConnectionsByAddress(self._port, settings.max_connections_per_address)
            self._watching = asyncio.create_task(by_address.watch())
        logger.info("gRPC server listens", host=settings.host, port=self._port)

    async def stop(self) -> None:
        """Refuse new calls, finish those in progress within the drain time, then close all connections."""
        self._stopping.set()
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            await self._server.stop(self._runtime.settings.drain_timeout_s)

    def _check_port(self) -> None:
        try:
            for bindable in bound(self._runtime.settings.host, self._port):  # gRPC itself gives no reason
                bindable.close()
        except ConfigurationError as error:
            self.refused = error
            raise

    def _methods(self) -> Any:
        handlers = {
            "ModelInfer": _unary(self._calling("ModelInfer", "predict", self._infer.alone)),
            METHOD: grpc.stream_stream_rpc_method_handler(
                _streaming(Streams(self._calls, self._infer.in_stream, self._stopping))
            ),
        }
        for name, (scope, _) in control.METHODS.items():
            handlers[name] = _unary(self._calling(name, scope, control.handler(self._runtime, name)))
        return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)

    def _health(self) -> Any:
        health = Health(self._runtime, self._calls, self._stopping)
        handlers = {
            "Check": _unary(health.check),
            "Watch": grpc.unary_stream_rpc_method_handler(_streaming(health.watch)),
        }
        return grpc.method_handlers_generic_handler(_HEALTH, handlers)

    def _calling(self, method: str, scope: str | None, handler: Handler) -> _Unary:
        async def call(data: bytes, context: Any) -> bytes:
            return await self._calls.answer(method, scope, handler, data, self._calls.call(context))

        return call


_Unary = Callable[[bytes, Any], Awaitable[bytes]]
_Streaming = Callable[[Any, Any], AsyncIterator[bytes]]


def _unary(answer: _Unary) -> Any:
    async def call(data: bytes, context: Any) -> bytes:
        try:
            return await answer(data, context)
        except CandorError as error:
            return await _refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(call)


def _streaming(answer: _Streaming) -> _Streaming:
    async def call(requests: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            async for content in answer(requests, context):
                yield content
        except CandorError as error:
            await _refuse(context, error)

    return call


async def _refuse(context: Any, error: CandorError) -> NoReturn:
    await context.abort(code_of(error), details_of(error), (*context.trailing_metadata(), *trailers_of(error)))
    raise AssertionError  # `abort` raises
