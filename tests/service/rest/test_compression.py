"""Compressed bodies: read wherever a body is read, and never larger than a body may be."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BodyTooLargeError, CandorError, UnsupportedEncodingError
from service.rest import compression
from tests.array_files import npy
from tests.memory import most_traced
from tests.waiting import PATIENCE_S

LIMIT = 8 * 1024 * 1024  # of the setting
WAYS = [
    ("gzip", gzip.compress),
    ("GZIP", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", lambda body: zlib.compress(body, wbits=-15)),
    ("identity", bytes),
]


class TestCodec:
    @given(content=st.binary(max_size=500), encoding=st.sampled_from(compression.ENCODINGS))
    def test_there_and_back(self, content: bytes, encoding: str) -> None:
        packed = compression.compress(content, encoding)
        assert compression.decompress(packed, encoding, len(content)) == content
        if content:
            with pytest.raises(CandorError, match="too large"):
                compression.decompress(packed, encoding, len(content) - 1)

    @given(
        body=st.binary(max_size=100)
        | st.binary(max_size=50).map(lambda content: compression.compress(content, "gzip")),
        encoding=st.sampled_from(compression.ENCODINGS),
        cut=st.integers(0, 100),
    )
    def test_any_bytes(self, body: bytes, encoding: str, cut: int) -> None:
        for sent in (body, body[:cut]):
            with contextlib.suppress(CandorError):  # the only kind that may come
                assert len(compression.decompress(sent, encoding, 100)) <= 100

    def test_a_bomb_is_given_up_at_the_limit(self) -> None:
        """A hundred megabytes in a hundred kilobytes; what is not unpacked takes no memory."""
        bomb = gzip.compress(bytes(100 << 20), 9)
        assert len(bomb) < 200_000

        def given_up() -> None:
            with pytest.raises(BodyTooLargeError):
                compression.decompress(bomb, "gzip", 1 << 20)

        assert most_traced(given_up) < 8 << 20

    @given(header=st.text(alphabet="gzipdeflatbrxnty-, ", max_size=20))
    def test_any_content_encoding(self, header: str) -> None:
        scope = {"headers": [(b"content-encoding", header.encode())]}
        with contextlib.suppress(UnsupportedEncodingError):
            assert compression.content_encoding(scope) in (*compression.ENCODINGS, "identity")

    @given(header=st.text(max_size=40) | st.text(alphabet="gzipdeflat*;q=01., ", max_size=40))
    def test_any_accept_encoding(self, header: str) -> None:
        assert compression.wanted(header) in (None, *compression.ENCODINGS)

    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ("gzip;q=1.0, identity; q=0.5, *;q=0", "gzip"),
            ("deflate, gzip;q=0.9", "deflate"),
            ("*", "gzip"),
            ("gzip;q=0, *", "deflate"),
            ("GZIP", "gzip"),
            ("*;q=0", None),
            ("br;q=1.0, zstd", None),
        ],
    )
    def test_preferences(self, header: str, expected: str | None) -> None:
        assert compression.wanted(header) == expected


@pytest.mark.parametrize(("encoding", "pack"), WAYS)
class TestEveryBody:
    def test_predictions(self, shared: Any, digits: Any, encoding: str, pack: Callable[[bytes], bytes]) -> None:
        images = digits.images[:3]
        expected = [row["probabilities"] for row in shared.predict(images)]
        bodies = {
            "application/json": json.dumps({"inputs": images.tolist()}).encode(),
            "application/x-npy": npy(images),
        }
        for content_type, body in bodies.items():
            headers = {"content-type": content_type, "content-encoding": encoding}
            response = shared.http.post("/v1/models/digits/predict", content=pack(body), headers=headers)
            assert response.status_code == 200, response.text
            found = [row["probabilities"] for row in response.json()["predictions"]]
            for one, other in zip(found, expected, strict=True):
                assert one == pytest.approx(other, abs=1e-6)

    def test_feedback_and_policies(self, service: Any, encoding: str, pack: Callable[[bytes], bytes]) -> None:
        headers = {"content-type": "application/json", "content-encoding": encoding}
        labels = json.dumps({"items": [{"reference": "a", "label": "1"}]}).encode()
        receipt = service.http.post("/feedback", content=pack(labels), headers=headers)
        assert receipt.json()["pending"] == 1
        bands = [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]
        policy = pack(json.dumps({"positive": "top", "bands": bands}).encode())
        path = "/v1/models/digits/policies/packed"
        assert service.http.put(path, content=policy, headers=headers).status_code == 201


BOMB = b"{" + b" " * (LIMIT + 1) + b"}"


@pytest.mark.parametrize(
    ("encoding", "body", "status", "kind"),
    [
        ("br", b"{}", 415, "unsupported-encoding"),
        ("gzip, deflate", b"{}", 415, "unsupported-encoding"),
        ("gzip", b"{}", 400, "malformed-body"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], 400, "malformed-body"),
        ("gzip", b"", 400, "malformed-body"),
        ("gzip", gzip.compress(BOMB, mtime=0), 413, "body-too-large"),
        ("deflate", zlib.compress(BOMB), 413, "body-too-large"),
        ("deflate", bytes(LIMIT + 1), 413, "body-too-large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("path", ["/predict", "/feedback", "/v1/models/digits/recalibrate"])
def test_what_cannot_be_unpacked_is_refused(
    shared: Any, path: str, encoding: str, body: bytes, status: int, kind: str
) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = shared.http.post(path, content=body, headers=headers)
    assert (response.status_code, response.json()["type"]) == (status, f"/errors/{kind}"), response.text
    assert response.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)
    if status == 415:
        assert response.json()["expected"] == ["gzip", "deflate", "identity"]


def test_an_encoding_that_is_not_read_is_refused_before_the_body_comes(shared: Any) -> None:
    with socket.create_connection(("127.0.0.1", int(shared.url.rpartition(":")[2]))) as asker:
        asker.settimeout(PATIENCE_S)
        asker.sendall(b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-encoding: br\r\ncontent-length: 9\r\n\r\n")
        assert asker.recv(100).startswith(b"HTTP/1.1 415 ")
