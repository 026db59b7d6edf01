"""Hostile requests, drawn with a seed: what each kind is called, and how one of it is made."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
from PIL import Image

from tests.array_files import npy, npz

JSON: Final = "application/json"
PNG: Final = "image/png"
NPY: Final = "application/x-npy"
SETS: Final = "/v1/models/digits/labelled-sets"
INFER: Final = "/v2/models/digits/infer"
HEADER_LENGTH: Final = "inference-header-content-length"
_MEDIA: Final = (
    *(JSON, PNG, NPY, "image/jpeg", "image/webp", "application/octet-stream", "text/csv", "application/x-ndjson"),
    *("multipart/form-data; boundary=b", "text/plain", "application/x-npz", "\xff", "", "a" * 5000),
)
_DEPTHS: Final = (30, 100, 1000, 20_000, 400_000)
_MIB: Final = 1 << 20
SET_BYTES: Final = 32 * _MIB
"""The most bytes of a labelled set that the services of these trials take."""


@dataclass(frozen=True)
class Hostile:
    """A request.

    Attributes:
        path: Where it goes.
        body: What comes behind its head.
        headers: Beside `host` and what says how long the body is.
        method: Of HTTP.
        length: Content-Length where it is not the body's, which then may get no answer; "chunked" for a body in chunks.
    """

    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    length: int | str | None = None


def draw(seed: int, count: int, *, without: Collection[str] = ()) -> Iterator[tuple[str, Hostile]]:
    """Yield so many requests with the names of their kinds, but for some; the same seed gives the same ones."""
    chance = random.Random(seed)
    names = [name for name in KINDS if name not in without]
    weights = [KINDS[name][0] for name in names]
    for name in chance.choices(names, weights, k=count):
        yield name, KINDS[name][1](chance)


def truncated(chance: random.Random) -> Hostile:
    """A request that breaks off somewhere."""
    whole = chance.choice(_whole())
    return Hostile(whole.path, whole.body[: chance.randrange(len(whole.body))], whole.headers)


def damaged(chance: random.Random) -> Hostile:
    """A request with some bytes that are not as they were."""
    whole = chance.choice(_whole())
    body = bytearray(whole.body)
    for _ in range(chance.choice([1, 1, 2, 5, 50])):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return Hostile(whole.path, bytes(body), whole.headers)


def wrong_type(chance: random.Random) -> Hostile:
    """A body under the content type of another."""
    whole = chance.choice(_whole())
    return Hostile(whole.path, whole.body, {"content-type": chance.choice(_MEDIA)})


def huge(chance: random.Random) -> Hostile:
    """More than the service takes, announced, in chunks, or inside one value."""
    size = chance.choice([8 * _MIB + 1, 12 * _MIB, 20 * _MIB])
    body = chance.choice([b"0", b"[", b'{"inputs": [["' + b"a", b" "])
    path = chance.choice(["/predict", "/feedback", INFER, "/recalibrate", "/v1/models/digits/policies/mine/simulate"])
    return Hostile(
        path, (body * (size // len(body) + 1))[:size], {"content-type": JSON}, length=chance.choice([None, "chunked"])
    )


def large(chance: random.Random) -> Hostile:
    """Nearly as much as the service takes, and all of it to be parsed."""
    body = chance.choice(
        [
            b'{"inputs": [' + b"1," * 2_000_000 + b"1]}",
            b'{"inputs": ["' + b"A" * (6 * _MIB) + b'"]}',
            b'{"items": [' + b'{"reference":"a","label":"1"},' * 200_000 + b"{}]}",
            b'{"inputs": ' + b"[" * 100 + b"]" * 100 + b"," * 100 + b"}",
            b'{"inputs": [' + b"[]," * 1_000_000 + b"[]]}",
            b"{" + b",".join(b'"%d": 1' % i for i in range(200_000)) + b"}",
        ]
    )
    return Hostile(chance.choice(["/predict", "/feedback", INFER]), body, {"content-type": JSON})


def compressed_bomb(chance: random.Random) -> Hostile:
    """A little that unpacks to a lot, or is not what it says."""
    size = chance.choice([9, 64, 200]) * _MIB
    encoding, body = chance.choice([("gzip", _gzipped(size)), ("deflate", _deflated(size))])
    if chance.random() < 0.3:
        body = chance.choice(
            [body[:-9], body + body, gzip.compress(body, mtime=0), body[: len(body) // 2], b"\x1f\x8b"]
        )
    encoding = chance.choice([encoding, encoding, "gzip, gzip", "br", "deflate"])
    path = chance.choice(["/predict", "/feedback", INFER, "/recalibrate"])
    return Hostile(path, body, {"content-type": JSON, "content-encoding": encoding})


def pixel_bomb(chance: random.Random) -> Hostile:
    """An image that says that it is enormous, or is."""
    width, height = chance.choice([(5000, 4000), (65_500, 65_500), (2**31 - 1, 1), (1, 2**31 - 1), (30_000, 30_000)])
    body, media = chance.choice(
        [
            (_png_of(width, height), PNG),
            (_white_png(), PNG),
            (_jpeg_of(width & 0xFFFF, height & 0xFFFF), "image/jpeg"),
            (_webp_of(width, height), "image/webp"),
        ]
    )
    return Hostile("/predict", body, {"content-type": media})


def deep_json(chance: random.Random) -> Hostile:
    """Lists in lists, or objects in objects, with or without an end."""
    depth = chance.choice(_DEPTHS)
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"inputs":[', b"]}")])
    field_name = chance.choice([b"inputs", b"items", b"bands", b"source", b"parameters", b"x"])
    whole = b'{"%s": ' % field_name + opening * depth + b"1" + closing * depth + b"}"
    path, method = chance.choice(
        [
            *[(path, "POST") for path in ("/predict", "/feedback", "/recalibrate", INFER, "/v1/models/digits/erase")],
            ("/v1/models/digits/policies/mine", "PUT"),
        ]
    )
    body = chance.choice([whole, whole[: len(whole) // 2]])[: 8 * _MIB]
    return Hostile(path, body, {"content-type": JSON}, method)


def not_finite(chance: random.Random) -> Hostile:
    """NaN, infinity, and numbers that no double or integer of 64 bits holds."""
    number = chance.choice(
        [
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e400",
            b"-1e999",
            b"9" * 5000,
            b"-" + b"9" * 25,
            b"1e-400",
            b"0x10",
            b"01",
        ]
    )
    row = b"[" + b",".join([number] * 64) + b"]"
    tensor = b'{"inputs": [{"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": %s}]}'
    values = np.full((1, 8, 8, 1), chance.choice([np.nan, np.inf, -np.inf]))
    kind = chance.choice(["<f2", "<f4", "<f8", ">f8"])
    return chance.choice(
        [
            Hostile("/predict", b'{"inputs": [%s]}' % row, {"content-type": JSON}),
            Hostile(INFER, tensor % row, {"content-type": JSON}),
            Hostile("/predict", npy(values.astype(kind)), {"content-type": NPY}),
            Hostile("/feedback", b'{"items": [{"reference": "a", "label": %s}]}' % number, {"content-type": JSON}),
            _binary("FP32", [1, 8, 8, 1], values.astype("<f4").tobytes()),
            Hostile(f"/predict?top={number.decode()}", b"{}", {"content-type": JSON}),
        ]
    )


def wrong_length(chance: random.Random) -> Hostile:
    """Lengths that are not: of the body, of its JSON part, of a tensor, of an array."""
    data = bytes(64)
    wrong = chance.choice([0, 1, 63, 65, 2**31, 2**63, 10**30, -1])
    whole = _binary("UINT8", [1, 8, 8, 1], data)
    header = chance.choice([str(wrong), "abc", "", "1, 2", "+5", "0x10", "\xb2"])
    claims = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 8, 8, 1), }\n" % wrong
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(claims)) + claims + data
    choices = [
        Hostile(INFER, whole.body, {HEADER_LENGTH: header}),
        _binary("UINT8", [1, 8, 8, 1], data, size=wrong),
        _binary("UINT8", [wrong, 8, 8, 1], data),
        _binary("BYTES", [chance.choice([1, wrong])], struct.pack("<I", abs(wrong) & 0xFFFFFFFF) + data),
        Hostile("/predict", npy, {"content-type": NPY}),
        Hostile("/predict", _whole()[0].body, {"content-type": JSON}, length=chance.choice([0, 5, 100_000])),
        Hostile("/feedback", b"{}", {"content-type": JSON}, length=chance.choice(["-1", "abc", "9" * 40, "1_0"])),
    ]
    return chance.choice(choices)


def odd_requests(chance: random.Random) -> Hostile:
    """Paths, methods, queries and headers that nobody sends."""
    junk = chance.choice(
        ["%00", "%ff%fe", "..%2f..%2fetc%2fpasswd", "a" * 3000, "%0a", "%F0%9F%92%A5", "{model}", "'--"]
    )
    path = chance.choice(
        [
            f"/v1/models/{junk}/predict",
            f"/v2/models/{junk}/infer",
            f"/v2/models/digits/versions/{junk}/infer",
            f"/v1/models/digits/revisions/{junk}",
            f"/v1/models/digits/policies/{junk}",
            f"/v1/jobs/{junk}",
            f"/predict?policy={junk}",
            f"/predict?segment={junk}&top={junk}",
            f"/v1/models/digits/audit?limit={junk}&before={junk}",
            f"/dashboard/models/{junk}",
            f"/{junk}",
        ]
    )
    headers = {
        "content-type": chance.choice(_MEDIA[:-1]),
        chance.choice(["if-match", "prefer", "idempotency-key", "traceparent", "x-request-id", "accept-encoding"]): (
            chance.choice(
                ['"1"', "*", "wait=99999999999", "\xe9" * 300, "00-" + "f" * 32 + "-" + "0" * 16 + "-01", "a" * 9000]
            )
        ),
    }
    method = chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"])
    return Hostile(path, chance.choice([b"", b"{}", _whole()[0].body]), headers, method)


def labels(chance: random.Random) -> Hostile:
    """Feedback as lines that are none."""
    item = b'{"prediction_id": "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G", "label": "7"}'
    body, media = chance.choice(
        [
            (b"reference,label\n" + b'"a' * 50_000, "text/csv"),
            (b"reference,label\n" + b"a,7\n" * 20_000, "text/csv"),
            (b",".join([b"c"] * 100_000) + b"\n", "text/csv"),
            (b"reference,label\na\0,7\n", "text/csv"),
            (b"\xff\xfer\0e\0f\0", "text/csv"),
            (b"\r" * 100_000, "text/csv"),
            (b"\n" * 1_000_000, "application/x-ndjson"),
            (item[:-1] + b"\n" + item, "application/x-ndjson"),
            (b'{"reference": "\\ud800", "label": "7"}', "application/x-ndjson"),
            (b'{"items": [%s]}' % b",".join([item] * 10_001), JSON),
            (b'{"items": [{"reference": "%s", "label": "7"}]}' % (b"r" * chance.choice([0, 201, 100_000])), JSON),
        ]
    )
    return Hostile("/feedback", body, {"content-type": media})


def uploads(chance: random.Random) -> Hostile:
    """Labelled sets that are none: damaged archives, archives that unpack to a lot, tables without an end."""
    whole = _npz()
    body = bytearray(whole)
    body[chance.randrange(len(body))] ^= 1 + chance.randrange(255)
    body_of = [
        (bytes(body), "application/x-npz"),
        (whole[: chance.randrange(len(whole))], "application/zip"),
        (b"label,logits\n" + b"7,[1" * 10_000, "text/csv"),
        (b'{"label": "7", "logits": ' + b"[" * 10_000, "application/x-ndjson"),
        (b"label,logits\n" + b"7," * 1_000_000, "text/csv"),
        (b"PAR1" + bytes(chance.randrange(256) for _ in range(200)) + b"PAR1", "application/vnd.apache.parquet"),
    ]
    content, media = chance.choice(body_of)
    return Hostile(SETS, content, {"content-type": media})


def set_bombs(chance: random.Random) -> Hostile:
    """Labelled sets of a few kilobytes that unpack to more than may be stored, or than the check may hold."""
    return set_bomb(chance.choice(SET_BOMBS))


def set_bomb(kind: str) -> Hostile:
    """Return the bomb of a kind (`SET_BOMBS`)."""
    media = {"npz": "application/x-npz", "parquet": "application/vnd.apache.parquet"}.get(kind, "text/csv")
    headers = {"content-type": media} | ({"content-encoding": kind} if kind in ("gzip", "deflate") else {})
    return Hostile(SETS, _set_bomb(kind), headers)


SET_BOMBS: Final = ("npz", "gzip", "deflate", "parquet")


KINDS: Final[dict[str, tuple[float, Callable[[random.Random], Hostile]]]] = {
    "truncated": (20, truncated),
    "damaged": (25, damaged),
    "wrong type": (8, wrong_type),
    "huge": (1, huge),
    "large": (1, large),
    "compressed bomb": (5, compressed_bomb),
    "pixel bomb": (6, pixel_bomb),
    "deep JSON": (6, deep_json),
    "NaN and infinity": (8, not_finite),
    "wrong length": (10, wrong_length),
    "odd request": (6, odd_requests),
    "labels": (3, labels),
    "labelled set": (0.15, uploads),
    "bomb of a labelled set": (0.05, set_bombs),
}
"""How often each kind comes, in percent or nearly, and what draws one; a labelled set costs a process."""


@cache
def _whole() -> tuple[Hostile, ...]:
    """Requests that are answered, to be broken."""
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    batch = pixels.reshape(1, 8, 8, 1)
    body = json.dumps({"inputs": batch.tolist(), "references": ["a"]}).encode()
    tensor = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": pixels.ravel().tolist()}
    colour = Image.fromarray(np.stack([pixels] * 3, axis=2))
    return (
        Hostile("/predict", body, {"content-type": JSON}),
        Hostile("/predict", gzip.compress(body, mtime=0), {"content-type": JSON, "content-encoding": "gzip"}),
        Hostile("/predict", npy(batch), {"content-type": NPY}),
        Hostile("/predict", _saved(Image.fromarray(pixels), "PNG"), {"content-type": PNG}),
        Hostile("/predict", _saved(colour.convert("RGBA"), "PNG"), {"content-type": PNG}),
        Hostile("/predict", _saved(colour, "JPEG", progressive=True), {"content-type": "image/jpeg"}),
        Hostile("/predict", _saved(Image.fromarray(pixels), "JPEG"), {"content-type": "image/jpeg"}),
        Hostile("/predict", _saved(colour, "WEBP"), {"content-type": "image/webp"}),
        Hostile("/predict", _saved(colour, "WEBP", lossless=True), {"content-type": "image/webp"}),
        Hostile(INFER, json.dumps({"inputs": [tensor]}).encode(), {"content-type": JSON}),
        _binary("UINT8", [1, 8, 8, 1], pixels.tobytes()),
        Hostile("/feedback", b'{"items": [{"reference": "a", "label": "7"}]}', {"content-type": JSON}),
        Hostile("/feedback", b'reference,label\n"a ""b""",7\n', {"content-type": "text/csv"}),
    )


def _binary(datatype: str, shape: list[int], data: bytes, size: int | None = None) -> Hostile:
    parameters = {"binary_data_size": len(data) if size is None else size}
    tensor: dict[str, Any] = {"name": "input", "shape": shape, "datatype": datatype, "parameters": parameters}
    head = json.dumps({"inputs": [tensor]}).encode()
    return Hostile(INFER, head + data, {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(head))})


@cache
def _npz() -> bytes:
    return npz(label=np.array(["1", "2"]), logits=np.zeros((2, 10)))


@cache
def _set_bomb(kind: str) -> bytes:
    if kind == "npz":
        stream = io.BytesIO()
        np.savez_compressed(stream, label=np.full(SET_BYTES // 4, "7"), logits=np.zeros((10, 10)))
        return stream.getvalue()
    if kind == "parquet":
        return _parquet_bomb()
    return {"gzip": gzip.compress, "deflate": zlib.compress}[kind](b"label,logits\n" + bytes(SET_BYTES))


def _parquet_bomb() -> bytes:
    from arro3.core import Array, DataType, Table
    from arro3.io import write_parquet

    once = Array(["7" * (32 * _MIB)], DataType.utf8()).cast(DataType.dictionary(DataType.int32(), DataType.utf8()))
    label = once.take(Array(np.zeros(40, dtype=np.int32)))
    stream = io.BytesIO()
    write_parquet(Table.from_pydict({"label": label, "logits": Array(np.zeros(40))}), stream, compression="zstd(3)")
    return stream.getvalue()


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@cache
def _gzipped(size: int) -> bytes:
    return gzip.compress(bytes(size), mtime=0)


@cache
def _deflated(size: int) -> bytes:
    return zlib.compress(bytes(size))


@cache
def _white_png() -> bytes:
    return _saved(Image.new("1", (5000, 4000)), "PNG")


@cache
def _png_of(width: int, height: int) -> bytes:
    """A PNG of one row that says that it is this large, with checksums that are right."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(10_000))),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@cache
def _jpeg_of(width: int, height: int) -> bytes:
    whole = bytearray(_saved(Image.new("L", (8, 8)), "JPEG"))
    start = whole.index(b"\xff\xc0")
    whole[start + 5 : start + 9] = struct.pack(">HH", height, width)
    return bytes(whole)


@cache
def _webp_of(width: int, height: int) -> bytes:
    size = (min(width, 2**24) - 1).to_bytes(3, "little") + (min(height, 2**24) - 1).to_bytes(3, "little")
    chunk = b"VP8X" + struct.pack("<I", 10) + b"\x10\0\0\0" + size
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk
