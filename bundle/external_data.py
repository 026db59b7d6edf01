"""Refusing ONNX models that would read other files, without importing onnx.

An ONNX tensor may refer to values in another file, by a path that the author of the model chose. A runtime would open
that path. A bundle's model must contain all its values, so this walks the protobuf wire format along every path to a
tensor and refuses the first tensor that refers to another file.

Source: onnx/onnx.proto (field numbers).
"""

from __future__ import annotations

from bundle.errors import BundleFormatError
from bundle.protobuf import BYTES, fields

_MAX_DEPTH = 64

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
_WANTED = {kind: frozenset(children) for kind, children in _CHILDREN.items()} | {
    "TensorProto": frozenset({_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION})
}


def refuse(model: bytes, *, file: str) -> None:
    """Check that an ONNX model is self-contained.

    Args:
        model: Bytes of a serialised `ModelProto`.
        file: Name of the model's file for error messages.

    Raises:
        BundleFormatError: A tensor's values are in another file, or the bytes are not a model.
    """
    try:
        graphs = _walk(memoryview(model), "ModelProto", 0, file)
    except (IndexError, ValueError) as error:
        raise BundleFormatError(f"the model is not a valid ONNX protobuf: {error}", file=file) from error
    if graphs == 0:
        raise BundleFormatError("the model has no graph", file=file)


def _walk(message: memoryview, kind: str, depth: int, file: str) -> int:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    children = _CHILDREN[kind]
    descended = 0
    for field, wire, value in fields(message, _WANTED[kind]):
        if kind == "TensorProto" and (
            field == _TENSOR_EXTERNAL_DATA or (field == _TENSOR_DATA_LOCATION and value != 0)
        ):
            raise BundleFormatError(
                "the model reads values from another file",
                file=file,
                found="external data",
                expected="all values inside the model",
            )
        child = children.get(field)
        if child is not None:
            if wire != BYTES or not isinstance(value, memoryview):
                raise ValueError(f"field {field} of {kind} is not a message")
            _walk(value, child, depth + 1, file)
            descended += 1
    return descended
