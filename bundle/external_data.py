"""Refusing ONNX models that would read other files, without importing onnx.

An ONNX tensor may say that its values lie in another file, by a path that whoever wrote the model chose. A runtime that
is given such a model opens that path. A bundle's model must hold all its values itself, so this walks the protobuf wire
format down every path on which a tensor can stand and refuses the first one that points outside.

Source: onnx/onnx.proto (field numbers), Protocol Buffers encoding guide (wire types).
"""

from __future__ import annotations

from collections.abc import Iterator

from bundle.errors import BundleFormatError

_MAX_DEPTH = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# message → {field number: message}; every field through which a TensorProto can be reached.
_CHILDREN: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "TensorProto": {},
}
_TENSOR_EXTERNAL_DATA = 13
_TENSOR_DATA_LOCATION = 14


def refuse(model: bytes, *, file: str) -> None:
    """Check that an ONNX model stands alone.

    Args:
        model: Bytes of a serialised `ModelProto`.
        file: Name of the model's file for error messages.

    Raises:
        BundleFormatError: A tensor's values lie outside the file, or these are not the bytes of a model.
    """
    try:
        graphs = _walk(memoryview(model), "ModelProto", 0, file)
    except (IndexError, ValueError) as error:
        raise BundleFormatError(f"the model is no readable ONNX protobuf: {error}", file=file) from error
    if graphs == 0:
        raise BundleFormatError("the model has no graph", file=file)


def _walk(message: memoryview, kind: str, depth: int, file: str) -> int:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    children = _CHILDREN[kind]
    descended = 0
    for field, wire, value in _fields(message):
        if kind == "TensorProto" and (
            field == _TENSOR_EXTERNAL_DATA or (field == _TENSOR_DATA_LOCATION and value != 0)
        ):
            raise BundleFormatError(
                "the model takes values from another file",
                file=file,
                found="external data",
                expected="all values inside",
            )
        child = children.get(field)
        if child is not None:
            if wire != _BYTES or not isinstance(value, memoryview):
                raise ValueError(f"field {field} of {kind} is no message")
            _walk(value, child, depth + 1, file)
            descended += 1
    return descended


def _fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (field number, wire type, value) of each field; only varints and byte strings carry a value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        value: int | memoryview = 0
        if wire == _VARINT:
            value, at = _varint(message, at)
        elif wire == _BYTES:
            length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if at > len(message) or field == 0:
            raise ValueError("truncated")
        yield field, wire, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a varint of more than ten bytes")
