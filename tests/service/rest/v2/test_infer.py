"""Inference over HTTP as any client may send it: every corner of the protocol, right and wrong."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from bundle.images import encode_png
from service.open_inference.datatypes import DATATYPES
from service.state.keys import KeyStore
from tests.waiting import until

PATH = "/v2/models/digits/infer"
LENGTH = "inference-header-content-length"


def described(array: np.ndarray, datatype: str, **more: Any) -> dict[str, Any]:
    return {"name": "input", "shape": list(array.shape), "datatype": datatype, **more}


def in_json(array: np.ndarray, datatype: str = "UINT8", **more: Any) -> bytes:
    return json.dumps({"inputs": [described(array, datatype, data=array.ravel().tolist())], **more}).encode()


def in_binary(data: bytes, array: np.ndarray, datatype: str, **more: Any) -> tuple[bytes, dict[str, str]]:
    entry = described(array, datatype, parameters={"binary_data_size": len(data)})
    head = json.dumps({"inputs": [entry], **more}).encode()
    return head + data, {LENGTH: str(len(head))}


def outputs_of(response: httpx.Response) -> dict[str, Any]:
    """Return the outputs of an answer as arrays and lists of strings, by name."""
    assert response.status_code == 200, response.text
    length = response.headers.get(LENGTH)
    body = response.content
    document = json.loads(body if length is None else body[: int(length)])
    rest = b"" if length is None else body[int(length) :]
    outputs: dict[str, Any] = {}
    for output in document["outputs"]:
        if "data" in output:
            values = output["data"]
        else:
            size = output["parameters"]["binary_data_size"]
            data, rest = rest[:size], rest[size:]
            assert len(data) == size
            values = strings(data) if output["datatype"] == "BYTES" else np.frombuffer(data, "<f4").tolist()
        if output["datatype"] == "BYTES":
            outputs[output["name"]] = np.array(values, dtype=object).reshape(output["shape"]).tolist()
        else:
            outputs[output["name"]] = np.array(values, dtype=np.float32).reshape(output["shape"])
    assert not rest
    return outputs


def strings(data: bytes) -> list[str]:
    texts = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        texts.append(data[4 : 4 + length].decode())
        data = data[4 + length :]
    return texts


@pytest.fixture(scope="module")
def ask(shared: Any) -> Callable[..., httpx.Response]:
    def post(body: bytes, path: str = PATH, **headers: str) -> httpx.Response:
        return shared.http.post(path, content=body, headers={name.replace("_", "-"): headers[name] for name in headers})

    return post


@pytest.fixture(scope="module")
def expected(shared: Any, digits: Any) -> np.ndarray:
    """What /v1 says of the first images."""
    predictions = shared.predict(digits.images[:3])
    return np.array([list(row["probabilities"].values()) for row in predictions], dtype=np.float32)


class TestInputs:
    @pytest.mark.parametrize("content_type", [None, "application/octet-stream", "text/plain", "image/png", "nonsense"])
    def test_the_content_type_is_not_looked_at(
        self, shared: Any, digits: Any, expected: np.ndarray, content_type: str | None
    ) -> None:
        request = shared.http.build_request("POST", PATH, content=in_json(digits.images[:3]))
        request.headers.pop("content-type", None)
        if content_type is not None:
            request.headers["content-type"] = content_type
        answer = outputs_of(shared.http.send(request))
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)

    @pytest.mark.parametrize("datatype", [name for name in DATATYPES if name not in ("INT8", "BF16")])
    def test_numbers_of_any_type_are_taken_where_no_value_is_lost(
        self, ask: Any, digits: Any, expected: np.ndarray, datatype: str
    ) -> None:
        images = digits.images[:3]
        body, headers = in_binary(images.astype(DATATYPES[datatype].dtype).tobytes(), images, datatype)
        np.testing.assert_allclose(outputs_of(ask(body, **headers))["probabilities"], expected, atol=1e-6)
        if DATATYPES[datatype].code is not None:
            body = in_json(images if DATATYPES[datatype].whole else images.astype(float), datatype)
            np.testing.assert_allclose(outputs_of(ask(body))["probabilities"], expected, atol=1e-6)

    def test_data_may_be_nested_and_the_batch_axis_left_out(self, ask: Any, digits: Any, expected: np.ndarray) -> None:
        images = digits.images[:3]
        nested = json.dumps({"inputs": [described(images, "UINT8", data=images.tolist())]}).encode()
        np.testing.assert_allclose(outputs_of(ask(nested))["probabilities"], expected, atol=1e-6)
        single = outputs_of(ask(in_json(images[0])))
        np.testing.assert_allclose(single["probabilities"], expected[:1], atol=1e-6)

    def test_a_body_without_json_is_the_tensor_alone(self, ask: Any, digits: Any, expected: np.ndarray) -> None:
        response = ask(digits.images[:3].tobytes(), inference_header_content_length="0")
        assert int(response.headers[LENGTH]) > 0  # outputs come in the same form
        np.testing.assert_allclose(outputs_of(response)["probabilities"], expected, atol=1e-6)

    def test_encoded_images_are_a_tensor_of_bytes(self, ask: Any, digits: Any, expected: np.ndarray) -> None:
        files = [encode_png(image) for image in digits.images[:3]]
        data = b"".join(struct.pack("<I", len(file)) + file for file in files)
        body, headers = in_binary(data, np.empty(3), "BYTES")
        np.testing.assert_allclose(outputs_of(ask(body, **headers))["probabilities"], expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("encoding", "pack"),
        [
            ("gzip", gzip.compress),
            ("GZIP", gzip.compress),
            ("deflate", zlib.compress),
            ("deflate", lambda body: zlib.compress(body, wbits=-15)),
            ("identity", bytes),
        ],
    )
    def test_bodies_may_be_compressed(
        self, ask: Any, digits: Any, expected: np.ndarray, encoding: str, pack: Callable[[bytes], bytes]
    ) -> None:
        images = digits.images[:3]
        body, headers = in_binary(images.tobytes(), images, "UINT8")
        for sent, more in ((in_json(images), {}), (body, headers)):
            answer = outputs_of(ask(pack(sent), content_encoding=encoding, **more))
            np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)


class TestAnswers:
    def test_without_outputs_all_come_in_the_form_that_was_asked_for(self, ask: Any, digits: Any) -> None:
        images = digits.images[:2]
        plain = ask(in_json(images))
        assert plain.headers["content-type"] == "application/json"
        assert LENGTH not in plain.headers
        behind = ask(in_json(images, parameters={"binary_data_output": True}))
        assert behind.headers["content-type"] == "application/octet-stream"
        first, second = outputs_of(plain), outputs_of(behind)
        assert list(first) == list(second) == ["logits", "probabilities", "confidence", "decision"]
        for name in ("logits", "probabilities", "confidence"):
            np.testing.assert_allclose(first[name], second[name], atol=1e-5)
        assert first["probabilities"].shape == (2, 10)
        assert first["confidence"].shape == (2,)
        np.testing.assert_allclose(first["probabilities"].sum(axis=1), 1, atol=1e-5)
        assert first["decision"] == second["decision"] == ["", ""]  # among several policies none is the default
        assert ask(in_json(images, outputs=[])).json()["outputs"][0]["name"] == "logits"

    def test_an_output_may_differ_from_the_default_of_the_request(self, ask: Any, digits: Any) -> None:
        response = ask(
            in_json(
                digits.images[:1],
                parameters={"binary_data_output": True},
                outputs=[{"name": "confidence", "parameters": {"binary_data": False}}, {"name": "logits"}],
            )
        )
        head = json.loads(response.content[: int(response.headers[LENGTH])])
        assert [("data" in output) for output in head["outputs"]] == [True, False]

    @pytest.mark.parametrize("name", ["logits", "probabilities"])
    @pytest.mark.parametrize("binary", [True, False])
    def test_classification(self, ask: Any, digits: Any, name: str, binary: bool) -> None:
        wanted = [{"name": name, "parameters": {"classification": 2, "binary_data": binary}}]
        rows = outputs_of(ask(in_json(digits.images[:3], outputs=wanted)))[name]
        values = outputs_of(ask(in_json(digits.images[:3])))[name]
        assert np.array(rows).shape == (3, 2)
        for row, all_values in zip(rows, values, strict=True):
            for text, column in zip(row, np.argsort(-all_values, kind="stable")[:2], strict=True):
                value, index, label = text.split(":", 2)
                assert (int(index), label) == (column, digits.bundle.manifest.labels[column])
                np.testing.assert_allclose(np.float32(value), all_values[column], rtol=1e-5)

    def test_parameters_without_an_effect_are_taken(self, ask: Any, digits: Any) -> None:
        """Triton's clients send some of them, and those of MLServer others, on every level."""
        codec = {"content_type": "np", "headers": {"x-request-id": "1"}}
        none = {"sequence_id": 0, "sequence_start": False, "sequence_end": False, "priority": 0}
        document = json.loads(in_json(digits.images[:1]))
        document["parameters"] = codec | none | {"triton_enable_empty_final_response": True}
        document["inputs"][0]["parameters"] = codec
        document["outputs"] = [{"name": "confidence", "parameters": codec}]
        assert set(outputs_of(ask(json.dumps(document).encode()))) == {"confidence"}

    def test_the_policy_decides_from_the_parameters_as_from_the_query(self, ask: Any, digits: Any) -> None:
        images = digits.images[:20]
        first = ask(in_json(images, parameters={"policy": "auto-read"}))
        second = ask(in_json(images), path=f"{PATH}?policy=auto-read")
        assert outputs_of(first)["decision"] == outputs_of(second)["decision"]
        assert set(outputs_of(first)["decision"]) <= {"accept", "review"}
        assert first.json()["parameters"]["policy"] == "auto-read@1"
        both = ask(in_json(images, parameters={"policy": "auto-read"}), path=f"{PATH}?policy=auto-read")
        assert refused(both, 422).startswith("The policy is given twice.")

    def test_the_answer_names_the_request_the_model_and_the_version(self, ask: Any, digits: Any) -> None:
        response = ask(in_json(digits.images[:1], id='"42" \N{SNOWMAN}'), x_request_id="mine")
        document = response.json()
        assert (document["model_name"], document["model_version"], document["id"]) == (
            "digits",
            "1",
            '"42" \N{SNOWMAN}',
        )
        assert response.headers["x-candor-revision"] == "r1"
        assert response.headers["x-request-id"] == "mine"
        assert "id" not in ask(in_json(digits.images[:1])).json()

    @pytest.mark.parametrize("accepted", ["gzip", "deflate", "br, deflate;q=0.5, gzip", "*"])
    def test_answers_are_compressed_where_that_is_accepted_and_pays(self, ask: Any, digits: Any, accepted: str) -> None:
        plain = ask(in_json(digits.images[:100]), accept_encoding="identity")
        packed = ask(in_json(digits.images[:100]), accept_encoding=accepted)
        assert packed.headers["content-encoding"] == ("deflate" if accepted == "deflate" else "gzip")
        assert int(packed.headers["content-length"]) < len(plain.content)
        np.testing.assert_allclose(outputs_of(packed)["logits"], outputs_of(plain)["logits"], atol=1e-4)
        confidence = [{"name": "confidence"}]
        short = ask(in_json(digits.images[:1], outputs=confidence), accept_encoding=accepted)
        assert "content-encoding" not in short.headers

    @pytest.mark.parametrize("accepted", ["br", "identity", "gzip;q=0", ""])
    def test_answers_are_not_compressed_otherwise(self, ask: Any, digits: Any, accepted: str) -> None:
        assert "content-encoding" not in ask(in_json(digits.images[:100]), accept_encoding=accepted).headers

    def test_nothing_but_inference_answers_is_compressed(self, shared: Any) -> None:
        for path in ("/v2", "/v2/models/digits/config", "/v2/models/stats", "/v2/models/nothing"):
            assert "content-encoding" not in shared.http.get(path, headers={"accept-encoding": "gzip"}).headers


def refused(response: httpx.Response, status: int) -> str:
    """Return the text of an error, which must be in the protocol's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    return document["error"]


IMAGE = np.zeros((1, 8, 8, 1), np.uint8)
TENSOR = described(IMAGE, "UINT8", data=[0] * 64)
NAME = {"name": "references", "shape": [1], "datatype": "BYTES", "data": ["a"]}


def body(tensor: Any = None, **changes: Any) -> bytes:
    """A request with something in its tensor, or in itself, that is not right."""
    inputs = [TENSOR | tensor] if isinstance(tensor, dict) else [TENSOR]
    document = {"inputs": inputs} | changes
    return json.dumps({key: value for key, value in document.items() if value is not ...}).encode()


class TestRefused:
    @pytest.mark.parametrize(
        ("sent", "status", "text"),
        [
            (b"", 400, "The body is empty"),
            (b"{", 400, "not valid JSON"),
            (b"[]", 400, "must be a JSON object"),
            (b"{}", 400, "requires `inputs`"),
            (body(inputs={}), 400, "requires `inputs`"),
            (body(inputs=[]), 422, "one input tensor"),
            (body(inputs=[3]), 422, "one input tensor"),
            (body(inputs=[TENSOR, TENSOR]), 422, "one input tensor"),
            (body(inputs=[TENSOR, {**TENSOR, "name": "mask"}]), 422, 'Found: ["input", "mask"]'),
            (body(inputs=[TENSOR, NAME, NAME]), 422, 'Found: ["input", "references", "references"]'),
            (body(inputs=[NAME]), 422, "one input tensor"),
            (body(inputs=[TENSOR, NAME | {"datatype": "UINT8"}]), 422, "Where: /inputs/1/datatype. Found: UINT8"),
            (body(inputs=[TENSOR, NAME | {"shape": [1, 2], "data": ["a", "b"]}]), 422, "requires exactly one name"),
            (body(inputs=[TENSOR, NAME | {"shape": [2], "data": ["a", "b"]}]), 422, "`references` must have one entry"),
            (body(inputs=[NAME | {"data": ["a" * 201]}, TENSOR]), 422, "Where: row 0 of /inputs/0. Found: 201"),
            (body(inputs=[NAME | {"data": ["a\0"]}, TENSOR]), 422, "none of them NUL"),
            (body(inputs=[NAME | {"data": [None]}, TENSOR]), 422, "strings only"),
            (body(inputs=[NAME, TENSOR | {"shape": [1, 8, 7, 1], "data": [0] * 56}]), 422, "row 0 of /inputs/1"),
            (
                body(inputs=[TENSOR, NAME | {"name": "segments"}], parameters={"segment": "b"}),
                422,
                "The segment is given twice",
            ),
            (body({"name": "image"}), 422, "named 'input'"),
            (body({"name": ["input"]}), 422, "named 'input'"),
            (body({"shape": None}), 422, "array of sizes"),
            (body({"shape": [1, 8, 8, True]}), 422, "array of sizes"),
            (body({"shape": [-1, 8, 8, 1]}), 422, "Found: [-1, 8, 8, 1]"),
            (body({"shape": [1.0, 8, 8, 1]}), 422, "array of sizes"),
            (body({"shape": [1] * 33}), 422, "too many axes"),
            (body({"shape": [2**62, 2**62, 8, 8, 1]}), 422, "does not match its shape"),
            (body({"shape": [2**62] * 32}), 422, "does not match its shape"),
            (body({"shape": [0, 8, 8, 1], "data": []}), 422, "empty"),
            (body({"shape": [1, 8, 7, 1], "data": [0] * 56}), 422, "shape [8, 8, 1]"),
            (body({"shape": [64]}), 422, "shape [8, 8, 1]"),
            (body({"shape": [2, 8, 8, 1]}), 422, "Found: 64 values. Expected: 128 values"),
            (body({"datatype": "FP32", "data": [0] * 63 + [0.5]}), 422, "row 0 of /inputs/0. Found: 0.5 (FP32)"),
            (body({"datatype": "BOOL", "data": [True] * 64}), 422, "The model takes UINT8"),
            (body({"datatype": "UINT9"}), 422, "Found: UINT9"),
            (body({"datatype": None}), 422, "Found: null"),
            (body({"datatype": ["UINT8"]}), 422, "Found: array"),
            (body({"data": "AAAA"}), 422, "`data` must be an array"),
            (body({"data": None}), 422, "Found: neither"),
            (body({"data": [0] * 63 + [256]}), 422, "not a valid UINT8"),
            (body({"data": [0] * 63 + [-1]}), 422, "not a valid UINT8"),
            (body({"datatype": "INT64", "data": [0] * 63 + [-1]}), 422, "UINT8 cannot hold a value of the tensor"),
            (body({"datatype": "INT64", "data": [0] * 63 + [2**64]}), 422, "integers only"),
            (body({"data": [0] * 63 + [1.0]}), 422, "integers only"),
            (body({"data": [0] * 63 + [True]}), 422, "integers only"),
            (body({"data": [0] * 63 + ["1"]}), 422, "integers only"),
            (body({"data": [0] * 63 + [None]}), 422, "integers only"),
            (body({"data": [[0] * 8] * 8}), 422, "does not match `shape`"),
            (body({"data": [[[[0]] * 8] * 7 + [[[0]] * 7]]}), 422, "does not match `shape`"),
            (body({"data": [[[[[0]]] * 8] * 8]}), 422, "integers only"),
            (body({"parameters": []}), 422, "`parameters` must be an object"),
            (body({"parameters": {"binary_data_size": 64}}), 422, "Found: both"),
            (body({"parameters": {"binary_data_size": -1}, "data": None}), 422, "number of bytes"),
            (body({"parameters": {"binary_data_size": True}, "data": None}), 422, "number of bytes"),
            (body({"parameters": {"binary_data_size": 64}, "data": None}), 400, "bytes after the JSON part"),
            (body({"parameters": {"shared_memory_region": "r"}}), 422, "Shared memory"),
            (body({"datatype": "BYTES", "shape": [1], "data": ["no image"]}), 422, "not base64"),
            (body({"datatype": "BYTES", "shape": [1], "data": [1]}), 422, "strings only"),
            (body({"datatype": "BYTES", "shape": [5000], "data": ["x"] * 5000}), 422, "at most 1024"),
            (body(outputs={}), 400, "`outputs` must be an array"),
            (body(outputs=[1]), 422, "Unknown output"),
            (body(outputs=[{"name": "label"}]), 422, "Unknown output"),
            (body(outputs=[{"name": ["logits"]}]), 422, "Unknown output"),
            (body(outputs=[{"name": "logits"}] * 2), 422, "Duplicate output"),
            (body(outputs=[{"name": "logits", "parameters": {"binary_data": 1}}]), 422, "true or false"),
            (body(outputs=[{"name": "logits", "parameters": {"classification": "3"}}]), 422, "number of classes"),
            (body(outputs=[{"name": "logits", "parameters": {"classification": -3}}]), 422, "number of classes"),
            (body(outputs=[{"name": "logits", "parameters": {"classification": True}}]), 422, "number of classes"),
            (body(outputs=[{"name": "confidence", "parameters": {"classification": 3}}]), 422, "value per class"),
            (body(outputs=[{"name": "decision", "parameters": {"classification": 1}}]), 422, "value per class"),
            (body(outputs=[{"name": "logits", "parameters": {"shared_memory_region": "r"}}]), 422, "Shared memory"),
            (body(id=7), 422, "`id` must be a string"),
            (body(parameters=7), 422, "`parameters` must be an object"),
            (body(parameters={"binary_data_output": "yes"}), 422, "true or false"),
            (body(parameters={"policy": 1}), 422, "`policy` must be a string"),
            (body(parameters={"policy": "mine"}), 404, "no policy 'mine'"),
            (body(parameters={"timeout": "soon"}), 422, "microseconds"),
            (body(parameters={"timeout": -1}), 422, "microseconds"),
            (body(parameters={"polcy": "p"}), 422, 'Found: polcy. Expected: ["policy", "segment", "references"'),
            (body(parameters={"polcy": "p"}), 422, "Did you mean `policy`?"),
            (body(parameters={"binary_data": True}), 422, "`binary_data` is a parameter of the output."),
            (body({"parameters": {"policy": "p"}}), 422, "Where: /inputs/0/parameters/policy. Found: policy"),
            (body(outputs=[{"name": "logits", "parameters": {"top": 1}}]), 422, "Where: /outputs/0/parameters/top"),
            (body(parameters={"sequence_id": 0, "sequence_start": True}), 422, "Where: /parameters/sequence_start"),
            (body(parameters={"sequence_id": "a"}), 422, "models keep no state between requests"),
            (body(parameters={"priority": 2}), 422, "answered in order of arrival"),
            (body().replace(b"[0, 0", b"[NaN, 0"), 400, "NaN and Infinity are not JSON"),
            (in_json(np.zeros((1025, 8, 8, 1), np.uint8)), 422, "at most 1024"),
        ],
    )
    def test_json(self, ask: Any, sent: bytes, status: int, text: str) -> None:
        assert text in refused(ask(sent), status)

    @pytest.mark.parametrize(
        ("length", "text"),
        [
            *((value, "does not fit the body") for value in (b"-1", b"+1", b"1e2", b"", b"x", b"0x10", b"\xb2")),
            *((value, "does not fit the body") for value in (b"1000000", b"9" * 30)),
            (b"1", "not valid JSON"),
            (b"0", "not a whole number of examples"),
        ],
    )
    def test_the_length_of_the_json_part(self, shared: Any, length: bytes, text: str) -> None:
        sent, _ = in_binary(IMAGE.tobytes(), IMAGE, "UINT8")
        response = shared.http.post(PATH, content=sent, headers={LENGTH.encode(): length})
        assert text in refused(response, 422 if length == b"0" else 400)

    def test_a_length_that_is_one_too_short_or_too_long(self, ask: Any) -> None:
        sent, headers = in_binary(IMAGE.tobytes(), IMAGE, "UINT8")
        for by in (-1, 1):
            refused(ask(sent, **{LENGTH: str(int(headers[LENGTH]) + by)}), 400)

    def test_two_lengths(self, shared: Any) -> None:
        sent, headers = in_binary(IMAGE.tobytes(), IMAGE, "UINT8")
        twice = [(LENGTH, headers[LENGTH])] * 2
        assert "does not fit the body" in refused(shared.http.post(PATH, content=sent, headers=twice), 400)

    def test_binary_data_that_is_not_what_the_tensor_says(self, ask: Any) -> None:
        data = IMAGE.tobytes()
        for wrong in (data[:-1], data + b"\0"):
            sent, headers = in_binary(wrong, IMAGE, "UINT8")
            assert "does not match its shape" in refused(ask(sent, **headers), 422)
        sent, headers = in_binary(data, IMAGE, "UINT8")
        for more in (sent + b"\0", sent[:-1]):
            assert "bytes after the JSON part" in refused(ask(more, **headers), 400)
        sent, headers = in_binary(b"", IMAGE, "UINT8")
        assert "does not match its shape" in refused(ask(sent, **headers), 422)
        assert "bytes after the JSON part" in refused(ask(body() + b"x", **{LENGTH: str(len(body()))}), 400)

    @pytest.mark.parametrize(
        "data", [b"", b"\1", b"\4\0\0\0abc", b"\xff\xff\xff\xffabcd", b"\3\0\0\0abc\0", b"\0\0\0\0\0\0\0\0"]
    )
    def test_bytes_that_do_not_add_up(self, ask: Any, data: bytes) -> None:
        sent, headers = in_binary(data, np.empty(1), "BYTES")
        assert "does not match its shape" in refused(ask(sent, **headers), 422)

    def test_bytes_that_are_no_image(self, ask: Any) -> None:
        sent, headers = in_binary(b"\3\0\0\0abc", np.empty(1), "BYTES")
        refused(ask(sent, **headers), 422)

    @pytest.mark.parametrize(
        ("encoding", "sent", "status", "text"),
        [
            ("br", body(), 415, "content encoding 'br'"),
            ("gzip, gzip", body(), 415, "content encoding"),
            ("gzip", body(), 400, "not gzip data"),
            # Without a time, which would be in the test's name: two processes must collect the same.
            ("gzip", gzip.compress(body(), mtime=0)[:-1], 400, "end too early"),
            ("gzip", gzip.compress(body(), mtime=0) + b"x", 400, "1 bytes follow"),
            ("gzip", b"", 400, "end too early"),
            ("deflate", body(), 400, "not deflate data"),
            ("deflate", zlib.compress(body())[:-1], 400, "end too early"),
            ("gzip", gzip.compress(bytes(9 * 1024 * 1024), mtime=0), 413, "too large"),
            ("deflate", zlib.compress(bytes(9 * 1024 * 1024)), 413, "too large"),
        ],
    )
    def test_compression(self, ask: Any, encoding: str, sent: bytes, status: int, text: str) -> None:
        response = ask(sent, content_encoding=encoding)
        assert text in refused(response, status)
        assert response.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)

    def test_too_large(self, ask: Any) -> None:
        assert "too large" in refused(ask(bytes(9 * 1024 * 1024)), 413)

    @pytest.mark.parametrize("version", ["2", "r2", "0", "-1", "01", "latest", "1.0", "%00"])
    def test_versions_that_are_not_loaded(self, shared: Any, version: str) -> None:
        for method, path in (("POST", "infer"), ("GET", "ready"), ("GET", "config"), ("GET", "stats")):
            response = shared.http.request(method, f"/v2/models/digits/versions/{version}/{path}", content=body())
            assert 'Expected: ["1"]' in refused(response, 404)
        refused(shared.http.get(f"/v2/models/digits/versions/{version}"), 404)

    def test_paths_methods_and_queries_that_are_none(self, shared: Any, ask: Any) -> None:
        refused(shared.http.get("/v2/nothing"), 404)
        refused(shared.http.post("/v2/models/digits/explain", content=b"{}"), 404)
        refused(shared.http.post("/v2/health/live"), 405)
        response = shared.http.get(PATH)
        assert refused(response, 405) == "Method Not Allowed"
        assert response.headers["allow"] == "POST"
        assert "Unknown query parameter" in refused(ask(body(), path=f"{PATH}?top=1"), 422)
        twice = refused(ask(body(), path=f"{PATH}?segment=DE&policy=auto-read&segment=FR"), 422)
        assert twice.startswith("Duplicate query parameter. Where: ?segment.")
        assert "letters" in refused(ask(body(), path="/v2/models/letters/infer"), 404)

    def test_a_request_that_may_not_wait(self, start: Any, digits: Any) -> None:
        slow = start(batch_delay_s=0.5)
        response = slow.http.post(PATH, content=body(parameters={"timeout": 1000}))
        assert "deadline" in refused(response, 504)
        assert slow.http.post(PATH, content=body(parameters={"timeout": 0})).status_code == 200


class TestVersions:
    def test_the_active_and_the_one_before_answer_and_no_other(self, service: Any, digits: Any) -> None:
        def at(version: str, status: int = 200) -> Any:
            response = service.http.post(f"/v2/models/digits/versions/{version}/infer", content=body())
            assert response.status_code == status, response.text
            return response.json()

        second = service.propose_policy("mine")
        assert second == "r2"
        at("2", 404)  # a proposal is not in service
        service.activate(second)
        assert at("1")["model_version"] == "1"
        assert at("2")["model_version"] == at("r2")["model_version"] == "2"
        assert service.http.post(PATH, content=body()).json()["model_version"] == "2"
        assert service.http.get("/v2/models/digits").json()["versions"] == ["1", "2"]
        assert service.http.get("/v2/models/digits/versions/1").json()["versions"] == ["1"]
        decided = service.http.post(PATH, content=body(parameters={"policy": "mine"}))
        assert decided.json()["outputs"][3]["data"][0] in ("accept", "review")
        older = service.http.post("/v2/models/digits/versions/1/infer", content=body(parameters={"policy": "mine"}))
        assert "no policy 'mine'" in refused(older, 404)
        third = service.propose_policy("other")
        service.activate(third)
        at("1", 404)
        counts = {
            entry["version"]: entry["inference_count"]
            for entry in service.http.get("/v2/models/digits/stats").json()["model_stats"]
        }
        assert counts == {"2": 4, "3": 0}


@pytest.fixture(scope="module")
def locked(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that has keys."""
    running = launch(tmp_path_factory.mktemp("locked"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def keys(locked: Any) -> dict[str, dict[str, str]]:
    """Headers with a key for each scope."""
    store = KeyStore(locked.runtime.database)
    made = {
        scope: {"authorization": f"Bearer {store.create(scope, [scope])[1]}"}
        for scope in ("predict", "feedback", "admin")
    }
    until(lambda: locked.http.get("/v2").status_code == 401)  # until the first key has been noticed
    return made


class TestKeys:
    @pytest.mark.parametrize(
        ("method", "path", "scope"),
        [
            ("POST", PATH, "predict"),
            ("POST", "/v2/models/digits/versions/1/infer", "predict"),
            ("POST", "/v2/repository/models/digits/load", "admin"),
            ("POST", "/v2/repository/index", None),
            ("GET", "/v2", None),
            ("GET", "/v2/models/digits", None),
            ("GET", "/v2/models/digits/ready", None),
            ("GET", "/v2/models/stats", None),
        ],
    )
    def test_a_key_and_its_scope(self, locked: Any, keys: Any, method: str, path: str, scope: str | None) -> None:
        content = body() if "infer" in path else b""
        without = locked.http.request(method, path, content=content)
        assert "requires an API key" in refused(without, 401)
        assert without.headers["www-authenticate"] == "Bearer"
        other = locked.http.request(method, path, content=content, headers=keys["feedback"])
        if scope is None:
            assert other.status_code == 200
        else:
            assert scope in refused(other, 403)
            assert locked.http.request(method, path, content=content, headers=keys[scope]).status_code == 200
        assert locked.http.request(method, path, content=content, headers=keys["admin"]).status_code == 200

    def test_health_needs_none(self, locked: Any, keys: Any) -> None:
        assert locked.http.get("/v2/health/live").json() == {"live": True}
        assert locked.http.get("/v2/health/ready").json() == {"ready": True}
