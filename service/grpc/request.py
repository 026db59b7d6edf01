"""Inference requests as messages, translated into the documents that every transport shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from service.errors import InputError, InputTypeError, MalformedBodyError
from service.open_inference.named import declared, own_name
from service.open_inference.request import MOST_BESIDE, OUTPUTS, Inference, read
from service.places import Place, in_body
from service.serving.model import Model
from service.serving.plane import Served

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

_MOST_PARAMETERS: Final = 64  # more than any level takes
_LONGEST_SHAPE: Final = 64
_AT_ONCE: Final = 10_000  # numbers; other threads wait meanwhile


def parse(request: Any, model: Model, served: Served, *, max_rows: int) -> Inference:
    """Read a ModelInferRequest.

    Args:
        request: The message.
        model: Model that answers it.
        served: Its revision that does.
        max_rows: Maximum number of texts or encoded images.

    Raises:
        InputError: The request cannot be answered.
    """
    raw = request.raw_input_contents
    if (sent := len(request.inputs)) > 1 + MOST_BESIDE:
        most = (
            max(len(declared(served.input, served.encoder)), len(served.input.tensors))
            + MOST_BESIDE
            + len(model.beyond.known)
        )
        if sent > most:
            raise InputError(
                "The request has more input tensors than the model takes.",
                where=in_body("inputs"),
                found=sent,
                expected=f"at most {most}",
            )
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
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape[:_LONGEST_SHAPE],
        }
        where = in_body("inputs", index)
        parameters = _parameters(tensor.parameters, where)
        if not raw:
            _check_contents(tensor, where)
        if not raw and tensor.datatype != "BYTES":
            entry["data"] = _numbers(tensor, where)
        else:
            behind.append(_raw(tensor, raw[index], where) if raw else _texts(tensor.contents.bytes_contents))
            parameters["binary_data_size"] = len(behind[-1])
        inputs.append(entry | {"parameters": parameters})
    document = {
        "id": request.id or None,
        "parameters": _parameters(request.parameters, in_body()),
        "inputs": inputs,
        "outputs": [
            {"name": one.name, "parameters": _parameters(one.parameters, in_body("outputs", index))}
            for index, one in enumerate(request.outputs[: len(OUTPUTS) + 2])  # of more, one is unknown or duplicate
        ],
    }
    data, own = b"".join(behind), own_name(served.bundle)
    return read(document, data, 0, served.input, served.encoder, max_rows=max_rows, own=own, beyond=model.beyond)


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as values; null for a parameter without a value."""
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in given.items()} if given else {}
    return {name: getattr(given[name], choice) if choice else None for name, choice in chosen.items()}


def _parameters(given: Mapping[str, Any], where: Place) -> dict[str, Any]:
    if len(given) > _MOST_PARAMETERS:
        raise InputError(
            "Too many parameters.",
            where=where / "parameters",
            found=len(given),
            expected=f"at most {_MOST_PARAMETERS}",
        )
    return parameters_of(given)


def _raw(tensor: Any, data: bytes, where: Place) -> bytes:
    if tensor.contents.ByteSize():  # an empty message, as MLServer's clients send it, is nothing
        raise InputError(
            "A request has either `raw_input_contents` or `contents`.",
            where=where / "contents",
            found="both",
            expected="one of them",
        )
    return data


def _check_contents(tensor: Any, where: Place) -> None:
    """Refuse typed contents of other datatypes than the tensor's."""
    field = "bytes_contents" if tensor.datatype == "BYTES" else _CONTENTS.get(tensor.datatype)
    stray = [one.name for one, _ in tensor.contents.ListFields() if one.name != field]
    if field is not None and stray:
        raise InputTypeError(
            f"A tensor of datatype {tensor.datatype} must have its values in `{field}`.",
            where=where / "contents" / stray[0],
            found=stray[0],
            expected=field,
        )


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
    values, numbers = getattr(tensor.contents, field), []
    for start in range(0, len(values), _AT_ONCE):
        numbers += values[start : start + _AT_ONCE]
    return numbers
