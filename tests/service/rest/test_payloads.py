"""Whatever bytes come, parsing gives a payload or an error of ours."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bundle import InputSpec
from bundle.images import encode_png
from service.errors import CandorError, InputTypeError, InputValueError
from service.inference.inputs import conform
from service.rest.payloads import IMAGE_TYPES, NPY_TYPES, media_type_of, parse

SPECS = [
    InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1)),
    InputSpec(kind="array", dtype="float32", shape=(3,)),
    InputSpec(kind="tokens", dtype="int32", shape=(3,)),
]
PIXELS = 64
PNG = encode_png(np.zeros((2, 2, 1), np.uint8))


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def never_anything_but_ours(body: bytes, content_type: str | None) -> None:
    for spec in SPECS:
        try:
            payload = parse(body, media_type_of(content_type), spec, max_pixels=PIXELS)
            conform(payload.inputs, spec)
        except CandorError:
            pass  # the only kind that may come


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(inputs=JSON, references=JSON, more=st.dictionaries(st.text(max_size=3), JSON, max_size=1))
def test_any_json(inputs: Any, references: Any, more: dict[str, Any]) -> None:
    document = {"inputs": inputs} | ({} if references is None else {"references": references}) | more
    never_anything_but_ours(json.dumps(document).encode(), "application/json")


@given(rows=st.lists(st.lists(st.lists(st.integers(-1, 256), max_size=3), max_size=3), max_size=9))
def test_nearly_right_json(rows: list[Any]) -> None:
    never_anything_but_ours(json.dumps({"inputs": rows}).encode(), None)


@given(body=st.binary(max_size=200), kind=st.sampled_from(["application/json", *NPY_TYPES, *IMAGE_TYPES, "text/x", ""]))
def test_any_bytes(body: bytes, kind: str) -> None:
    never_anything_but_ours(body, kind)


@given(
    cut=st.integers(0, 200),
    flips=st.lists(st.tuples(st.integers(0, 199), st.integers(1, 255)), max_size=4),
    whole=st.sampled_from(
        [
            (PNG, "image/png"),
            (npy(np.zeros((2, 3), np.float32)), "application/x-npy"),
            (npy(np.zeros((2, 2, 2), np.uint8, order="F")), "application/octet-stream"),
            (b'{"inputs": [[1, 2, 3]]}', "application/json"),
        ]
    ),
)
@settings(max_examples=300)
def test_damaged_bodies(cut: int, flips: list[tuple[int, int]], whole: tuple[bytes, str]) -> None:
    body = bytearray(whole[0])
    for place, mask in flips:
        body[place % len(body)] ^= mask
    never_anything_but_ours(bytes(body[: max(0, len(body) - cut)] if cut > 100 else body), whole[1])


HEADER = st.text(st.sampled_from("{}()[]',:0123456789-.TFalsrue'descr|<>ufi \\\n\0\"#"), max_size=80) | st.builds(
    "{{'descr': {!r}, 'fortran_order': {}, 'shape': {}, }}".format,
    st.sampled_from(["|u1", "<f4", ">i8", "|O", "<U4", "f4,f4", "<M8[s]", "|V0", "V", "<f16", "", "?", "<c8"]),
    st.sampled_from(["True", "False", "0", "None"]),
    st.sampled_from(["()", "(0,)", "(1, 3)", "(2, 2, 1)", "(-1, 3)", "(-1, -3)", "(10**9,)", "(1e3,)", "(True,)", "3"])
    | st.lists(st.integers(-2, 4), max_size=40).map(lambda sides: str(tuple(sides))),
)


@given(header=HEADER, version=st.sampled_from([(1, 0), (2, 0), (3, 0), (4, 0)]), data=st.binary(max_size=64))
@settings(max_examples=400)
@pytest.mark.filterwarnings("ignore")  # NumPy warns of what it then refuses or reads
def test_hostile_npy_headers(header: str, version: tuple[int, int], data: bytes) -> None:
    encoded = header.encode()
    length = struct.pack("<H" if version == (1, 0) else "<I", len(encoded))
    never_anything_but_ours(b"\x93NUMPY" + bytes(version) + length + encoded + data, "application/x-npy")


@given(data=st.data(), spec=st.sampled_from(SPECS))
def test_what_numpy_saves_is_what_arrives(data: Any, spec: InputSpec) -> None:
    dtype = data.draw(st.sampled_from([spec.dtype, np.dtype(spec.dtype).newbyteorder(">")]))
    shape = (data.draw(st.integers(1, 8)), *spec.shape)
    array = data.draw(
        npst.arrays(
            dtype, shape, elements={"allow_nan": False, "allow_infinity": False} if spec.dtype == "float32" else None
        )
    )
    if data.draw(st.booleans()):
        array = np.asfortranarray(array)
    payload = parse(npy(array), media_type_of("application/x-npy"), spec, max_pixels=PIXELS)
    np.testing.assert_array_equal(payload.inputs, array)
    as_json = parse(json.dumps({"inputs": array.tolist()}).encode(), media_type_of(None), spec, max_pixels=PIXELS)
    np.testing.assert_array_equal(as_json.inputs, array)


def test_a_png_arrives_as_its_pixels() -> None:
    image = np.uint8([[[1], [2]], [[3], [255]]])
    payload = parse(encode_png(image), media_type_of("image/png"), SPECS[0], max_pixels=PIXELS)
    np.testing.assert_array_equal(payload.inputs, image[None])


def test_one_long_text_among_numbers_costs_nothing() -> None:
    """Left to itself NumPy would make 40 GB of this: each of a million entries as wide as the longest."""
    body = json.dumps({"inputs": [["a" * 10_000] + [1] * 1_000_000]}).encode()
    tracemalloc.start()
    try:
        with pytest.raises(InputTypeError, match="numbers") as refused:
            parse(body, "application/json", SPECS[1], max_pixels=PIXELS)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(body)
    finally:
        tracemalloc.stop()
    assert refused.value.where == "/inputs/0"


def test_true_is_no_number() -> None:
    with pytest.raises(InputTypeError) as refused:
        parse(b'{"inputs": [[1, 2, 3], [1, true, 0]]}', "application/json", SPECS[1], max_pixels=PIXELS)
    assert refused.value.where == "/inputs/1"


def test_an_image_of_another_size_is_refused_before_its_pixels_are_unpacked() -> None:
    large = encode_png(np.zeros((3000, 3000, 1), np.uint8))
    tracemalloc.start()
    try:
        with pytest.raises(InputValueError, match="another size"):
            parse(large, "image/png", SPECS[0], max_pixels=10**8)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
