"""The gRPC server: keys, deadlines, limits, health, reflection, counts, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from service import errors
from service.app import create_app
from service.errors import CandorError, ConfigurationError, InputError
from service.grpc.connections import ConnectionsByAddress
from service.grpc.errors import code_of, details_of
from service.grpc.messages import SERVICE, message
from service.state.answered_ids import digest_of
from service.state.keys import KeyStore
from tests.service.test_evidence import entries
from tests.waiting import PATIENCE_S, until

from ..conftest import settings_of
from .conftest import Channel

Serving = health_pb2.HealthCheckResponse
IMAGE = {"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 8, 8, 1]}], "raw_input_contents": [bytes(64)]}
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def request(**fields: Any) -> bytes:
    content: bytes = message("ModelInferRequest")(model_name="digits", **IMAGE, **fields).SerializeToString()
    return content


def infer(channel: Channel, **options: Any) -> Any:
    return channel.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer").future(request(), **options)


@pytest.fixture
def own(speak: Callable[..., Any], dial: Callable[..., Channel]) -> Callable[..., tuple[Any, Channel]]:
    def run(**changes: Any) -> tuple[Any, Channel]:
        service = speak(**changes)
        return service, dial(service)

    return run


def refused(ask: Callable[[], Any]) -> Any:
    with pytest.raises(grpc.RpcError) as error:
        ask()
    return error.value


def test_every_error_has_a_code_and_a_message_that_fits_a_trailer() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CandorError)]
    codes = {kind: code_of(kind("No.")) for kind in kinds}
    assert codes[errors.InputShapeError] is grpc.StatusCode.INVALID_ARGUMENT
    assert codes[errors.OverloadedError] is grpc.StatusCode.UNAVAILABLE
    assert codes[errors.UnknownRevisionError] is grpc.StatusCode.NOT_FOUND
    assert len(details_of(InputError("数" * 9000)).encode()) <= 1500


def test_without_keys_no_call_comes_through_a_proxy(speaking: Any, dial: Callable[..., Channel]) -> None:
    ready = dial(speaking).channel.unary_unary(f"/{SERVICE.full_name}/ModelReady")
    asked = message("ModelReadyRequest")(name="digits").SerializeToString()
    assert ready(asked, wait_for_ready=True)
    error = refused(lambda: ready(asked, metadata=(("x-forwarded-for", "192.0.2.7"),)))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED


def test_keys_come_as_metadata_and_need_their_scopes(
    own: Callable[..., tuple[Any, Channel]], dial: Callable[..., Channel]
) -> None:
    service, open_ = own()
    store = KeyStore(service.runtime.database)
    admin = dial(service, store.create("ops", ["admin"])[1])
    predicting = dial(service, store.create("app", ["predict"], requests_per_s=2.0)[1])
    feeding = dial(service, store.create("labels", ["feedback"])[1])
    scraping = dial(service, store.create("prometheus", ["metrics"])[1])
    service.application._access.refresh()
    image = {"model_name": "digits", **IMAGE}

    assert open_("ServerLive").live
    assert open_("ServerReady").ready
    error = refused(lambda: open_("ModelInfer", **image))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert dict(error.trailing_metadata())["candor-error"] == "unauthenticated"
    assert refused(lambda: open_("ModelMetadata", name="digits")).code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused(lambda: feeding("ModelInfer", **image)).code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused(lambda: feeding("RepositoryModelUnload", model_name="digits")).code() is (
        grpc.StatusCode.PERMISSION_DENIED
    )
    assert feeding("ModelReady", name="digits").ready
    assert refused(lambda: scraping("ModelReady", name="digits")).code() is grpc.StatusCode.PERMISSION_DENIED
    assert admin("RepositoryModelLoad", model_name="digits").isLoaded

    stream = open_.channel.stream_stream(STREAM)(iter([request()]))
    assert refused(lambda: list(stream)).code() is grpc.StatusCode.UNAUTHENTICATED

    def until_limited() -> Any:
        for _ in range(100):
            predicting("ModelInfer", **image)

    error = refused(until_limited)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())["retry-after"] == "1"

    health = health_pb2_grpc.HealthStub(open_.channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == Serving.SERVING
    model = health_pb2.HealthCheckRequest(service="digits")
    assert refused(lambda: health.Check(model)).code() is grpc.StatusCode.UNAUTHENTICATED
    assert health.Check(model, metadata=admin._metadata).status == Serving.SERVING


def test_who_came_and_who_was_refused_is_in_the_audit_log(
    own: Callable[..., tuple[Any, Channel]], dial: Callable[..., Channel]
) -> None:
    service, nobody = own()
    store = KeyStore(service.runtime.database)
    (key, text), (other, weak) = store.create("till", ["predict"]), store.create("labels", ["feedback"])
    service.application._access.refresh()
    till, feeding = dial(service, text), dial(service, weak)
    answers = [till("ModelInfer", model_name="digits", **IMAGE) for _ in range(2)]
    stream = till.channel.stream_stream(STREAM)(iter([request()]), metadata=till._metadata)
    answers += [message("ModelStreamInferResponse").FromString(one).infer_response for one in stream]
    for channel in (nobody, feeding, feeding):
        refused(lambda channel=channel: channel("ModelInfer", model_name="digits", **IMAGE))
    log = {row.action: row for row in entries(service)}
    ids = [answer.parameters["prediction_ids"].string_param for answer in answers]
    assert (log["predict"].by, log["predict"].subject) == ("till", key.prefix)
    counts = {"requests": 3, "rows": 3, "first": ids[0], "last": ids[-1], "sha256": digest_of("".join(ids).encode())}
    assert log["predict"].detail["models"] == {"digits": counts}
    came = {"address": "127.0.0.1", "path": "ModelInfer"}
    assert log["refuse_requests"].detail["requests"] == [
        came | {"status": 403, "key": other.prefix, "requests": 2},
        came | {"status": 401, "key": None, "requests": 1},
    ]


def test_a_key_for_another_model_infers_and_reads_nothing(
    own: Callable[..., tuple[Any, Channel]], dial: Callable[..., Channel]
) -> None:
    service, _ = own()
    store = KeyStore(service.runtime.database)
    mine, other = (dial(service, store.create(name, ["admin"], models=[name])[1]) for name in ("digits", "birds"))
    service.application._access.refresh()
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("ModelInfer", {"model_name": "digits", **IMAGE}),
        ("ModelReady", {"name": "digits"}),
        ("ModelMetadata", {"name": "digits"}),
        ("ModelStatistics", {"name": "digits"}),
        ("RepositoryModelLoad", {"model_name": "digits"}),
        ("RepositoryModelLoad", {"repository_name": "digits"}),  # as KServe's clients name it
    )
    for method, fields in asked:
        assert mine(method, **fields)
        assert refused(lambda m=method, f=fields: other(m, **f)).code() is grpc.StatusCode.PERMISSION_DENIED
    for method in ("ModelStatistics", "RepositoryIndex"):  # of all models
        assert refused(lambda m=method: mine(m)).code() is grpc.StatusCode.PERMISSION_DENIED
    assert other("ServerMetadata").name
    everywhere = dial(service, store.create("all", ["admin"])[1])
    service.application._access.refresh()
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):  # not the default model
        error = refused(lambda m=method: everywhere(m))
        assert (error.code(), error.details().split(".")[0]) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "The message names no model",
        )
    assert everywhere("ModelReady", name="digits").ready


def test_a_deadline_is_honoured_and_a_request_given_up_is_not_run(
    own: Callable[..., tuple[Any, Channel]], hold: Callable[[Any], Any]
) -> None:
    service, channel = own()
    held = hold(service.runtime.models.get("digits").plane)
    first = infer(channel, wait_for_ready=True)
    held.wait_until_busy()
    late, gone, kept = infer(channel, timeout=0.2), infer(channel), infer(channel)
    assert refused(late.result).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    gone.cancel()
    until(lambda: service.metric("candor_grpc_requests_total", method="ModelInfer", code="CANCELLED") == 2)
    until(lambda: service.runtime.models.get("digits").plane.queued_rows)
    held.go.set()
    for answered in (first, kept):
        assert answered.result(PATIENCE_S)
    assert held.runs == [[1], [1]]
    assert service.metric("candor_grpc_requests_total", method="ModelInfer", code="OK") == 2
    assert service.metric("candor_grpc_request_seconds_count", method="ModelInfer") == 4


def test_a_message_beyond_the_limit_is_refused_compressed_too(call: Channel) -> None:
    method = call.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        error = refused(lambda: method(bytes(9 * 2**20), compression=compression))  # noqa: B023
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_request_id_is_given_back_and_an_unexpected_error_names_no_details(
    speaking: Any, call: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = call.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    _, answered = method.with_call(request(), metadata=(("x-request-id", "mine"),))
    assert dict(answered.trailing_metadata())["x-request-id"] == "mine"

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(speaking.runtime.models, "get", broken)
    error = refused(lambda: method(request()))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert "x-request-id" in dict(error.trailing_metadata())


def connect(service: Any, source: str = "127.0.0.1") -> socket.socket:
    target = "127.0.0.1", service.runtime.settings.grpc_port
    return socket.create_connection(target, PATIENCE_S, (source, 0))


def is_open(client: socket.socket) -> bool:
    """Whether the server has not closed a connection that its preface came on."""
    return not select.select([client], [], [], 0)[0] or client.recv(65_536) != b""


def test_only_so_many_connections_are_accepted(speak: Callable[..., Any]) -> None:
    service = speak(max_connections=3)
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(connect(service)) for _ in range(3)]
        assert all(client.recv(65_536) for client in kept)
        assert stack.enter_context(connect(service)).recv(65_536) == b""
        kept[0].close()
        until(lambda: stack.enter_context(connect(service)).recv(65_536) != b"", "a place that is free again")


def test_an_address_keeps_only_so_many_connections(own: Callable[..., tuple[Any, Channel]]) -> None:
    service, channel = own(max_connections_per_address=3)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(service, "127.0.0.2")) for _ in range(5)]
        assert all(client.recv(65_536) for client in clients)
        until(lambda: sum(map(is_open, clients)) == 3, "two are closed")
        assert channel("ServerLive").live  # from another address


def test_the_newest_connections_of_an_address_are_closed() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
        port = server.getsockname()[1]
        accepted: list[socket.socket] = []

        def connect(source: str) -> socket.socket:
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0)))
            accepted.append(stack.enter_context(server.accept()[0]))
            accepted[-1].sendall(b"preface")
            assert made.recv(100)
            return made

        connections = ConnectionsByAddress(port, 2)
        first = [connect("127.0.0.2"), connect("127.0.0.2")]
        assert connections.close_excess() == {}
        more = [connect("127.0.0.2"), connect("127.0.0.3"), connect("127.0.0.2")]
        assert connections.close_excess() == {"127.0.0.2": 2}
        assert [is_open(client) for client in (*first, *more)] == [True, True, False, True, False]
        for gone in (0, 2, 4):
            accepted[gone].close()
        more.append(connect("127.0.0.2"))
        assert connections.close_excess() == {}
        assert is_open(more[-1])


def test_the_watch_goes_on_after_there_were_too_many_open_files() -> None:
    async def run() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        watching = asyncio.create_task(ConnectionsByAddress(9, 1).watch())
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            await asyncio.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert not watching.done()
        watching.cancel()

    with capture_logs() as logs:
        asyncio.run(run())
    assert [line["event"] for line in logs] == ["gRPC connections cannot be counted"]


def test_reflection_describes_the_service(call: Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(call.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE.full_name),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"),
    ]
    listed, own, health = stub.ServerReflectionInfo(iter(asked))
    assert {one.name for one in listed.list_services_response.service} >= {SERVICE.full_name, "grpc.health.v1.Health"}
    assert own.file_descriptor_response.file_descriptor_proto == [SERVICE.file.serialized_pb]
    assert health.file_descriptor_response.file_descriptor_proto


def test_health_follows_the_models(own: Callable[..., tuple[Any, Channel]]) -> None:
    _, channel = own()
    health = health_pb2_grpc.HealthStub(channel.channel)
    digits = health_pb2.HealthCheckRequest(service="digits")
    watch = health.Watch(digits, wait_for_ready=True)
    assert next(watch).status == Serving.SERVING
    channel("RepositoryModelUnload", model_name="digits")
    assert next(watch).status == Serving.NOT_SERVING
    assert health.Check(digits).status == Serving.NOT_SERVING
    watch.cancel()
    unknown = health_pb2.HealthCheckRequest(service="letters")
    assert refused(lambda: health.Check(unknown)).code() is grpc.StatusCode.NOT_FOUND
    assert next(health.Watch(unknown)).status == Serving.SERVICE_UNKNOWN


@pytest.mark.parametrize("name", ["", "digits"])
def test_a_delayed_stop_is_told_at_once_and_once(own: Callable[..., tuple[Any, Channel]], name: str) -> None:
    service, channel = own()
    health, asked = health_pb2_grpc.HealthStub(channel.channel), health_pb2.HealthCheckRequest(service=name)
    watch = health.Watch(asked, wait_for_ready=True)
    assert next(watch).status == Serving.SERVING
    service.runtime.others.stopping = True
    assert next(watch).status == Serving.NOT_SERVING
    assert health.Check(asked).status == Serving.NOT_SERVING
    service.close()
    assert list(watch) == []


def test_a_stop_answers_what_is_in_progress_and_ends_streams(
    own: Callable[..., tuple[Any, Channel]], hold: Callable[[Any], Any]
) -> None:
    service, channel = own()
    held = hold(service.runtime.models.get("digits").plane)
    requests: list[bytes] = [request(id="1")]
    ended = threading.Event()

    def open_stream() -> Iterator[bytes]:
        yield from requests
        ended.wait(PATIENCE_S)  # a client that has more to ask later

    stream = channel.channel.stream_stream(STREAM)(open_stream(), wait_for_ready=True)
    held.wait_until_busy()
    waiting = infer(channel)
    held.wait_for_rows(1)
    with ThreadPoolExecutor() as threads:
        closing = threads.submit(service.close)
        health = health_pb2_grpc.HealthStub(channel.channel)
        until(lambda: _refuses(health))
        held.go.set()
        assert waiting.result(PATIENCE_S)
        assert next(stream)
        assert refused(lambda: next(stream)).code() is grpc.StatusCode.UNAVAILABLE
        ended.set()
        closing.result(PATIENCE_S)


def _refuses(health: Any) -> bool:
    try:
        health.Check(health_pb2.HealthCheckRequest())
    except grpc.RpcError:
        return True
    return False


def test_a_port_in_use_is_an_error_at_start(digits: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        application = create_app(settings_of(digits, tmp_path, grpc_port=other.getsockname()[1]))
        try:
            with pytest.raises(ConfigurationError, match=r"could not listen on .*: Address already in use"):
                asyncio.run(application.grpc.start())
            assert application.grpc.refused is not None
        finally:
            application.runtime.close()
