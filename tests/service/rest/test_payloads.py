"""Whatever bytes come, parsing gives a payload or an error of ours."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bundle import Column, Columns, InputSpec, Vocabulary
from bundle.images import encode_png
from service.errors import CandorError, InputShapeError, InputTypeError, InputValueError, MalformedBodyError
from service.inference.encoded import decode_images
from service.inference.inputs import Encoder, conform
from service.rest.payloads import FORM_TYPE, IMAGE_TYPES, NPY_TYPES, TEXT_TYPE, Payload, parse
from tests.array_files import npy
from tests.memory import most_traced

SPECS = [
    InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1)),
    InputSpec(kind="array", dtype="float32", shape=(3,)),
    InputSpec(kind="tokens", dtype="int32", shape=(3,)),
]
ENCODERS: dict[str, Encoder | None] = {
    "image": None,
    "array": Columns((Column("age"), Column("fault", ("driver", "third party")), Column("value"))),
    "tokens": Vocabulary(("<pad>", "<unknown>", "cat", "dog"), 3),
}
PIXELS = 64
FORM = "multipart/form-data; boundary=b"
PNG = encode_png(np.zeros((2, 2, 1), np.uint8))


def read(body: bytes, content_type: str | None, spec: InputSpec, encoder: Encoder | None = None) -> Payload:
    """Parse a body, and decode its images."""
    payload = parse(body, content_type, spec, encoder, max_rows=4)
    return replace(payload, inputs=payload.array(spec, max_pixels=PIXELS))


def form(*parts: tuple[str, bytes]) -> bytes:
    """A form with the boundary `b`."""
    head = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    return b"".join(head % (name.encode(), data) for name, data in parts) + b"--b--\r\n"


def never_anything_but_ours(body: bytes, content_type: str | None) -> None:
    for spec in SPECS:
        for encoder in (None, ENCODERS[spec.kind]):
            with suppress(CandorError):  # the only kind that may come
                conform(read(body, content_type, spec, encoder).inputs, spec, encoder)


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


KINDS = ["application/json", *NPY_TYPES, *IMAGE_TYPES, TEXT_TYPE, FORM_TYPE, FORM, "text/x", ""]


@given(body=st.binary(max_size=200), kind=st.sampled_from(KINDS))
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
            (form(("inputs", PNG), ("references", b"a")), FORM),
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
    st.sampled_from(
        [
            "()",
            "(0,)",
            "(1, 3)",
            "(2, 2, 1)",
            f"(0, {2**70})",
            "(-1, 3)",
            "(-1, -3)",
            "(10**9,)",
            "(1e3,)",
            "(True,)",
            "3",
        ]
    )
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
    np.testing.assert_array_equal(read(npy(array), "application/x-npy", spec).inputs, array)
    as_json = read(json.dumps({"inputs": array.tolist()}).encode(), None, spec)
    np.testing.assert_array_equal(as_json.inputs, array)


def test_a_png_arrives_as_its_pixels() -> None:
    image = np.uint8([[[1], [2]], [[3], [255]]])
    np.testing.assert_array_equal(read(encode_png(image), "image/png", SPECS[0]).inputs, image[None])


def test_one_long_text_among_numbers_costs_nothing() -> None:
    """Left to itself NumPy would make 40 GB of this: each of a million entries as wide as the longest."""
    body = json.dumps({"inputs": [["a" * 10_000] + [1] * 1_000_000]}).encode()

    def refused() -> None:
        with pytest.raises(InputTypeError, match="numbers") as raised:
            parse(body, "application/json", SPECS[1], max_rows=30_000)
        assert raised.value.where == "/inputs/0"

    assert most_traced(refused) < 40 * len(body)


@pytest.mark.parametrize("word", ["true", "false"])
def test_true_is_no_number(word: str) -> None:
    for spec in SPECS:
        example = "[[1, %s], [0, 0]]" if spec.kind == "image" else "[1, %s, 0]"
        body = f'{{"inputs": [{example % 2}, {example % word}]}}'.encode()
        with pytest.raises(InputTypeError) as refused:
            read(body, None, spec)
        assert refused.value.where == "/inputs/1"


def test_the_word_true_among_the_references_changes_nothing() -> None:
    payload = read(b'{"inputs": [[1, 2, 3]], "references": ["true"]}', None, SPECS[1])
    np.testing.assert_array_equal(payload.inputs, [[1, 2, 3]])
    assert payload.per_row.references == ["true"]


def test_null_is_a_missing_number_in_a_table_and_no_number_elsewhere() -> None:
    body = b'{"inputs": [[1, 2, 3], [null, 1, 0.5]]}'
    np.testing.assert_array_equal(read(body, None, SPECS[1], ENCODERS["array"]).inputs, [[1, 2, 3], [np.nan, 1, 0.5]])
    for spec in SPECS[1:]:
        with pytest.raises(InputTypeError) as refused:
            read(body, None, spec)
        assert refused.value.where == "/inputs/1"


@given(texts=st.lists(st.text(st.sampled_from("cat dog'x\n, é"), max_size=20), min_size=1, max_size=4))
def test_texts_become_what_the_vocabulary_makes_of_them(texts: list[str]) -> None:
    spec, vocabulary = SPECS[2], ENCODERS["tokens"]
    assert isinstance(vocabulary, Vocabulary)
    expected = vocabulary.encode(texts)
    as_json = read(json.dumps({"inputs": texts}).encode(), None, spec, vocabulary)
    np.testing.assert_array_equal(as_json.inputs, expected)
    as_form = read(form(*(("inputs", text.encode()) for text in texts)), FORM, spec, vocabulary)
    np.testing.assert_array_equal(as_form.inputs, expected)
    alone = read(texts[0].encode(), "text/plain; charset=utf-8", spec, vocabulary)
    np.testing.assert_array_equal(alone.inputs, expected[:1])


def test_rows_by_column_name_become_what_the_columns_make_of_them() -> None:
    rows = [{"age": 41, "fault": "third party", "value": -2.5}, {"fault": "nobody", "age": None}, {"value": "1e3"}]
    columns = ENCODERS["array"]
    assert isinstance(columns, Columns)
    payload = read(json.dumps({"inputs": rows}).encode(), None, SPECS[1], columns)
    np.testing.assert_array_equal(payload.inputs, columns.encode(rows))
    assert payload.inputs.dtype == np.float32


@given(files=st.lists(st.binary(max_size=30).filter(lambda data: b"\r\n--b" not in data), min_size=1, max_size=4))
def test_what_a_form_holds_arrives_byte_for_byte(files: list[bytes]) -> None:
    names = [f"r{index}" for index in range(len(files))]
    body = form(*(("inputs", data) for data in files), *(("references", name.encode()) for name in names))
    payload = parse(body, FORM, SPECS[0], max_rows=4)
    assert (payload.inputs, payload.per_row.references, payload.per_row.groups) == (files, names, None)


def test_a_form_has_as_many_parts_as_a_request_may_have_rows_and_names() -> None:
    spec = SPECS[0]
    assert len(parse(form(*[("inputs", PNG)] * 4), FORM, spec, max_rows=4).inputs) == 4
    with pytest.raises(InputShapeError, match="Too many inputs"):
        parse(form(*[("inputs", PNG)] * 5), FORM, spec, max_rows=4)
    with pytest.raises(MalformedBodyError, match="too many parts"):
        parse(form(*[("inputs", PNG)] * 21), FORM, spec, max_rows=4)


@pytest.mark.parametrize(
    ("body", "content_type", "where", "said"),
    [
        (b"--b--", "multipart/form-data", "Content-Type", "no valid boundary"),
        (b"--b--", "multipart/form-data; boundary=b\xe9", "Content-Type", "no valid boundary"),
        (b"x--b--", FORM, "part 0, byte 0", "Expected boundary"),
        (form(("inputs", PNG))[:-6], FORM, f"byte {len(form(('inputs', PNG))) - 6}", "end is missing"),
        (b"--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--", FORM, "part 0", "part 0 has no name"),
        (form(("inputs", PNG)).replace(b"form-data;", b"attachment;"), FORM, "part 0", "part 0 has no name"),
        (b"--b\r\n" + b"A: b\r\n" * 9, FORM, "part 0, byte 53", "header count"),
        (b"--b\r\nA: " + b"b" * 1100, FORM, "part 0, byte 8", "header size"),
        (form(("inputs", PNG)) + b"\r\n--bX" * 100_000, FORM, "part 20", "too many parts"),
        (form(("inputs", PNG), ("size", b"1")), FORM, "/size", "Unknown form field"),
    ],
)
def test_a_form_that_is_refused_names_the_place(body: bytes, content_type: str, where: str, said: str) -> None:
    with pytest.raises(MalformedBodyError, match=said) as refused:
        parse(body, content_type, SPECS[0], max_rows=4)
    assert refused.value.where == where


@pytest.mark.parametrize(
    ("field", "remedy"), [("policy", "Send `policy` as a query parameter: ?policy=…"), ("colour", None)]
)
def test_an_unknown_field_is_named(field: str, remedy: str | None) -> None:
    with pytest.raises(MalformedBodyError, match="Other fields are refused") as refused:
        parse(json.dumps({"inputs": [[0]], field: "x"}).encode(), "application/json", SPECS[0], max_rows=4)
    assert (refused.value.where, refused.value.remedy) == (f"/{field}", remedy)


def test_many_images_arrive_as_their_pixels_whichever_way_they_come() -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    files = [encode_png(image) for image in images]
    texts = [base64.b64encode(file).decode() for file in files]
    for body, content_type in (
        (form(*(("inputs", file) for file in files)), FORM),
        (json.dumps({"inputs": texts}).encode(), "application/json"),
        (json.dumps({"inputs": [f"data:image/png;base64,{text}" for text in texts]}).encode(), "application/json"),
    ):
        np.testing.assert_array_equal(read(body, content_type, SPECS[0]).inputs, images)


def test_the_pixels_of_all_images_count_before_one_is_decoded() -> None:
    spec = InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1), resize=True)
    files = [encode_png(np.zeros((3000, 3000, 1), np.uint8)) for _ in range(3)]

    def refused() -> None:
        with pytest.raises(InputValueError, match="together") as raised:
            decode_images(files, spec, max_pixels=2 * 9_000_000)
        assert (raised.value.where, raised.value.found) == ("/inputs/2", "27000000 pixels up to this one")

    assert most_traced(refused) < 1_000_000
    assert decode_images(files, spec, max_pixels=3 * 9_000_000).shape == (3, 2, 2, 1)


def test_small_images_count_as_what_they_become() -> None:
    spec = InputSpec(kind="image", dtype="uint8", shape=(100, 100, 1), resize=True)
    with pytest.raises(InputValueError, match="together"):
        decode_images([PNG] * 3, spec, max_pixels=29_999)
    assert decode_images([PNG] * 3, spec, max_pixels=30_000).shape == (3, 100, 100, 1)


def test_an_image_of_another_size_is_refused_before_its_pixels_are_unpacked() -> None:
    large = encode_png(np.zeros((3000, 3000, 1), np.uint8))

    def refused() -> None:
        with pytest.raises(InputValueError, match="wrong size"):
            decode_images([large], SPECS[0], max_pixels=10**8)

    assert most_traced(refused) < 1_000_000
