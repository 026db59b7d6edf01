"""Whatever headers and bodies come to the Open Inference Protocol: always JSON, 5xx only where a request is late."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hardening.running import Running
from tests.waiting import PATIENCE_S

PATHS = [
    "/v2/models/digits/infer",
    "/v2/models/digits/versions/1/infer",
    "/v2/models/nobody/infer",
    "/v2/models/a%0Ab/infer",
]
LENGTH = "inference-header-content-length"


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=PATIENCE_S) as one:
        yield one


def answered(client: httpx.Client, path: str, body: bytes, headers: dict[str, bytes]) -> httpx.Response:
    """Post, and check that what comes is an answer or an error of the protocol."""
    response = client.post(path, content=body, headers=[(name.encode(), value) for name, value in headers.items()])
    late = response.status_code == 504 and b'"timeout"' in body  # which may name a microsecond
    assert response.status_code < 500 or late, response.text
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/json"
        assert set(response.json()) == {"error"}
        assert response.json()["error"]
    else:
        length = int(response.headers.get(LENGTH, len(response.content)))
        assert json.loads(response.content[:length])["model_name"] == "digits"
    return response


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SIZES = st.sampled_from([0, 1, 3, 8, 63, 64, 65, 2**31, 2**63, 10**30, -1, 1.5, True, None, "64"])
SHAPES = st.sampled_from([[1, 8, 8, 1], [8, 8, 1], [8, 8], [64], [1, 64], [0, 8, 8, 1], [2, 8, 8, 1], [1] * 40]) | ANY
NUMBERS = ["UINT8", "UINT16", "INT8", "INT64", "FP16", "BF16", "FP32", "FP64"]
DATATYPES = st.sampled_from([*NUMBERS, "BYTES", "BOOL", "FP8", "uint8"]) | ANY
DATA = st.lists(st.integers(-1, 256), min_size=64, max_size=64) | st.just([0] * 64) | st.just([[[[0]] * 8] * 8]) | ANY
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "binary_data_size": SIZES,
        "binary_data": ANY,
        "classification": SIZES,
        "shared_memory_region": ANY,
        "policy": st.sampled_from(["auto-read", "nobody"]) | ANY,
        "timeout": SIZES,
        "segment": ANY,
        "binary_data_output": st.booleans() | ANY,
    },
)


def tensors(name: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"name": name, "shape": SHAPES, "datatype": DATATYPES}, optional={"data": DATA, "parameters": PARAMETERS | ANY}
    )


REQUESTS = st.fixed_dictionaries(
    {
        "inputs": st.lists(
            tensors(st.sampled_from(["input", "references", "groups", "segments", "x"]) | ANY), max_size=3
        )
    },
    optional={
        "id": ANY,
        "parameters": PARAMETERS | ANY,
        "outputs": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["logits", "probabilities", "confidence", "decision"]) | ANY},
                optional={"parameters": PARAMETERS | ANY},
            )
            | ANY,
            max_size=3,
        )
        | ANY,
        "more": ANY,
    },
)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=20)
LENGTHS = st.integers(-1, 400).map(lambda n: str(n).encode()) | st.sampled_from([b"9" * 30, b"1e2", b"+1", b"1, 1"])


@given(document=REQUESTS | ANY, path=st.sampled_from(PATHS))
@settings(max_examples=150)
def test_any_json(client: httpx.Client, document: Any, path: str) -> None:
    body = json.dumps(document).encode("utf-8", "surrogatepass")
    answered(client, path, body, {"content-type": b"application/json"})


@given(
    document=REQUESTS,
    behind=st.binary(max_size=80) | st.just(bytes(64)),
    length=st.none() | LENGTHS,
    off=st.sampled_from([0, 0, 0, 1, -1]),
)
@settings(max_examples=150)
def test_tensors_behind_the_json(
    client: httpx.Client, document: Any, behind: bytes, length: bytes | None, off: int
) -> None:
    head = json.dumps(document).encode("utf-8", "surrogatepass")
    given_length = str(len(head) + off).encode() if length is None else length
    headers = {"content-type": b"application/octet-stream", LENGTH: given_length}
    answered(client, PATHS[0], head + behind, headers)


@given(
    shape=st.lists(st.integers(0, 9), max_size=5),
    elements=st.lists(st.binary(max_size=20), max_size=4),
    claimed=st.lists(st.integers(0, 2**32 - 1), max_size=4),
    size_off=st.integers(-5, 5),
)
@settings(max_examples=75)
def test_elements_of_a_bytes_tensor(
    client: httpx.Client, shape: list[int], elements: list[bytes], claimed: list[int], size_off: int
) -> None:
    sizes = [*claimed, *map(len, elements[len(claimed) :])]
    data = b"".join(struct.pack("<I", size) + element for size, element in zip(sizes, elements, strict=False))
    tensor: dict[str, Any] = {"name": "input", "shape": shape, "datatype": "BYTES"}
    tensor["parameters"] = {"binary_data_size": len(data) + size_off}
    head = json.dumps({"inputs": [tensor]}).encode()
    answered(client, PATHS[0], head + data, {LENGTH: str(len(head)).encode()})


HEADERS = st.dictionaries(
    st.sampled_from(
        ["content-type", "accept-encoding", "content-encoding", "traceparent", "x-request-id", "authorization", LENGTH]
    ),
    VALUES.map(lambda value: value.strip().encode("latin-1")),
    max_size=3,
)


@given(headers=HEADERS, body=st.binary(max_size=100) | st.just(bytes(64)))
@settings(max_examples=100)
def test_any_headers(client: httpx.Client, headers: dict[str, bytes], body: bytes) -> None:
    answered(client, PATHS[0], body, headers)


def test_what_is_right_is_answered(client: httpx.Client) -> None:
    """Else all of the above could be refused for another reason."""
    assert answered(client, PATHS[0], bytes(64), {LENGTH: b"0"}).status_code == 200
