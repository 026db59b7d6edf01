"""Inference requests as messages, translated into the documents that every transport shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bundle import InputSpec
from service.errors import InputError, InputTypeError, MalformedBodyError
from service.inference.inputs import Encoder
from service.open_inference.named import INPUT
from service.open_inference.request import Inference, read
from service.places import Place, in_body

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""Fields of typed contents by datatype; BYTES are raw in both forms."""


def parse(request: Any, spec: InputSpec, encoder: Encoder | None, *, max_rows: int, own: str = INPUT) -> Inference:
    """Read a ModelInferRequest.

    Args:
        request: The message.
        spec: Input of the model.
        encoder: Encoder of texts in the bundle of the model.
        max_rows: Maximum number of texts or encoded images.
        own: Name of the only input in the graph of the model.

    Raises:
        InputError: The request cannot be answered.
    """
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise MalformedBodyError(
            "`raw_input_contents` requires one entry per input tensor.",
            where=in_body("raw_input_contents"),
            found=len(raw),
            expected=len(request.inputs),
        )
    behind: list[bytes] = []
    inputs: list[dict[str, Any]] = []
    for index, tensor in enumerate(request.inputs):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        parameters = parameters_of(tensor.parameters)
        where = in_body("inputs", index)
        if not raw and tensor.datatype != "BYTES":
            entry["data"] = _numbers(tensor, where)
        else:
            behind.append(_raw(tensor, raw[index], where) if raw else _texts(tensor.contents.bytes_contents))
            parameters["binary_data_size"] = len(behind[-1])
        inputs.append(entry | {"parameters": parameters})
    document = {
        "id": request.id or None,
        "parameters": parameters_of(request.parameters),
        "inputs": inputs,
        "outputs": [{"name": one.name, "parameters": parameters_of(one.parameters)} for one in request.outputs],
    }
    return read(document, b"".join(behind), 0, spec, encoder, max_rows=max_rows, own=own)


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as values; null for a parameter without a value."""
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in given.items()} if given else {}
    return {name: getattr(given[name], choice) if choice else None for name, choice in chosen.items()}


def _raw(tensor: Any, data: bytes, where: Place) -> bytes:
    if tensor.contents.ByteSize():  # an empty message, as MLServer's clients send it, is nothing
        raise InputError(
            "A request has either `raw_input_contents` or `contents`.",
            where=where / "contents",
            found="both",
            expected="one of them",
        )
    return data


def _texts(texts: Any) -> bytes:
    """Return elements as raw contents: for each, its length in four bytes and its bytes."""
    return b"".join(part for text in texts for part in (len(text).to_bytes(4, "little"), text))


def _numbers(tensor: Any, where: Place) -> list[Any]:
    if (field := _CONTENTS.get(tensor.datatype)) is None:
        raise InputTypeError(
            "This datatype requires raw contents, or is unknown.",
            where=where / "datatype",
            found=tensor.datatype[:40],
            expected=["BYTES", *_CONTENTS],
            remedy="Send the tensor in `raw_input_contents`.",
        )
    return list(getattr(tensor.contents, field))
