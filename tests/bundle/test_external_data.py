"""Models that would read other files are refused, wherever the tensor stands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bundle import BundleFormatError, external_data


def empty_model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["input"], ["logits"])],
        "graph",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
    )
    return helper.make_model(graph)


def tensor(*, external: bool) -> TensorProto:
    inside = numpy_helper.from_array(np.arange(4, dtype=np.float32), "weights")
    if external:
        inside.ClearField("raw_data")
        inside.data_location = TensorProto.EXTERNAL
        inside.external_data.add(key="location", value="../../etc/passwd")
    return inside


def sparse(value: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=value, dims=[4])


def body(value: TensorProto) -> onnx.GraphProto:
    return helper.make_graph([], "body", [], [], [value])


def attribute(**fields: object) -> onnx.AttributeProto:
    return onnx.AttributeProto(name="a", **fields)  # type: ignore[arg-type]


PLACES: dict[str, Callable[[onnx.ModelProto, TensorProto], object]] = {
    "initializer": lambda model, value: model.graph.initializer.append(value),
    "sparse initializer": lambda model, value: model.graph.sparse_initializer.append(sparse(value)),
    "attribute": lambda model, value: model.graph.node[0].attribute.append(attribute(t=value)),
    "attribute list": lambda model, value: model.graph.node[0].attribute.append(attribute(tensors=[value])),
    "sparse attribute": lambda model, value: model.graph.node[0].attribute.append(
        attribute(sparse_tensor=sparse(value))
    ),
    "subgraph": lambda model, value: model.graph.node[0].attribute.append(attribute(g=body(value))),
    "subgraphs": lambda model, value: model.graph.node[0].attribute.append(attribute(graphs=[body(value)])),
    "function": lambda model, value: model.functions.add().node.add().attribute.append(attribute(t=value)),
    "function default": lambda model, value: model.functions.add().attribute_proto.append(attribute(t=value)),
    "training": lambda model, value: model.training_info.add().algorithm.CopyFrom(body(value)),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_of_a_tensor_is_seen(place: str) -> None:
    for external in (False, True):
        model = empty_model()
        PLACES[place](model, tensor(external=external))
        data = model.SerializeToString()
        if external:
            with pytest.raises(BundleFormatError, match="another file"):
                external_data.refuse(data, file="model.onnx")
        else:
            external_data.refuse(data, file="model.onnx")


def test_every_tensor_of_the_schema_is_on_the_map() -> None:
    """Walk onnx's own descriptors: a field that leads to a tensor and is not in the table would be a hole."""
    known = external_data._CHILDREN
    reach: set[str] = {"TensorProto"}
    descriptors = {message.name: message for message in onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values()}
    while True:
        more = {
            name
            for name, message in descriptors.items()
            if any(field.message_type is not None and field.message_type.name in reach for field in message.fields)
        } - reach
        if not more:
            break
        reach |= more
    for name in reach & known.keys():
        expected = {
            field.number: field.message_type.name
            for field in descriptors[name].fields
            if field.message_type is not None and field.message_type.name in reach
        }
        assert known[name] == expected, name
    assert {child for children in known.values() for child in children.values()} <= known.keys()


def test_a_location_alone_is_enough() -> None:
    model = empty_model()
    value = tensor(external=False)
    value.data_location = TensorProto.EXTERNAL
    model.graph.initializer.append(value)
    with pytest.raises(BundleFormatError):
        external_data.refuse(model.SerializeToString(), file="model.onnx")


def wrapped(field: int, data: bytes) -> bytes:
    length, size = b"", len(data)
    while size >= 0x80:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([field << 3 | 2]) + length + bytes([size]) + data


def test_very_deep_nesting_is_refused() -> None:
    graph = b""
    for _ in range(400):
        graph = wrapped(1, wrapped(5, wrapped(6, graph)))
    with pytest.raises(BundleFormatError, match="nested"):
        external_data.refuse(wrapped(7, graph), file="model.onnx")


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused_but_never_crash(data: bytes) -> None:
    with contextlib.suppress(BundleFormatError):
        external_data.refuse(data, file="model.onnx")


@given(st.data())
def test_any_damage_to_a_model_is_accepted_or_refused(data: st.DataObject) -> None:
    model = empty_model()
    model.graph.initializer.append(tensor(external=False))
    whole = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BundleFormatError):
        external_data.refuse(bytes(whole), file="model.onnx")
