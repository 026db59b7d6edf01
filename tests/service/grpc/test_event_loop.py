"""No message that anyone may send keeps the event loop, and with it all other calls, waiting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from service.errors import MalformedBodyError
from service.grpc.messages import SERVICE, message
from service.grpc.wire import count_parts
from tests.service.rest.test_event_loop import LARGE, LONGEST_S, TRIES, Beats

from .conftest import Channel

SMALL = 60_000
Request = message("ModelInferRequest")
PARAMETERS = b"".join(b'"\x05\x0a\x03%c%c%c' % (n & 127, n >> 7 & 127, n >> 14) for n in range(LARGE // 7))


def infer(**tensor: Any) -> bytes:
    named = {"name": "input", "datatype": "BOOL", "shape": [1, 8, 8, 1]} | tensor
    content: bytes = Request(model_name="digits", inputs=[named]).SerializeToString()
    return content


MESSAGES = {
    "empty inputs": b"*\x00" * (LARGE // 2),
    "empty outputs": infer() + b"2\x00" * (LARGE // 2 - 100),
    "empty raw contents": infer() + b":\x00" * (LARGE // 2 - 100),
    "parameters": infer() + PARAMETERS[:-700],
    "texts": infer(datatype="BYTES", contents={"bytes_contents": [b""] * (LARGE // 2 - 100)}),
    "numbers": infer(contents={"bool_contents": [True] * (LARGE - 100)}),
    "dimensions": infer(shape=[1] * (LARGE // 4)),
}


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
@pytest.mark.parametrize("content", MESSAGES)
def test_no_message_keeps_others_waiting(
    speaking: Any, dial: Callable[..., Channel], content: str, method: str
) -> None:
    channel = dial(speaking).channel
    path = f"/{SERVICE.full_name}/{method}"
    whole = MESSAGES[content]
    named = Request(model_name="digits").SerializeToString()  # of two messages in a row, a parser makes one
    longest_s = LONGEST_S * (2 if content == "numbers" else 1)  # one call of the parser, in C, takes 40 ms for 8 MiB
    for body in (whole, named + whole[:SMALL]):
        found = []
        for _ in range(TRIES):
            beats = Beats(speaking)
            with beats.counted():
                if method == "ModelInfer":
                    with pytest.raises(grpc.RpcError) as error:
                        channel.unary_unary(path)(body, wait_for_ready=True)
                    code = error.value.code()
                    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), error.value
                else:
                    assert len(list(channel.stream_stream(path)(iter([body]), wait_for_ready=True))) == 1
            found.append(beats.longest_s)
            if found[-1] < longest_s:
                break
        assert min(found) < longest_s, f"{len(body)} bytes: the loop waited for {min(found):.3f} s each time"


@given(
    names=st.lists(st.text(max_size=200), max_size=4),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    raw=st.lists(st.binary(max_size=300), max_size=4),
    most=st.integers(0, 30),
)
def test_parts_are_counted(names: list[str], shape: list[int], raw: list[bytes], most: int) -> None:
    request = Request(id="x", raw_input_contents=raw)
    for name in names:
        request.inputs.add(name=name, shape=shape).parameters["a"].double_param = 1.0
    each = (
        1 + bool(shape) + 4
    )  # the tensor, its dimensions, and an entry of a map with a key and a message of one field
    parts = 1 + len(raw) + sum(each + bool(name) for name in names)
    assert count_parts(Request, request.SerializeToString(), most) == min(parts, most + 1)


@given(st.lists(st.sampled_from([0, 1, 2, 5, 8, 10, 34, 42, 58, 13, 57, 128, 255]), max_size=40).map(bytes))
def test_bytes_that_parse_are_counted(data: bytes) -> None:
    try:
        Request.FromString(data)
    except DecodeError:
        with suppress(MalformedBodyError):
            count_parts(Request, data, 100)
    else:
        assert count_parts(Request, data, 100) <= len(data)
