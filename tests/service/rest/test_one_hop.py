"""Large bodies leave the event loop once at most, and those that are only wrapped not at all."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bundle.images import encode_png
from service.errors import OverloadedError
from service.operations.decoding import Decoders
from service.operations.predicting import LARGE
from tests.array_files import npy

V1, V2 = "/v1/models/digits/predict", "/v2/models/digits/infer"


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    finish = Decoders.finish

    async def counted(self: Decoders, work: Callable[[], Any], size: int) -> Any:
        sizes.append(size)
        return await finish(self, work, size)

    monkeypatch.setattr(Decoders, "finish", counted)
    return sizes


def large_png() -> bytes:
    """Return a PNG of the model's size with a comment behind its header that no reader shows."""
    png = encode_png(np.zeros((8, 8, 1), np.uint8))
    comment = b"tEXtComment\0" + b"x" * LARGE
    chunk = (len(comment) - 4).to_bytes(4) + comment + zlib.crc32(comment).to_bytes(4)
    return png[:33] + chunk + png[33:]


def in_tensors(data: bytes) -> tuple[bytes, dict[str, str]]:
    entry = {"name": "input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(data) + 4}}
    head = json.dumps({"inputs": [entry]}).encode()
    return head + len(data).to_bytes(4, "little") + data, {"inference-header-content-length": str(len(head))}


def test_a_large_array_does_not_leave_the_event_loop(shared: Any, hops: list[int]) -> None:
    body = npy(np.zeros((256, 8, 8, 1), np.int64))
    assert len(body) > LARGE
    response = shared.http.post(V1, params={"top": 1}, content=body, headers={"content-type": "application/x-npy"})
    assert len(response.json()["predictions"]) == 256
    assert [size for size in hops if size == len(body)] == []


def test_a_large_image_is_read_and_decoded_in_one_visit_to_a_thread(shared: Any, hops: list[int]) -> None:
    png = large_png()
    in_json = json.dumps({"inputs": [base64.b64encode(png).decode()]}).encode()
    form = b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\n' + png + b"\r\n--b--\r\n"
    for body, content_type in (
        (png, "image/png"),
        (in_json, "application/json"),
        (form, "multipart/form-data; boundary=b"),
    ):
        response = shared.http.post(V1, content=body, headers={"content-type": content_type})
        assert response.status_code == 200, response.text
        assert hops == [len(body)]
        hops.clear()
    in_data, headers = in_tensors(png)
    entry = {"name": "input", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(png).decode()]}
    for body, more in ((in_data, headers), (json.dumps({"inputs": [entry]}).encode(), {})):
        response = shared.http.post(V2, content=body, headers=more)
        assert response.status_code == 200, response.text
        assert hops == [len(body)]
        hops.clear()


def test_a_large_answer_is_written_in_a_thread_and_a_small_one_is_not(shared: Any, hops: list[int]) -> None:
    for rows in (1, 32, 1000):
        body = npy(np.zeros((rows, 8, 8, 1), np.uint8))
        assert len(body) <= LARGE
        response = shared.http.post(V1, content=body, headers={"content-type": "application/x-npy"})
        assert len(response.json()["predictions"]) == rows
        assert len(hops) == (rows == 1000)


def test_an_answer_is_written_however_many_bodies_wait_for_a_thread() -> None:
    async def trial() -> None:
        decoders, held = Decoders(1, max_waiting_bytes=10), threading.Event()
        waiting = asyncio.ensure_future(decoders.run(held.wait, 10))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await decoders.run(bytes, 1)
        finished = asyncio.ensure_future(decoders.finish(lambda: b"answer", 1))
        held.set()
        assert await finished == b"answer"
        assert await waiting

    asyncio.run(trial())
