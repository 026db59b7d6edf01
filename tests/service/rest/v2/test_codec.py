"""Requests and answers as bytes: what goes in comes out, and whatever else comes is an error of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bundle import Column, Columns, InputSpec, Scores, TensorSpec, Vocabulary
from service.errors import CandorError, InputValueError
from service.inference.inputs import Encoder, conform
from service.open_inference.datatypes import DATATYPES, accepted
from service.open_inference.outputs import top_classes
from service.open_inference.request import ALL_IN_JSON, OUTPUTS, Inference, Requested
from service.rest.v2.answer import write
from service.rest.v2.body import json_length, parse
from service.serving.plane import Answer

SPECS = [
    InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1)),
    InputSpec(kind="array", dtype="float32", shape=(3,)),
    InputSpec(kind="tokens", dtype="int32", shape=(3,)),
]
WORDS = Vocabulary.count(["the cat and the dog", "a dog"], size=6, length=3)
ROWS = 64
TABLE = Columns((Column("input"), Column("fault", ("0", "a"), on_unknown="refuse")))
NAMED = InputSpec(
    kind="tensors",
    dtype="record",
    tensors=(
        TensorSpec(name="input", dtype="bool", shape=(3,)),
        TensorSpec(name="text", dtype="string", shape=(2, 2), length=3),
        TensorSpec(name="half", dtype="float16"),
    ),
)
HEADERS = st.none() | st.integers(-2, 400).map(str) | st.text(max_size=4)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Return small integers as the bits of BF16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def read(body: bytes, header: str | None, spec: InputSpec) -> Inference:
    encoder = WORDS if spec.kind == "tokens" else None
    return parse(body, json_length(header, len(body)), spec, encoder, max_rows=ROWS)


def never_anything_but_ours(body: bytes, header: str | None) -> None:
    by_name: list[tuple[InputSpec, Encoder | None]] = [
        (InputSpec(kind="array", dtype="float32", shape=(2,)), TABLE),
        (NAMED, None),
        (InputSpec(kind="tensors", dtype="record", tensors=NAMED.tensors[:1]), None),
        (InputSpec(kind="scores", dtype="float32", shape=(2,)), Scores(form="positive")),
        (InputSpec(kind="scores", dtype="float32", shape=(3,)), Scores(form="probabilities")),
    ]
    for spec, encoder in [*((spec, WORDS if spec.kind == "tokens" else None) for spec in SPECS), *by_name]:
        with contextlib.suppress(CandorError):  # the only kind that may come
            inputs = parse(body, json_length(header, len(body)), spec, encoder, max_rows=ROWS).inputs
            if not isinstance(inputs, list):
                conform(inputs, spec, encoder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def mostly(draw: Any, usual: st.SearchStrategy[Any]) -> Any:
    """What belongs here, or now and then any JSON at all."""
    return draw(JSON if draw(st.integers(0, 3)) == 3 else usual)


SHAPES = st.lists(st.integers(-1, 4) | st.just(2**62), max_size=5) | st.sampled_from([[2, 2, 2, 1], [2, 3], [3]])
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "binary_data_size": mostly(st.integers(0, 40)),
        "binary_data": mostly(st.booleans()),
        "classification": mostly(st.integers(0, 4)),
        "binary_data_output": mostly(st.booleans()),
        "policy": mostly(st.text(max_size=3)),
        "timeout": mostly(st.integers(0, 9)),
        "shared_memory_region": JSON,
        "sequence_id": JSON,
        "priority": JSON,
    },
)
DATA = st.lists(st.integers(-1, 256) | st.floats() | st.booleans() | st.text(max_size=3), max_size=12)
TENSORS = st.fixed_dictionaries(
    {
        "name": mostly(
            st.sampled_from(["input", "input", "references", "segments", "fault", "text", "half", "scores"])
        ),
        "shape": mostly(SHAPES),
        "datatype": mostly(st.sampled_from([*DATATYPES, "BYTES", "BOOL"])),
    },
    optional={"data": mostly(DATA | st.lists(DATA, max_size=3)), "parameters": mostly(PARAMETERS)},
)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": mostly(st.lists(TENSORS, min_size=1, max_size=3))},
    optional={
        "outputs": mostly(
            st.lists(
                st.fixed_dictionaries({"name": mostly(st.sampled_from(OUTPUTS)), "parameters": mostly(PARAMETERS)})
            )
        ),
        "id": mostly(st.text(max_size=5)),
        "parameters": mostly(PARAMETERS),
    },
)


class TestRequests:
    @given(document=DOCUMENTS, behind=st.binary(max_size=40), exact=st.booleans(), header=HEADERS)
    @settings(max_examples=400)
    def test_any_document(self, document: Any, behind: bytes, exact: bool, header: str | None) -> None:
        head = json.dumps(document).encode()
        never_anything_but_ours(head + behind, str(len(head)) if exact else header)

    @given(body=st.binary(max_size=200), header=HEADERS)
    @example(body=b"[" * 100_000, header=None)
    @example(body=b'{"inputs":' + b"[" * 500 + b"]" * 500 + b"}", header=None)
    def test_any_bytes(self, body: bytes, header: str | None) -> None:
        never_anything_but_ours(body, header)

    @given(data=st.data(), spec=st.sampled_from(SPECS), form=st.sampled_from(["binary", "flat", "nested", "alone"]))
    @settings(max_examples=300)
    def test_what_is_sent_is_what_arrives(self, data: Any, spec: InputSpec, form: str) -> None:
        codes = form in ("flat", "nested")
        names = [name for name in accepted(spec.dtype) if not codes or DATATYPES[name].code is not None]
        name = names[0] if form == "alone" else data.draw(st.sampled_from(names))
        dtype = DATATYPES[name].dtype
        shape = (data.draw(st.integers(1, 4)), *spec.shape)
        if own := name == names[0]:
            finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else None
            array = expected = data.draw(npst.arrays(dtype, shape, elements=finite))
        else:
            expected = data.draw(npst.arrays(np.uint8, shape, elements=st.integers(0, 127)))  # exact in every type
            array = bfloat16(expected) if name == "BF16" else expected.astype(dtype)
        tensor: dict[str, Any] = {"name": "input", "shape": list(array.shape), "datatype": name}
        if codes:
            tensor["data"] = array.ravel().tolist() if form == "flat" else array.tolist()
            body, header = json.dumps({"inputs": [tensor]}).encode(), None
        elif form == "binary":
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            head = json.dumps({"id": "x" * data.draw(st.integers(0, 9)), "inputs": [tensor]}).encode()
            body, header = head + array.tobytes(), str(len(head))
        else:
            body, header = array.tobytes(), "0"
        arrived = read(body, header, spec).inputs
        assert isinstance(arrived, np.ndarray)
        np.testing.assert_array_equal(arrived, expected)
        assert arrived.shape == array.shape
        assert arrived.dtype == spec.dtype
        assert arrived.flags.aligned
        if form == "alone" or (form == "binary" and own and dtype.itemsize == 1):
            assert not arrived.flags.owndata  # not copied

    @given(texts=st.lists(st.text(max_size=12), min_size=1, max_size=ROWS), binary=st.booleans())
    def test_texts(self, texts: list[str], binary: bool) -> None:
        tensor: dict[str, Any] = {"name": "input", "shape": [len(texts)], "datatype": "BYTES"}
        if binary:
            encoded = [text.encode() for text in texts]
            behind = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
            tensor["parameters"] = {"binary_data_size": len(behind)}
        else:
            tensor["data"], behind = texts, b""
        head = json.dumps({"inputs": [tensor]}).encode()
        np.testing.assert_array_equal(
            read(head + behind, str(len(head)), SPECS[2]).inputs, np.asarray(WORDS.encode(texts))
        )

    @pytest.mark.parametrize(("shape", "row"), [([2], 1), ([], 0)])
    def test_a_text_that_is_none_is_named(self, shape: list[int], row: int) -> None:
        behind = b"\1\0\0\0a" * row + b"\1\0\0\0\xff"
        tensor = {"name": "input", "shape": shape, "datatype": "BYTES", "parameters": {"binary_data_size": len(behind)}}
        head = json.dumps({"inputs": [tensor]}).encode()
        with pytest.raises(InputValueError) as refused:
            read(head + behind, str(len(head)), SPECS[2])
        assert (refused.value.where, refused.value.found) == (f"row {row} of /inputs/0", "byte 0xff")

    def test_16_bits_are_too_few_for_json(self) -> None:
        for name in ("FP16", "BF16"):
            tensor = {"name": "input", "shape": [1, 3], "datatype": name, "data": [1, 2, 3]}
            with pytest.raises(CandorError, match="cannot be sent as JSON"):
                read(json.dumps({"inputs": [tensor]}).encode(), None, SPECS[1])

    @pytest.mark.parametrize("value", [1e39, -1e39, float("inf"), float("nan")])
    def test_what_float32_cannot_hold_never_reaches_the_model(self, value: float) -> None:
        data = struct.pack("<3d", 0, 0, value)
        tensor = {"name": "input", "shape": [1, 3], "datatype": "FP64", "parameters": {"binary_data_size": len(data)}}
        head = json.dumps({"inputs": [tensor]}).encode()
        with pytest.raises(InputValueError):
            conform(np.asarray(read(head + data, str(len(head)), SPECS[1]).inputs), SPECS[1])
        if abs(value) == 1e39:
            plain = {"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [0, 0, value]}
            with pytest.raises(InputValueError):
                conform(np.asarray(read(json.dumps({"inputs": [plain]}).encode(), None, SPECS[1]).inputs), SPECS[1])


@pytest.fixture(scope="module")
def answered(shared: Any, digits: Any) -> Answer:
    """A real answer to three rows."""
    model = shared.runtime.models.get(None)
    predicting = model.plane.predict(model.served, digits.images[:3], deadline_s=60, policy="auto-read")
    answer: Answer = asyncio.run(predicting)
    return answer


REQUESTED = st.lists(st.sampled_from(OUTPUTS), unique=True, min_size=1).flatmap(
    lambda names: st.tuples(
        *(
            st.builds(
                Requested,
                st.just(name),
                st.booleans(),
                st.integers(0, 12) if name in ("logits", "probabilities") else st.just(0),
            )
            for name in names
        )
    )
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


class TestAnswers:
    @given(outputs=REQUESTED, name=st.none() | st.text(max_size=9), data=st.data())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
    def test_tritons_client_reads_what_was_written(
        self, answered: Answer, outputs: tuple[Requested, ...], name: str | None, data: Any
    ) -> None:
        logits = data.draw(npst.arrays(np.float32, (3, 10), elements=FLOATS))
        answer = replace(
            answered, logits=logits, actions=data.draw(st.lists(st.text(max_size=5), min_size=3, max_size=3))
        )
        content, before_tensors = write(answer, Inference(np.zeros(0), outputs, id=name))
        assert (before_tensors is not None) == any(output.binary for output in outputs)
        result = triton.InferResult.from_response_body(content, header_length=before_tensors)
        response = result.get_response()
        assert response.get("id") == name
        assert response["parameters"]["prediction_ids"].split(",") == answer.ids
        assert [output["name"] for output in response["outputs"]] == [output.name for output in outputs]
        expected = {
            "logits": logits,
            "probabilities": answer.probabilities,
            "confidence": answer.confidence,
            "decision": np.array(answer.actions, dtype=object),
        }
        for requested in outputs:
            values = result.as_numpy(requested.name)
            if requested.classes or requested.name == "decision":
                texts = [text.decode() if isinstance(text, bytes) else text for text in values.ravel()]
                whole = expected[requested.name]
                if requested.classes:
                    whole = top_classes(whole, answer.served.labels, requested.classes)
                    assert values.shape == (3, min(10, requested.classes))
                assert texts == list(whole)
            else:
                np.testing.assert_array_equal(values, expected[requested.name])
                assert values.dtype == np.float32

    @given(name=st.none() | st.text(max_size=9), decided=st.booleans(), rows=st.integers(1, 3), data=st.data())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
    def test_the_usual_outputs_have_the_bytes_of_requested_ones(
        self, answered: Answer, name: str | None, decided: bool, rows: int, data: Any
    ) -> None:
        logits = data.draw(npst.arrays(np.float32, (3, 10), elements=FLOATS | st.just(-np.inf)))
        whole = replace(answered, logits=logits, actions=data.draw(st.tuples(*[st.none() | st.text(max_size=5)] * 3)))
        answer = replace(whole, policy=whole.policy if decided else None).part(slice(0, rows))
        requested = (*ALL_IN_JSON,)  # another object, which is written output by output
        assert requested is not ALL_IN_JSON
        usual, behind = write(answer, Inference(np.zeros(0), ALL_IN_JSON, id=name))
        assert (usual, behind) == write(answer, Inference(np.zeros(0), requested, id=name))

    @given(
        values=npst.arrays(
            np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=FLOATS | st.just(-np.inf)
        ),
        count=st.integers(1, 8),
    )
    def test_top_classes_are_the_largest_first_come_first(self, values: np.ndarray, count: int) -> None:
        labels = [f"a:{index}" for index in range(values.shape[1])]
        shown = min(count, values.shape[1])
        texts = top_classes(values, labels, count)
        assert len(texts) == len(values) * shown
        for row, start in zip(values, range(0, len(texts), shown), strict=True):
            order = sorted(range(len(row)), key=lambda column: (-row[column], column))[:shown]
            for text, column in zip(texts[start : start + shown], order, strict=True):
                value, index, label = text.split(":", 2)
                assert (int(index), label) == (column, labels[column])
                assert np.float32(value) == row[column]  # the very same float32


class TestOverHttp:
    @given(document=DOCUMENTS, behind=st.binary(max_size=40), exact=st.booleans(), header=st.integers(-2, 400))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
    def test_nothing_a_client_sends_is_an_error_of_the_server(
        self, shared: Any, document: Any, behind: bytes, exact: bool, header: int
    ) -> None:
        head = json.dumps(document).encode()
        headers = {"inference-header-content-length": str(len(head) if exact else header)}
        response = shared.http.post("/v2/models/digits/infer", content=head + behind, headers=headers)
        assert response.status_code == 200 or (400 <= response.status_code < 500 and "error" in response.json())
