"""Predictions and labels without ASGI: whichever way a request takes, its answer is the same, byte for byte."""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pytest

from bundle.images import encode_png
from service.rest.connections import Connection, Cycle
from service.rest.direct import Direct
from service.rest.paths import Target
from service.state.keys import KeyStore
from tests.array_files import npy
from tests.waiting import PATIENCE_S, until

PREDICT, INFER = "/v1/models/digits/predict", "/v2/models/digits/infer"
INSTANCES = "/v1/models/digits:predict"
IMAGES = (np.arange(3 * 64, dtype=np.uint8) % 17).reshape(3, 8, 8, 1)
JSON, NPY = "application/json", "application/x-npy"
_VARYING = ((rb"[0-7][0-9A-HJKMNP-TV-Z]{25}", b"ID"), (rb"\r\ndate: [^\r]*", b"\r\ndate: now"))


def tensors(images: np.ndarray, **more: Any) -> bytes:
    entry = {"name": "input", "shape": images.shape, "datatype": "UINT8", "data": images.ravel().tolist()}
    return json.dumps({"inputs": [entry], **more}).encode()


def binary(images: np.ndarray) -> tuple[bytes, int]:
    size = {"binary_data_size": images.nbytes}
    entry = {"name": "input", "shape": images.shape, "datatype": "UINT8", "parameters": size}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return head + images.tobytes(), len(head)


class Asked(NamedTuple):
    path: str
    body: bytes
    content_type: str = JSON
    more: str = ""
    status: int = 200


BINARY, LENGTH = binary(IMAGES)
PNG = base64.b64encode(encode_png(IMAGES[0])).decode()
FEEDBACK = "/v1/models/digits/feedback"
LABEL = json.dumps({"items": [{"reference": "direct", "label": "1"}]}).encode()
ONCE = "idempotency-key: direct\r\n"  # all ways get the first receipt
ROWS = json.dumps({"inputs": IMAGES.tolist(), "references": ["a", "b", None]}).encode()
REQUESTS = {
    "npy": Asked(PREDICT, npy(IMAGES), NPY),
    "default model": Asked("/predict?policy=auto-read&top=2&segment=north", npy(IMAGES), NPY),
    "quoted path": Asked("/v1/models/%64igits/predict", npy(IMAGES), NPY),
    "JSON": Asked(PREDICT, ROWS),
    "PNG": Asked(PREDICT, encode_png(IMAGES[0]), "image/png"),
    "instances": Asked(f"{INSTANCES}?policy=auto-read&segment=north", ROWS.replace(b"inputs", b"instances")),
    "instance of PNG": Asked(INSTANCES, json.dumps({"instances": [{"b64": PNG}]}).encode()),
    "large answer": Asked(PREDICT, npy(np.zeros((1000, 8, 8, 1), np.uint8)), NPY),
    "V2 JSON": Asked(INFER, tensors(IMAGES, id="mine")),
    "V2 version": Asked("/v2/models/digits/versions/r1/infer", tensors(IMAGES)),
    "V2 binary": Asked(INFER, BINARY, "application/octet-stream", f"inference-header-content-length: {LENGTH}\r\n"),
    "V2 compressed": Asked(INFER, tensors(np.repeat(IMAGES, 9, 0)), more="accept-encoding: gzip\r\n"),
    "no JSON": Asked(PREDICT, b"{", status=400),
    "empty": Asked(PREDICT, b"", status=400),
    "V2 empty": Asked(INFER, b"", status=400),
    "shape": Asked(PREDICT, npy(IMAGES[:, :3]), NPY, status=422),
    "V2 value": Asked(INFER, tensors(IMAGES).replace(b"16,", b"300,", 1), status=422),
    "V2 boolean": Asked(INFER, tensors(IMAGES).replace(b" 1,", b" true,", 1), status=422),
    "V2 text": Asked(INFER, tensors(IMAGES).replace(b" 1,", b' "1",', 1), status=422),
    "V2 fraction": Asked(INFER, tensors(IMAGES).replace(b" 1,", b" 1.5,", 1), status=422),
    "instance": Asked(INSTANCES, b'{"instances": [[1]]}', status=422),
    "no instances": Asked(INSTANCES, b"{}", status=400),
    "query": Asked(f"{PREDICT}?colour=red", npy(IMAGES), NPY, status=422),
    "policy": Asked(f"{PREDICT}?policy=none", npy(IMAGES), NPY, status=404),
    "model": Asked("/v1/models/none/predict", npy(IMAGES), NPY, status=404),
    "V2 model": Asked("/v2/models/none/infer", tensors(IMAGES), status=404),
    "media type": Asked(PREDICT, b"x", "application/pdf", status=415),
    "label": Asked(FEEDBACK, LABEL, more=ONCE),
    "label of the default model": Asked("/feedback", LABEL, more=ONCE),
    "label of no model": Asked("/v1/models/none/feedback", LABEL, status=404),
    "unknown label": Asked(FEEDBACK, LABEL.replace(b'"1"', b'"x"'), status=422),
    "no label": Asked(FEEDBACK, b"", status=422),
    "label in another media type": Asked(FEEDBACK, LABEL, "text/plain", status=415),
    "another label under a key": Asked(FEEDBACK, LABEL.replace(b'"1"', b'"2"'), more=ONCE, status=409),
}
ASGI, DIRECT = False, True


def head(asked: Asked, framing: str, *, version: str = "1.1") -> bytes:
    return (
        f"POST {asked.path} HTTP/{version}\r\nhost: localhost\r\ncontent-type: {asked.content_type}\r\n"
        f"{asked.more}x-request-id: mine\r\n{framing}\r\n"
    ).encode()


def with_length(asked: Asked, more: str = "", *, version: str = "1.1") -> bytes:
    return head(asked, f"content-length: {len(asked.body)}\r\n{more}", version=version) + asked.body


def chunked(asked: Asked) -> bytes:
    pieces = [asked.body[at : at + 100] for at in range(0, len(asked.body), 100)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head(asked, "transfer-encoding: chunked\r\n") + chunks + b"0\r\n\r\n"


def compressed(asked: Asked) -> bytes:
    return with_length(asked._replace(body=gzip.compress(asked.body), more=f"{asked.more}content-encoding: gzip\r\n"))


CLOSE = b"connection: close\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
Connected = tuple[socket.socket, BinaryIO]
# By name: what is sent, whether it is answered without ASGI, and how the answer differs from the plain one.
WAYS: dict[str, tuple[Callable[[Asked], bytes], bool, Callable[[bytes], bytes]]] = {
    "plain": (with_length, DIRECT, bytes),
    "chunked": (chunked, ASGI, bytes),
    "compressed": (compressed, ASGI, bytes),
    "expecting": (lambda asked: with_length(asked, "expect: 100-continue\r\n"), ASGI, bytes),
    "closing": (
        lambda asked: with_length(asked, "connection: close\r\n"),
        DIRECT,
        lambda answer: answer.replace(b"\r\n\r\n", b"\r\n" + CLOSE, 1),
    ),
    "HTTP/1.0": (
        lambda asked: with_length(asked, version="1.0"),
        ASGI,
        lambda answer: answer.replace(b"\r\n\r\n", b"\r\n" + CLOSE, 1),
    ),
    "HTTP/1.0 expecting": (
        lambda asked: with_length(asked, "expect: 100-continue\r\n", version="1.0"),
        ASGI,
        lambda answer: answer.replace(b"\r\n\r\n", b"\r\n" + CLOSE, 1),
    ),
    "HTTP/1.0 keep-alive": (
        lambda asked: with_length(asked, "connection: keep-alive\r\n", version="1.0"),
        ASGI,
        lambda answer: answer.replace(b"\r\n\r\n", b"\r\n" + CLOSE, 1),
    ),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests that are answered without ASGI."""
    paths: list[str] = []
    call = Direct.__call__

    def noting(self: Direct, target: Target, scope: Any) -> Any:
        paths.append(target.path)
        return call(self, target, scope)

    monkeypatch.setattr(Direct, "__call__", noting)
    return paths


@pytest.fixture
def connected(shared: Any) -> Iterator[Connected]:
    with closing(connect(shared)) as client, client.makefile("rb") as stream:
        yield client, stream


def connect(service: Any) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def has_begun(service: Any, client: socket.socket) -> bool:
    """Return whether a connection is in the middle of a request."""
    port, connections = client.getsockname()[1], service._server.server_state.connections
    return any(one.client[1] == port and one._since is not None for one in connections)


def answer_in(stream: BinaryIO, *, to_head: bool = False) -> bytes:
    """Return the next answer as it came, without what varies."""
    lines = [stream.readline()]
    while lines[-1] not in (b"\r\n", b""):
        lines.append(stream.readline())
    start = b"".join(lines)
    length = re.search(rb"\r\ncontent-length: (\d+)\r\n", start)
    content = b"" if length is None or to_head else stream.read(int(length[1]))
    if b"\r\ncontent-encoding: gzip\r\n" in start:  # its length depends on what varies
        start, content = re.sub(rb"content-length: \d+", b"content-length: N", start), gzip.decompress(content)
    answer = start + content
    for pattern, instead in _VARYING:
        answer = re.sub(pattern, instead, answer)
    return answer


@pytest.fixture
def used_key(shared: Any) -> None:
    """Use the idempotency key for the first label."""
    headers = {"content-type": JSON, "idempotency-key": "direct"}
    assert shared.http.post(FEEDBACK, content=LABEL, headers=headers).status_code == 200


@pytest.mark.usefixtures("used_key")
@pytest.mark.parametrize("name", list(REQUESTS))
def test_every_way_of_sending_a_request_gets_the_same_answer(name: str, shared: Any, taken: list[str]) -> None:
    asked = REQUESTS[name]
    plain = None
    for way, (write, direct, differing) in WAYS.items():
        if way == "compressed" and not asked.body:
            continue
        with closing(connect(shared)) as client, client.makefile("rb") as stream:
            client.sendall(write(asked))
            answer = answer_in(stream)
            if answer == CONTINUE:
                assert way == "expecting"
                answer = answer_in(stream)
            else:  # what is refused by its head does not ask for the body
                assert way != "expecting" or asked.status != 200
            plain = plain or answer
            assert answer == differing(plain), way
            assert answer.startswith(b"HTTP/1.1 %d " % asked.status)
            assert bool(taken) is direct, way
            taken.clear()
            if b"connection: close" in answer:
                assert stream.read() == b""
            else:  # the connection is still good
                client.sendall(with_length(asked))
                assert answer_in(stream) == plain, way
                taken.clear()


def test_a_body_may_come_in_pieces(connected: Connected, taken: list[str]) -> None:
    client, stream = connected
    asked = REQUESTS["npy"]
    sent = with_length(asked)
    client.sendall(sent)
    whole = answer_in(stream)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(sent), 40):
        client.sendall(sent[start : start + 40])
    assert answer_in(stream) == whole
    assert taken == [PREDICT] * 2


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Targets of the requests whose head was parsed, on connections that are opened later."""
    targets: list[bytes] = []
    complete = Connection.on_headers_complete

    def noting(self: Connection) -> None:
        targets.append(self.url)
        complete(self)

    monkeypatch.setattr(Connection, "on_headers_complete", noting)
    return targets


@pytest.mark.parametrize("name", ["npy", "V2 JSON", "V2 binary", "shape", "model", "unknown label"])
def test_a_head_that_a_client_repeats_is_parsed_once(
    name: str, parsed: list[bytes], connected: Connected, taken: list[str]
) -> None:
    client, stream = connected
    sent = with_length(REQUESTS[name])
    answers = []
    for _ in range(3):
        client.sendall(sent)
        answers.append(answer_in(stream))
    assert answers[0] == answers[1] == answers[2]
    assert len(taken) == 3
    assert len(parsed) == 1


def test_what_only_starts_like_the_last_request_is_parsed(
    shared: Any, parsed: list[bytes], connected: Connected
) -> None:
    client, stream = connected
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked = REQUESTS["npy"]
    other = asked._replace(body=npy(IMAGES[::-1]))
    third = REQUESTS["V2 JSON"]
    sent, before = with_length(asked), with_length(third)
    expected = []
    for one in (asked, other, third):
        client.sendall(with_length(one))
        expected.append(answer_in(stream))
    assert len({*expected}) == 3
    for pieces, answers, heads in (
        ([sent], [0], 1),
        ([sent[:100], sent[100:]], [0], 1),
        ([sent[:-1], sent[-1:]], [0], 1),
        ([sent + sent], [0, 0], 2),
        ([sent + before[:50], before[50:]], [0, 2], 2),
        ([sent], [0], 0),  # the end of the other head was not remembered
        ([before + b"\r\n"], [2], 1),  # the parser passes over line ends
        ([before + b"\n"], [2], 1),
        ([before], [2], 1),
        ([before], [2], 0),
        ([sent], [0], 1),
        ([with_length(other)], [1], 0),
        ([b"\r\n" + sent], [0], 1),
        ([chunked(asked)], [0], 1),
        ([sent], [0], 1),
        ([sent], [0], 0),
        ([sent.replace(b"mine", b"your", 1)], [0], 1),
    ):
        parsed.clear()
        for piece in pieces:
            if piece is not pieces[0]:  # else they may arrive together
                until(lambda: has_begun(shared, client))
            client.sendall(piece)
        for place in answers:
            assert answer_in(stream).replace(b"x-request-id: your", b"x-request-id: mine") == expected[place]
        assert len(parsed) == heads, pieces


def test_the_end_of_a_head_is_no_head(shared: Any, parsed: list[bytes], connected: Connected) -> None:
    """Else it would be answered as the request that it came from."""
    client, stream = connected
    first, second = with_length(REQUESTS["npy"]), with_length(REQUESTS["V2 JSON"])
    cut = second.index(b"content-type") + 3
    client.sendall(first + second[:cut])
    assert answer_in(stream)[9:12] == b"200"
    until(lambda: has_begun(shared, client))
    client.sendall(second[cut:])
    assert answer_in(stream)[9:12] == b"200"
    assert len(parsed) == 2
    client.sendall(second[cut:])
    assert answer_in(stream)[9:12] == b"400"


def test_who_repeats_a_head_is_looked_at_again(start: Callable[..., Any], parsed: list[bytes]) -> None:
    service = start()
    keys = KeyStore(service.runtime.database)
    key, secret = keys.create("mine", ["predict"])
    service.application.follow()
    sent = with_length(REQUESTS["npy"]._replace(more=f"authorization: Bearer {secret}\r\n"))
    with closing(connect(service)) as client, client.makefile("rb") as stream:
        for _ in range(2):
            client.sendall(sent)
            assert answer_in(stream)[9:12] == b"200"
        assert parsed.count(PREDICT.encode()) == 1
        keys.revoke(key.prefix)
        service.application.follow()
        client.sendall(sent)
        assert answer_in(stream)[9:12] == b"401"
    assert parsed.count(PREDICT.encode()) == 2


def test_what_needs_no_body_to_be_refused_is_refused_without_it(connected: Connected, taken: list[str]) -> None:
    client, stream = connected
    sent = with_length(REQUESTS["model"])
    client.sendall(sent[:-1])
    refused = answer_in(stream)
    assert refused.startswith(b"HTTP/1.1 404 ")
    client.sendall(sent[-1:] + sent)
    assert answer_in(stream) == refused
    assert len(taken) == 2


def test_requests_sent_together_are_answered_in_order(shared: Any, connected: Connected, hold: Any) -> None:
    """The first is held up, so the others wait for it; a head is answered without its body, and spoils nothing."""
    client, stream = connected
    asked = [REQUESTS[name] for name in ("npy", "model", "V2 JSON", "JSON")]
    expected = []
    for one in asked:
        client.sendall(with_length(one))
        expected.append(answer_in(stream))
    options = b"OPTIONS /predict HTTP/1.1\r\nhost: localhost\r\nx-request-id: mine\r\n\r\n"
    client.sendall(options)
    refused = answer_in(stream)
    assert refused.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: POST\r\n" in refused
    held = hold(shared.runtime.models.get("digits").plane)
    first, *others = map(with_length, asked)
    client.sendall(first + options + b"".join(others[:1]) + options.replace(b"OPTIONS", b"HEAD") + b"".join(others[1:]))
    held.wait_until_busy()
    held.go.set()
    assert answer_in(stream) == expected[0]
    assert answer_in(stream) == refused
    assert answer_in(stream) == expected[1]
    assert answer_in(stream, to_head=True) == refused.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert [answer_in(stream), answer_in(stream)] == expected[2:]


@pytest.mark.parametrize(
    ("name", "route"), [("npy", "/v1/models/{model}/predict"), ("instances", "/v1/models/{model}:predict")]
)
def test_a_client_that_leaves_is_dropped_from_the_queue_and_counted(
    name: str, route: str, shared: Any, hold: Any, taken: list[str]
) -> None:
    def given_up() -> float:
        return shared.metric("candor_http_requests_total", status="499", route=route)

    plane = shared.runtime.models.get("digits").plane
    held, before, dropped = hold(plane), given_up(), plane.refusals.gone
    with closing(connect(shared)) as first, first.makefile("rb") as stream:
        first.sendall(with_length(REQUESTS["npy"]))
        held.wait_until_busy()
        with closing(connect(shared)) as second, closing(connect(shared)) as third:
            second.sendall(with_length(REQUESTS[name]))
            held.wait_for_rows(len(IMAGES))
            third.sendall(with_length(REQUESTS[name])[:-1])
            until(lambda: len(taken) == 3, lambda: taken)
        until(lambda: given_up() == before + 2, given_up)
        held.go.set()
        assert answer_in(stream).startswith(b"HTTP/1.1 200 ")
    until(lambda: plane.refusals.gone == dropped + 1, lambda: plane.refusals)
    assert held.runs == [[len(IMAGES)]]


def test_an_unexpected_error_is_answered_as_one(
    shared: Any, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = connected
    plane = shared.runtime.models.get("digits").plane
    monkeypatch.setattr(plane._batcher, "_run", lambda _: 1 / 0)
    answers = []
    for write in (with_length, chunked):
        client.sendall(write(REQUESTS["npy"]))
        answers.append(answer_in(stream))
    assert answers[0] == answers[1]
    assert answers[0].startswith(b"HTTP/1.1 500 ")
    monkeypatch.undo()
    client.sendall(with_length(REQUESTS["npy"]))
    assert answer_in(stream).startswith(b"HTTP/1.1 200 ")


def test_a_key_pays_once_for_a_request(start: Callable[..., Any], taken: list[str]) -> None:
    """A key that may send one request is refused the second, whichever way they take."""
    service = start()
    keys = KeyStore(service.runtime.database)
    _, reading = keys.create("reading", ["feedback"])
    paying = [keys.create(name, ["predict"], requests_per_s=1e-6)[1] for name in ("first", "second")]
    service.application.follow()
    for write, direct, own in ((with_length, DIRECT, paying[0]), (chunked, ASGI, paying[1])):
        answers = []
        for key in ("none", reading, own, own):
            with closing(connect(service)) as client, client.makefile("rb") as stream:
                client.sendall(write(REQUESTS["npy"]._replace(more=f"authorization: Bearer {key}\r\n")))
                answers.append(answer_in(stream)[9:12])
        assert answers == [b"401", b"403", b"200", b"429"]
        assert bool(taken) is direct
        taken.clear()


def test_a_stop_waits_for_the_answer(start: Callable[..., Any], hold: Any, taken: list[str]) -> None:
    service = start()
    held = hold(service.runtime.models.get("digits").plane)
    with closing(connect(service)) as client, client.makefile("rb") as stream:
        client.sendall(with_length(REQUESTS["npy"]))
        held.wait_until_busy()
        service._server.should_exit = True
        mine = next(
            connection for connection in service._server.server_state.connections if isinstance(connection.cycle, Cycle)
        )
        until(lambda: not mine.cycle.keep_alive, lambda: mine.cycle)
        held.go.set()
        answer = answer_in(stream)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in answer
        assert stream.read() == b""
    assert taken == [PREDICT]
