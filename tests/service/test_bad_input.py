"""What cannot be used is refused with its status, its type, what was found and what was expected."""

from __future__ import annotations

import gc
import gzip
import io
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from bundle.images import encode_png
from service.errors import InputError, InputValueError, MalformedBodyError
from tests.array_files import npy
from tests.waiting import until

NPY = {"content-type": "application/x-npy"}
PNG = {"content-type": "image/png"}
JSON = {"content-type": "application/json"}
ZERO = np.zeros((8, 8, 1), np.uint8)
UNKNOWN_ID = "01J00000000000000000000000"


def with_header(header: str, data: bytes = b"") -> bytes:
    """A .npy file of format 1.0 with any header."""
    encoded = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded + data


def header(descr: str = "'|u1'", order: str = "False", shape: str = "(1, 8, 8, 1)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def problem(response: httpx.Response, status: int, kind: str | None = None) -> dict[str, Any]:
    """Check that an answer is the expected problem document and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    if kind is not None:
        assert document["type"] == f"/errors/{kind}", document
        assert document["detail"]
    return document


def inputs(*examples: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": [e.tolist() if isinstance(e, np.ndarray) else e for e in examples], **more}).encode()


def count_errors() -> int:
    return sum(type(thing) in (InputError, InputValueError, MalformedBodyError) for thing in gc.get_objects())


class TestPredict:
    @pytest.mark.parametrize(
        ("body", "status", "kind", "where", "found", "expected"),
        [
            (inputs(ZERO[:7]), 422, "input-shape", "/inputs/0", [7, 8, 1], [8, 8, 1]),
            (inputs(ZERO, ZERO[:7]), 422, "input-shape", "/inputs/1", [7, 8, 1], [8, 8, 1]),
            (inputs(ZERO[None]), 422, "input-shape", "/inputs/0", [1, 8, 8, 1], [8, 8, 1]),
            (inputs(1, 2), 422, "input-shape", "/inputs/0", [], [8, 8, 1]),
            (inputs([[1, 2], [3]]), 422, "input-shape", "/inputs/0", "ragged lists", [8, 8, 1]),
            (inputs(), 422, "input-shape", "/inputs", 0, "at least 1 example"),
            (inputs([]), 422, "input-shape", "/inputs/0", [0], [8, 8, 1]),
            (inputs(ZERO / 1.0), 422, "input-type", "/inputs", "float64", "uint8"),
            (inputs([["1"] * 8] * 8), 422, "input-type", "/inputs/0", "values that are not numbers", "uint8"),
            (inputs([[None] * 8] * 8), 422, "input-type", "/inputs/0", "values that are not numbers", "uint8"),
            (inputs([[True] * 8] * 8), 422, "input-type", "/inputs/0", "values that are not numbers", "uint8"),
            (inputs({"a": 1}), 422, "input-type", "/inputs/0", "values that are not numbers", "uint8"),
            (inputs("zeros"), 422, "input-value", "/inputs/0", "zeros", None),
            (inputs(ZERO, ZERO + np.int64(256)), 422, "input-value", "/inputs/1", 256, "0 to 255"),
            (inputs(ZERO - np.int64(1)), 422, "input-value", "/inputs/0", -1, "0 to 255"),
            (inputs(ZERO + np.int64(2**62)), 422, "input-value", "/inputs/0", 2**62, "0 to 255"),
            (b'{"inputs": 7}', 422, "input-type", "/inputs", "number", "array"),
            (b'{"inputs": "abc"}', 422, "input-type", "/inputs", "string", "array"),
            (b'{"inputs": null}', 422, "input-type", "/inputs", "null", "array"),
            (b"{}", 400, "malformed-body", "/inputs", [], ["inputs", "references", "groups", "segments", "amounts"]),
            (inputs(ZERO, extra=1), 400, "malformed-body", "/extra", ["extra", "inputs"], None),
            (b"[1, 2]", 400, "malformed-body", None, "array", "object"),
            (b"", 400, "malformed-body", None, "0 bytes", None),
            (b'{"inputs": [NaN]}', 400, "malformed-body", None, None, None),
            (b'{"inputs": [Infinity]}', 400, "malformed-body", None, None, None),
            (b'{"inputs": [[1, 2', 400, "malformed-body", None, None, None),
            (b"\xff\xfe", 400, "malformed-body", None, None, None),
            (b'{"inputs":' * 5000 + b"0" + b"}" * 5000, 400, "malformed-body", None, None, None),
            (b'{"inputs":' + b"[" * 500 + b"1" + b"]" * 500 + b"}", 422, "input-shape", None, None, None),
            (gzip.compress(inputs(ZERO), mtime=0), 400, "malformed-body", None, None, None),
            (inputs(ZERO, references=["a", "b"]), 422, "input-shape", "/references", 2, 1),
            (inputs(ZERO, groups=[]), 422, "input-shape", "/groups", 0, 1),
            (inputs(ZERO, references="a"), 422, "input-type", "/references", None, "array of strings or nulls"),
            (inputs(ZERO, references=[7]), 422, "input-type", "/references", None, "array of strings or nulls"),
            (inputs(ZERO, references=[""]), 422, "input-value", "/references/0", "0 characters", None),
            (inputs(ZERO, references=["a\0b"]), 422, "input-value", "/references/0", "3 characters, with a NUL", None),
            (inputs(ZERO, groups=["g" * 201]), 422, "input-value", "/groups/0", "201 characters", None),
            (inputs(*[ZERO] * 1025), 422, "input-shape", "/inputs", 1025, "at most 1024"),
        ],
    )
    def test_json(
        self, shared: Any, body: bytes, status: int, kind: str, where: str | None, found: Any, expected: Any
    ) -> None:
        document = problem(shared.http.post("/predict", content=body, headers=JSON), status, kind)
        assert where is None or document["where"] == where
        assert found is None or document["found"] == found
        assert expected is None or document["expected"] == expected

    @pytest.mark.parametrize(
        ("body", "status", "kind"),
        [
            (npy(ZERO[None])[:-1], 400, "malformed-body"),
            (npy(ZERO[None])[:40], 400, "malformed-body"),
            (npy(ZERO[None])[:7], 400, "malformed-body"),
            (npy(ZERO[None]) + b"\0", 400, "malformed-body"),
            (b"", 400, "malformed-body"),
            (b"PK\x03\x04", 400, "malformed-body"),
            (b"\x93NUMPY\x09\x09" + npy(ZERO[None])[8:], 400, "malformed-body"),
            (npy(np.float32([[[[np.nan]] * 8] * 8])), 422, "input-type"),
            (npy(ZERO[None].astype(np.complex64)), 422, "input-type"),
            (npy(ZERO[None].astype(bool)), 422, "input-type"),
            (npy(ZERO[None].astype("U1")), 422, "input-type"),
            (npy(ZERO[None].astype("datetime64[s]")), 422, "input-type"),
            (npy(ZERO[None].astype(object), allow_pickle=True), 422, "input-type"),
            (npy(np.zeros(3, [("a", "u1"), ("b", "f4")])), 422, "input-type"),
            (npy(np.zeros((0, 8, 8, 1), np.uint8)), 422, "input-shape"),
            (npy(np.uint8(7)), 422, "input-shape"),
            (npy(np.zeros((1025, 8, 8, 1), np.uint8)), 422, "input-shape"),
            (npy(ZERO[None].astype(np.int16) - 1), 422, "input-value"),
            (npy(ZERO[None].astype(np.uint64) + 2**63), 422, "input-value"),
            (with_header(header(shape="(1000000000000, 8, 8, 1)")), 400, "malformed-body"),
            (with_header(header(shape="(99999999999999999999999, 99999999999999999999)")), 400, "malformed-body"),
            (with_header(header(shape="(-1, -64)"), bytes(64)), 400, "malformed-body"),
            (with_header(header(shape="(-1, 0)")), 400, "malformed-body"),
            (with_header(header(shape=f"({'1, ' * 70})"), bytes(1)), 400, "malformed-body"),
            (with_header(header(shape="(True, 8, 8, 1)"), bytes(64)), 400, "malformed-body"),
            (with_header(header(shape="8"), bytes(8)), 400, "malformed-body"),
            (with_header(header(descr="'no such type'")), 400, "malformed-body"),
            (with_header(header(descr="[]")), 422, "input-type"),
            (with_header(header(descr="[[[[]]]]")), 400, "malformed-body"),
            (with_header(header(descr="('|u1', (8, 8, 1))", shape="(1,)"), bytes(64)), 422, "input-type"),
            (with_header("{[]: 1}"), 400, "malformed-body"),
            (with_header("__import__('os').abort()"), 400, "malformed-body"),
            (with_header("'''"), 400, "malformed-body"),
            (with_header("(" * 1000), 400, "malformed-body"),
            (with_header("\x00" * 64), 400, "malformed-body"),
            (with_header("{'descr': '|u1'}"), 400, "malformed-body"),
            (with_header(" " * 60000), 400, "malformed-body"),
        ],
    )
    def test_npy(self, shared: Any, body: bytes, status: int, kind: str) -> None:
        problem(shared.http.post("/predict", content=body, headers=NPY), status, kind)

    def test_a_header_that_promises_much_allocates_nothing(self, shared: Any) -> None:
        body = with_header(header(shape="(1000000000, 8, 8, 1)"), bytes(64))
        document = problem(shared.http.post("/predict", content=body, headers=NPY), 400, "malformed-body")
        assert document["found"] == "64 bytes of data"
        assert document["expected"].startswith("64000000000 bytes")

    @pytest.mark.parametrize(
        ("body", "content_type"),
        [
            (encode_png(ZERO)[:-20], "image/png"),
            (encode_png(ZERO)[:30], "image/png"),
            (b"", "image/png"),
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (b"GIF89a" + bytes(64), "image/png"),
            (encode_png(ZERO).replace(b"IDAT", b"IDAX"), "image/png"),
            (encode_png(np.zeros((9, 8, 1), np.uint8)), "image/png"),
            (encode_png(ZERO)[:41] + b"\xff" + encode_png(ZERO)[42:], "image/png"),
            (b"\xff\xd8\xff\xe0" + bytes(30), "image/jpeg"),
            (b"RIFF\x00\x00\x00\x00WEBPVP8X" + b"\xff" * 30, "image/webp"),
        ],
    )
    def test_images(self, shared: Any, body: bytes, content_type: str) -> None:
        response = shared.http.post("/predict", content=body, headers={"content-type": content_type})
        document = problem(response, 422, "input-value")
        assert document["where"] == "/inputs/0"
        assert document["found"]
        assert document["expected"]

    def test_a_bomb_of_pixels_is_refused_by_its_header(self, shared: Any) -> None:
        stream = io.BytesIO()
        Image.new("1", (5000, 4000)).save(stream, "PNG")
        document = problem(shared.http.post("/predict", content=stream.getvalue(), headers=PNG), 422, "input-value")
        assert "at most 16000000" in str(document["expected"])

    def test_references_must_be_as_many_as_the_examples_even_for_one_without_a_batch_axis(self, shared: Any) -> None:
        one = ZERO[..., 0].tolist()
        body = {"inputs": one, "references": ["only"]}
        assert shared.http.post("/predict", json=body).json()["predictions"][0]["reference"] == "only"
        body = {"inputs": one, "references": ["many"] * 8}
        assert problem(shared.http.post("/predict", json=body), 422, "input-shape")["expected"] == 1

    @pytest.mark.parametrize("media", ["text/plain", "image/gif", "application/x-www-form-urlencoded", "é"])
    def test_content_types(self, shared: Any, media: str) -> None:
        headers = {"content-type": media.encode("latin-1")}
        document = problem(
            shared.http.post("/predict", content=inputs(ZERO), headers=headers), 415, "unsupported-media-type"
        )
        assert "image/png" in document["expected"]

    def test_a_content_type_may_carry_parameters(self, shared: Any) -> None:
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert shared.http.post("/predict", content=inputs(ZERO), headers=headers).status_code == 200

    @pytest.mark.parametrize(
        ("query", "status", "kind"),
        [
            ("top=00", 422, "input-value"),
            ("top=-1", 422, "input-value"),
            ("top=01", 422, "input-value"),
            ("top=" + "1" * 5000, 422, "input-value"),
            ("top=many", 422, "input-value"),
            ("top=%C2%B2", 422, "input-value"),
            ("polcy=auto-read", 422, "input-value"),
            ("policy=auto-read&policy=flag-zero", 422, "input-value"),
            ("top=1&top=1", 422, "input-value"),
            ("policy=nobody", 404, "unknown-policy"),
            ("policy=", 404, "unknown-policy"),
        ],
    )
    def test_queries(self, shared: Any, query: str, status: int, kind: str) -> None:
        problem(shared.http.post(f"/predict?{query}", content=inputs(ZERO), headers=JSON), status, kind)

    @pytest.mark.parametrize("top", ["10", "11", "999999999"])
    def test_more_than_all_is_all(self, shared: Any, top: str) -> None:
        answer = shared.http.post(f"/predict?top={top}", content=inputs(ZERO), headers=JSON)
        assert len(answer.json()["predictions"][0]["probabilities"]) == 10


class TestSize:
    @pytest.mark.parametrize("path", ["/predict", "/feedback", "/recalibrate"])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_twenty_megabytes_of_zeros(self, shared: Any, path: str, chunked: bool) -> None:
        zeros = bytes(20 * 1024 * 1024)

        def pieces() -> Iterator[bytes]:
            for _ in range(320):
                yield zeros[:65536]

        response = shared.http.post(path, content=pieces() if chunked else zeros, headers=JSON)
        document = problem(response, 413, "body-too-large")
        assert document["expected"] == f"at most {65536 if path == '/recalibrate' else 8388608} bytes"
        assert shared.http.get("/livez").status_code == 200

    @pytest.mark.parametrize("path", ["/predict", "/feedback"])
    @pytest.mark.parametrize("size", [100_000, 1_000_000])  # without ASGI, and with it
    def test_what_is_refused_leaves_without_the_collector(self, shared: Any, path: str, size: int) -> None:
        image = b'{"inputs": ["' + b"A" * size + b'"]}'
        gc.collect()
        kept = count_errors()
        gc.disable()
        try:
            for body in (b"{" + bytes(size), image):
                assert shared.http.post(path, content=body, headers=JSON).status_code in (400, 422)
            until(lambda: count_errors() <= kept, "the errors still hold the bodies")
        finally:
            gc.enable()


class TestNames:
    @pytest.mark.parametrize(
        ("method", "path", "kind"),
        [
            ("POST", "/v1/models/nobody/predict", "unknown-model"),
            ("POST", "/v1/models/nobody/feedback", "unknown-model"),
            ("POST", "/v1/models/nobody/recalibrate", "unknown-model"),
            ("GET", "/v1/models/nobody/revisions", "unknown-model"),
            ("GET", "/v1/models/nobody/revisions/r1", "unknown-model"),
            ("GET", "/v1/models/digits/revisions/r99", "unknown-revision"),
            ("GET", "/v1/models/digits/revisions/banana", "unknown-revision"),
            ("GET", "/v1/models/digits/revisions/r9999999999999999999999", "unknown-revision"),
            ("GET", "/v1/models/digits/revisions?before=banana", "unknown-revision"),
            ("POST", "/v1/models/digits/revisions/r99/activate", "unknown-revision"),
            ("GET", "/v1/models/digits/policies/nobody", "unknown-policy"),
            ("GET", "/v1/jobs/j99", "unknown-job"),
            ("GET", "/v1/jobs/banana", "unknown-job"),
            ("GET", "/v1/jobs/j99999999999999999999999", "unknown-job"),
        ],
    )
    def test_what_does_not_exist(self, shared: Any, method: str, path: str, kind: str) -> None:
        body = {"items": [{"reference": "a", "label": "1"}]} if path.endswith("feedback") else None
        response = shared.http.request(method, path, json=body, headers={"if-match": '"1"'})
        document = problem(response, 404, kind)
        assert document["found"]

    @pytest.mark.parametrize("path", ["/", "/nowhere", "/v1", "/v1/digits", "/predict/", "/%ff%00", "//predict"])
    def test_unknown_paths(self, shared: Any, path: str) -> None:
        problem(shared.http.get(path), 404)

    @pytest.mark.parametrize("path", ["/v1/models/", "/v1/models/digits/revisions/", "/metrics/", "/v2/models/digits/"])
    def test_a_slash_at_the_end_redirects_nowhere(self, shared: Any, path: str) -> None:
        """A redirect to a full address has the scheme http behind a proxy that speaks TLS."""
        response = shared.http.get(path)
        assert (response.status_code, "location" in response.headers) == (404, False)

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("GET", "/predict", "POST"),
            ("PUT", "/v1/models/digits/predict", "POST"),
            ("GET", "/feedback", "POST"),
            ("DELETE", "/v1/models/digits/revisions", "GET, HEAD"),
            ("PATCH", "/livez", "GET, HEAD"),
        ],
    )
    def test_wrong_methods(self, shared: Any, method: str, path: str, allowed: str) -> None:
        response = shared.http.request(method, path)
        problem(response, 405)
        assert response.headers["allow"] == allowed

    def test_wrong_methods_of_pages(self, shared: Any) -> None:
        response = shared.http.delete("/dashboard/login")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, POST")

    @pytest.mark.parametrize(("given", "found"), [("1e400", "inf"), ("NaN", "nan")])
    def test_numbers_that_are_not_finite_are_named(self, shared: Any, given: str, found: str) -> None:
        body, headers = f'{{"target": {{"0": {given}}}}}', {"content-type": "application/json"}
        response = shared.http.post("/v1/models/digits/prior-shift", content=body, headers=headers)
        assert problem(response, 422, "input-value")["found"] == found

    @pytest.mark.parametrize(
        ("given", "status", "kind"),
        [
            ([f'"{"9" * 30}"'], 412, "epoch-stale"),
            (['"banana"'], 412, "epoch-stale"),
            (['W/""'], 412, "epoch-stale"),
            (["*"], 428, "epoch-required"),
            ([""], 428, "epoch-required"),
            (["banana"], 422, "input-value"),
            (["9" * 5000], 422, "input-value"),
            (["-1"], 422, "input-value"),
            (["1.5"], 422, "input-value"),
            (['"'], 422, "input-value"),
            (['"1", "2"'], 422, "input-value"),
            (['"1"', '"2"'], 422, "input-value"),
        ],
    )
    def test_epochs_that_are_none(self, shared: Any, given: list[str], status: int, kind: str) -> None:
        headers = [("if-match", one) for one in given]
        problem(shared.http.post("/v1/models/digits/rollback", headers=headers), status, kind)


class TestFeedback:
    def test_long_names_are_cut_in_the_answer(self, shared: Any) -> None:
        response = shared.http.post("/feedback", json={"items": [{"x" * 100_000: 1, "y" * 100_000: 2}]})
        assert response.status_code == 422
        assert len(response.content) < 2_000

    @pytest.mark.parametrize(
        ("item", "kind", "where"),
        [
            ({"prediction_id": "7", "label": "1"}, "prediction-id", "/items/0/prediction_id"),
            ({"prediction_id": UNKNOWN_ID.lower(), "label": "1"}, "prediction-id", "/items/0/prediction_id"),
            ({"prediction_id": UNKNOWN_ID + "\n", "label": "1"}, "prediction-id", "/items/0/prediction_id"),
            ({"prediction_id": "", "label": "1"}, "prediction-id", "/items/0/prediction_id"),
            ({"prediction_id": UNKNOWN_ID, "label": "ten"}, "unknown-label", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID, "label": ""}, "unknown-label", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID, "label": "\ud800"}, "unknown-label", "/items/0/label"),
            ({"prediction_id": "\udfff", "label": "1"}, "prediction-id", "/items/0/prediction_id"),
            ({"label": "1"}, "feedback", "/items/0"),
            ({"prediction_id": UNKNOWN_ID, "reference": "a", "label": "1"}, "feedback", "/items/0"),
            ({"prediction_id": UNKNOWN_ID, "label": 7}, "input", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID, "label": 10**40}, "input", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID, "label": float("nan")}, "input", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID}, "input", "/items/0/label"),
            ({"prediction_id": UNKNOWN_ID, "label": "1", "lable": "2"}, "input", "/items/0/lable"),
            ({"reference": "", "label": "1"}, "input", "/items/0/reference"),
            ({"reference": "r" * 201, "label": "1"}, "input", "/items/0/reference"),
            ({"reference": "\ud800", "label": "1"}, "input", "/items/0/reference"),
            ({"reference": "a\x00b", "label": "1"}, "input", "/items/0/reference"),
            ({"reference": "a", "label": "1", "source": "\ud800"}, "input", "/items/0/source"),
            ({"reference": "a", "label": "1", "source": "\x00"}, "input", "/items/0/source"),
            ({"reference": "a", "label": "1", "source": ""}, "input", "/items/0/source"),
            ({"reference": "a", "label": "1", "source": "s" * 1_000_000}, "input", "/items/0/source"),
            ({"reference": "a", "label": "1", "labelled_at": "yesterday"}, "input", "/items/0/labelled_at"),
            ({"reference": "a", "label": "1", "labelled_at": "2026-01-01T00:00:00"}, "input", "/items/0/labelled_at"),
        ],
    )
    def test_items(self, shared: Any, item: dict[str, Any], kind: str, where: str) -> None:
        body = json.dumps({"items": [item]}).encode()
        response = shared.http.post("/feedback", content=body, headers=JSON)
        document = problem(response, 422, kind)
        assert document["where"] == where
        assert document["expected"]
        assert len(response.content) < 2000

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (b"{", 400),
            (b"", 422),
            (b"[]", 422),
            (b'{"items": []}', 422),
            (b'{"items": {}}', 422),
            (b'{"items": [7]}', 422),
            (b'{"item": []}', 422),
            (b"\xff", 400),
            (b'{"items":' * 100_000, 400),
            (b'{"items": [{"reference": "a", "label": "1", "label": "2"}]}', 400),
            (b'{"items": [{"reference": "a", "label": "1", "labelled_at": "0001-01-01T00:00:00+14:00"}]}', 422),
            (b'{"items": [' + b'{"reference":"a","label":"1"},' * 10_000 + b'{"reference":"a","label":"1"}]}', 422),
        ],
    )
    def test_bodies(self, shared: Any, body: bytes, status: int) -> None:
        document = problem(shared.http.post("/feedback", content=body, headers=JSON), status)
        assert "Feedback" not in document["detail"]  # a class of ours

    @pytest.mark.parametrize("headers", [{"content-type": "text/plain"}, {}])
    def test_a_body_must_call_itself_json(self, shared: Any, headers: dict[str, str]) -> None:
        body = b'{"items": [{"reference": "a", "label": "1"}]}'
        document = problem(shared.http.post("/feedback", content=body, headers=headers), 415, "unsupported-media-type")
        assert document["found"] == headers.get("content-type", "no content type")

    def test_nothing_of_a_request_is_stored_when_one_item_is_wrong(self, shared: Any) -> None:
        items = [{"reference": "whole-or-not", "label": "1"}, {"reference": "whole-or-not-2", "label": "ten"}]
        problem(shared.http.post("/feedback", json={"items": items}), 422, "unknown-label")
        again = shared.http.post("/feedback", json={"items": items[:1]}).json()
        assert again["items"] == [{"status": "pending"}]

    @pytest.mark.parametrize("key", ["", "k" * 201])
    def test_idempotency_keys(self, shared: Any, key: str) -> None:
        body = {"items": [{"reference": "a", "label": "1"}]}
        problem(shared.http.post("/feedback", json=body, headers={"idempotency-key": key}), 422, "input")


@pytest.mark.usefixtures("refits_here")
class TestRecalibrate:
    @pytest.mark.parametrize(
        ("body", "kind", "where"),
        [
            ({"calibrator": "magic"}, "input-value", "/calibrator"),
            ({"mode": "yolo"}, "input", "/mode"),
            ({"mod": "dry_run"}, "input", "/mod"),
            ({"gate": "none"}, "input", "/gate"),
            ({"mode": "activate", "gate": "non_inferior"}, "input-value", "/gate"),
            ({"source": {"feedback": {"since": "2026-01-01"}}}, "input", "/source/feedback/since"),
            (
                {"source": {"feedback": {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}}},
                "input-value",
                "/source/feedback",
            ),
            ({}, "too-few-labels", "/source/feedback"),
            (
                {"source": {"feedback": {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59Z"}}},
                "too-few-labels",
                "/source/feedback",
            ),
        ],
    )
    def test_bodies(self, shared: Any, body: dict[str, Any], kind: str, where: str) -> None:
        document = problem(shared.http.post("/recalibrate", json=body), 422, kind)
        assert document["where"] == where
        assert document["found"]
        assert document["expected"]

    @pytest.mark.parametrize(
        "path", ["recalibrate", "revisions/r1/activate", "erase", "prior-shift", "policies/p/simulate"]
    )
    def test_a_name_that_is_there_twice_is_refused(self, shared: Any, path: str) -> None:
        headers = JSON | {"if-match": '"1"'}
        response = shared.http.post(f"/v1/models/digits/{path}", content=b'{"mode": 1, "mode": 2}', headers=headers)
        assert "duplicate name 'mode'" in problem(response, 400, "malformed-body")["detail"]

    @pytest.mark.parametrize("since", ["yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "0001-01-01T00:00:00+14:00"])
    def test_a_time_that_is_none_is_told_how_one_looks(self, shared: Any, since: str) -> None:
        body = {"source": {"feedback": {"since": since}}}
        document = problem(shared.http.post("/recalibrate", json=body), 422, "input")
        assert (document["found"], document["expected"]) == (since, "a time such as 2026-11-28T09:30:00Z")

    def test_too_few_labels_says_how_many_there_are(self, service: Any, digits: Any) -> None:
        service.teach(digits.images[:59], digits.labels[:59])
        document = problem(service.http.post("/recalibrate"), 422, "too-few-labels")
        assert document["found"].startswith("59 labelled predictions")
        assert document["expected"] == "at least 60"

    def test_labels_that_nobody_sought_are_not_usable(self, service: Any, digits: Any) -> None:
        ids = [row["prediction_id"] for row in service.predict(digits.images[:100])]  # no policy, nothing sought
        assert service.runtime.log.flush()
        items = [{"prediction_id": i, "label": label} for i, label in zip(ids, digits.labels[:100], strict=True)]
        assert service.http.post("/feedback", json={"items": items}).json()["stored"] == 100
        document = problem(service.recalibrate(), 422, "too-few-labels")
        assert "0 usable of 100" in document["found"]
        assert document["remedy"]

    def test_rows_of_one_group_are_not_called_unsought(self, service: Any, digits: Any) -> None:
        images = {"inputs": digits.images[:80].tolist(), "groups": ["one"] * 80}
        answer = service.http.post("/predict?policy=auto-read", json=images).json()
        assert service.runtime.log.flush()
        items = [
            {"prediction_id": row["prediction_id"], "label": label}
            for row, label in zip(answer["predictions"], digits.labels[:80], strict=True)
        ]
        assert service.http.post("/feedback", json={"items": items}).json()["stored"] == 80
        document = problem(service.recalibrate(), 422, "too-few-labels")
        assert document["found"].startswith("80 usable labelled rows of 1 groups: ")
        assert "more groups" in document["remedy"]

    def test_a_method_that_needs_more_errors_is_refused(self, service: Any, digits: Any) -> None:
        service.teach(digits.images[:100], digits.labels[:100])
        document = problem(service.recalibrate(calibrator="histogram"), 422, "too-few-labels")
        assert document["where"] == "/calibrator"


BANDS = [{"action": "a", "when": {"min_probability": 0.5}}, {"action": "b"}]


class TestPolicies:
    @pytest.mark.parametrize(
        "document",
        [
            {},
            {"positive": "top"},
            {"positive": "top", "bands": []},
            {"positive": "top", "bands": "all"},
            {"positive": "ten", "bands": BANDS},
            {"positive": 7, "bands": BANDS},
            {"positive": "top", "bands": BANDS, "bnads": []},
            {"positive": "top", "bands": [{"action": "a", "when": {"min_probability": 1.5}}, {"action": "b"}]},
            {"positive": "top", "bands": [{"action": "a", "when": {"min_probability": "x"}}, {"action": "b"}]},
            {"positive": "top", "bands": [{"action": "a", "when": {"min_probability": 10**40}}, {"action": "b"}]},
            {"positive": "top", "bands": [{"action": "a", "when": {"magic": 0.5}}, {"action": "b"}]},
            {"positive": "top", "bands": BANDS, "certify": {"delta": 0}},
            {"positive": "top", "bands": BANDS, "certify": {"delta": 0.05, "looks": "many"}},
            {"positive": "top", "bands": BANDS, "explore": {"share": 2}},
            {"positive": "top", "bands": BANDS, "on_uncertifiable": "hope"},
            {
                "positive": "top",
                "bands": [{"action": "a", "when": {"min_precision": 0.9999}}, {"action": "b"}],
                "on_uncertifiable": "fail",
            },
        ],
    )
    def test_documents(self, shared: Any, document: dict[str, Any]) -> None:
        before = shared.revisions()["items"]
        body = json.dumps(document).encode()
        response = shared.http.put("/v1/models/digits/policies/mine", content=body, headers=JSON)
        found = problem(response, 422, "policy")
        assert found["where"]
        assert shared.revisions()["items"] == before

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"7",
            b"null",
            b'{"positive": NaN}',
            b'{"positive": "\\ud800"}',
            b'{"positive": "top", "positive": "7"}',
        ],
    )
    def test_bodies(self, shared: Any, body: bytes) -> None:
        response = shared.http.put("/v1/models/digits/policies/mine", content=body, headers=JSON)
        problem(response, 400, "malformed-body")

    def test_json_that_breaks_off_is_said_where(self, shared: Any) -> None:
        response = shared.http.put("/v1/models/digits/policies/mine", content=b'{"bands": [', headers=JSON)
        document = problem(response, 400, "malformed-body")
        assert document["detail"] == "The body is not valid JSON: unexpected end of data: line 1 column 12 (char 11)."

    def test_the_id_is_that_of_the_path(self, shared: Any) -> None:
        body = {"id": "yours", "positive": "top", "bands": BANDS}
        document = problem(shared.http.put("/v1/models/digits/policies/mine", json=body), 422, "input-value")
        assert (document["found"], document["expected"]) == ("yours", "mine")

    @pytest.mark.parametrize("name", ["%00", "%F0%9F%92%A5", "a%20b", "x" * 300])
    def test_ids(self, shared: Any, name: str) -> None:
        body = {"positive": "top", "bands": BANDS}
        problem(shared.http.put(f"/v1/models/digits/policies/{name}", json=body), 422, "policy")


def test_a_request_id_comes_back_and_a_bad_one_is_replaced(shared: Any) -> None:
    assert shared.http.get("/livez", headers={"x-request-id": "mine-7"}).headers["x-request-id"] == "mine-7"
    given = [shared.http.get("/livez", headers={"x-request-id": "two words"}).headers["x-request-id"] for _ in range(2)]
    assert all(re.fullmatch(r"[0-9A-Z]{26}-[0-9]+", request_id) for request_id in given)
    assert given[0] != given[1]
