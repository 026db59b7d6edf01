"""Formats of images in requests, and of their answers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.serving.model import CLASSES
from bundle.images import encode_png

Images = npt.NDArray[np.uint8]
Reader = Callable[[bytes, Mapping[str, str]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Request:
    """A request body with headers."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Payload:
    """A format of images for a server.

    Attributes:
        write: Makes a request from images.
        read: Reads an answer, (N, 10): probabilities if `calibrated`, else logits.
        calibrated: Whether answers are probabilities.
        one_image: Whether a request holds one image only.
    """

    write: Callable[[Images], Request]
    read: Reader
    calibrated: bool = False
    one_image: bool = False


_JSON = {"content-type": "application/json"}


def npy(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        file = io.BytesIO()
        np.save(file, images)
        return Request(path, file.getvalue(), {"content-type": "application/x-npy"})

    return write


def png(path: str) -> Callable[[Images], Request]:
    return lambda images: Request(path, encode_png(images[0]), {"content-type": "image/png"})


def plain_json(path: str) -> Callable[[Images], Request]:
    return lambda images: Request(path, _dumps({"inputs": images.tolist()}), _JSON)


def base64_npy(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        return Request(path, _dumps({"npy": base64.b64encode(npy(path)(images).body).decode()}), _JSON)

    return write


def v2_json(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        return Request(path, _dumps({"inputs": [_v2_input(images) | {"data": images.ravel().tolist()}]}), _JSON)

    return write


def v2_binary(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        tensor = _v2_input(images) | {"parameters": {"binary_data_size": images.nbytes}}
        header = _dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
        lengths = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(header)),
        }
        return Request(path, header + images.tobytes(), lengths)

    return write


def _v2_input(images: Images) -> dict[str, Any]:
    return {"name": "input", "shape": list(images.shape), "datatype": "UINT8"}


def _dumps(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def read_ours(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    rows = json.loads(body)["predictions"]
    return np.array([[row["probabilities"][str(label)] for label in range(CLASSES)] for row in rows], np.float32)


def read_v2(body: bytes, headers: Mapping[str, str]) -> npt.NDArray[np.float32]:
    length = int(headers.get("inference-header-content-length", len(body)))
    rest = memoryview(body)[length:]
    for output in json.loads(body[:length])["outputs"]:
        size = (output.get("parameters") or {}).get("binary_data_size", 0)
        if output["name"] == "logits":
            values = np.frombuffer(rest[:size], np.float32) if size else np.array(output["data"], np.float32)
            return values.reshape(output["shape"])
        rest = rest[size:]
    raise ValueError(f"no logits in {body[:length]!r}")


def read_list(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.array(json.loads(body), np.float32)


def read_logits(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.array(json.loads(body)["logits"], np.float32)


def read_floats(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.frombuffer(body, np.float32).reshape(-1, CLASSES)
