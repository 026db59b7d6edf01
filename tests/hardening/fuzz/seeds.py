"""Where a fuzzer begins: inputs of each target that the service answers, or nearly."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any, Final

import numpy as np
from PIL import Image

from service.rest.compression import ENCODINGS, compress

_FORM: Final = b'--b\r\nContent-Disposition: form-data; name="inputs"\r\n\r\n%s\r\n--b--\r\n'
_ROW: Final = {"label": "7", "logits": [0.5] * 10, "group": "g", "propensity": 0.5, "segment": "s"}


def seeds(target: str) -> list[bytes]:
    """Return inputs for one of `targets.TARGETS`."""
    return {"image": _images, "archive": _archives, "json": _texts}[target]()


def _images() -> list[bytes]:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    grey = Image.fromarray(pixels)
    colour = Image.fromarray(np.stack([pixels] * 3, axis=2))
    saved = [
        _saved(grey, "PNG"),
        _saved(grey.convert("P"), "PNG", transparency=3),
        _saved(grey.convert("1"), "PNG"),
        _saved(Image.fromarray(pixels.astype(np.uint16) * 1000), "PNG"),
        _saved(colour.convert("RGBA"), "PNG", dpi=(72, 72)),
        _saved(grey, "JPEG"),
        _saved(colour, "JPEG", progressive=True, exif=_turned()),
        _saved(colour.convert("CMYK"), "JPEG"),
        _saved(colour, "WEBP"),
        _saved(colour.convert("RGBA"), "WEBP", lossless=True, exif=_turned()),
        _saved(colour, "WEBP", save_all=True, append_images=[colour.transpose(Image.Transpose.ROTATE_90)]),
    ]
    return [bytes([kind]) + data for kind in range(2) for data in saved]


def _archives() -> list[bytes]:
    found = []
    for kind, shape, dtype in (
        (0, (1, 8, 8, 1), "u1"),
        (1, (4, 6, 3), "u1"),
        (2, (2, 3), "<f4"),
        (3, (2, 3), ">f8"),
        (4, (1, 3), "<i4"),
        (5, (3,), "<i8"),
    ):
        stream = io.BytesIO()
        np.save(stream, np.ones(shape, dtype))
        found.append(bytes([kind]) + stream.getvalue())
    label = np.array(["7", "1"])
    times = np.array(["2026-01-01", "NaT"], "M8[us]")
    columns: list[dict[str, Any]] = [
        {"label": label, "logits": np.ones((2, 10), "f4"), "group": label, "segment": label.astype("S")},
        {"label": np.array([7, 1]), "inputs": np.ones((2, 8, 8, 1), "u1"), "labelled_at": times},
        {"label": label, "propensity": np.array([0.5, np.nan])} | {str(name): np.ones(2) for name in range(10)},
    ]
    for save in (np.savez, np.savez_compressed):
        for arrays in columns:
            stream = io.BytesIO()
            save(stream, **arrays)
            found.append(bytes([6]) + stream.getvalue())
    return found


def _texts() -> list[bytes]:
    rows: list[Any] = [
        [np.zeros((8, 8, 1), int).tolist()],
        ["data:image/png;base64,iVBORw0KGgo="],
        [[1, 2.5, 3]],
        [{"age": 30, "fault": "driver", "value": None}],
        [[1, 2, 3]],
        ["a cat and a dog"],
    ]
    found = []
    for kind, inputs in enumerate(rows):
        document = {"inputs": inputs, "references": ["a"], "groups": [None], "segments": ["s"]}
        found.append(bytes([0, kind, 0]) + _json(document))
        found.append(bytes([0, kind, 1]) + _FORM % b"a cat")
        found.append(bytes([0, kind, 2]) + b"a cat")
    tensors: list[tuple[str, list[Any]]] = [
        ("UINT8", [0] * 64),
        ("BYTES", ["iVBORw0KGgo="]),
        ("FP32", [1.5] * 3),
        ("FP64", [1] * 3),
        ("INT32", [1] * 3),
    ]
    for kind, (datatype, data) in enumerate(tensors):
        tensor: dict[str, Any] = {"name": "input", "shape": [1, len(data)], "datatype": datatype, "data": data}
        names = {"name": "references", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        outputs = [{"name": "probabilities", "parameters": {"classification": 2}}, {"name": "decision"}]
        document = {"id": "1", "parameters": {"timeout": 5}, "inputs": [tensor, names], "outputs": outputs}
        found.append(bytes([1, kind, 0xFF, 0xFF]) + _json(document))
        del tensor["data"]
        head = _json({"inputs": [tensor | {"shape": [1, 3], "parameters": {"binary_data_size": 12}}]})
        found.append(bytes([1, kind]) + len(head).to_bytes(2, "little") + head + bytes(12))
        found.append(bytes([1, kind, 0, 0]) + bytes(12))
    item = {"prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "label": "7", "labelled_at": "2026-01-01T00:00:00Z"}
    found.append(bytes([2, 0]) + _json({"items": [item, {"reference": "a", "label": "1", "source": "s"}]}))
    found.append(bytes([2, 1]) + _json(item) + b"\n" + _json({"reference": "a", "label": "1"}))
    found.append(bytes([2, 2]) + b'prediction_id,reference,label\n,"a ""b"", c",7\n')
    found.append(
        bytes([3, 0]) + b"label,logits,labelled_at\r\n7," + b'"[' + b",".join([b"1"] * 10) + b']",2026-01-01Z\r\n'
    )
    found.append(bytes([3, 1]) + _json(_ROW) + b"\n\n" + _json(_ROW | {"labelled_at": "2026-01-01T00:00:00Z"}))
    found.append(bytes([3, 1]) + _json({"label": 7, "inputs": np.zeros((8, 8, 1), int).tolist()}))
    found += [bytes([4, kind]) + compress(b"abc" * 100, name) for kind, name in enumerate(ENCODINGS)]
    found.append(bytes([4, 1]) + zlib.compress(bytes(2 << 20)))
    return found


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif
