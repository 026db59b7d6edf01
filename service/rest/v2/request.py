"""An inference request of the protocol, from its bytes: JSON, tensors behind it, or nothing but a tensor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from bundle import InputSpec
from service.errors import InputError, InputTypeError, InputValueError, MalformedBodyError
from service.inference.inputs import Encoder
from service.rest.payloads import check_name, load_json
from service.rest.v2 import fields
from service.rest.v2.fields import kind_of
from service.rest.v2.tensor import InputTensor, raw_tensor

INPUT: Final = "input"
NAMES: Final = ("references", "groups", "segments")
"""Tensors beside the input, of a client's own names for each row; each may be left out."""

LOGITS, PROBABILITIES, CONFIDENCE, DECISION = OUTPUTS = ("logits", "probabilities", "confidence", "decision")
CLASSIFIED: Final = (LOGITS, PROBABILITIES)
"""Outputs with a value for each class, to which the classification extension applies."""

_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Requested:
    """An output that a request wants.

    Attributes:
        name: One of `OUTPUTS`.
        binary: Whether its values come behind the JSON instead of in it.
        classes: How many classes to name instead of giving the tensor; 0 gives the tensor.
    """

    name: str
    binary: bool
    classes: int = 0


ALL_IN_JSON: Final = tuple(Requested(name, binary=False) for name in OUTPUTS)
ALL_BINARY: Final = tuple(Requested(name, binary=True) for name in OUTPUTS)


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """What an inference request says.

    Attributes:
        inputs: The input tensor as numbers, N examples or one; or encoded images, still to be decoded.
        outputs: What is wanted, in order.
        id: The client's name of the request, which the answer repeats.
        policy: Name of the policy that decides.
        timeout_s: Seconds that the request may wait, None for the service's own deadline.
        segment: Part of the traffic that its rows belong to: one for all, or one for each.
        references: The client's own name of each row, if given.
        groups: What each row belongs to, if given.
        where: Place of the input tensor, for errors.
    """

    inputs: npt.NDArray[Any] | list[bytes]
    outputs: tuple[Requested, ...]
    id: str | None = None
    policy: str | None = None
    timeout_s: float | None = None
    segment: str | list[str | None] | None = None
    references: list[str | None] | None = None
    groups: list[str | None] | None = None
    where: str = "/inputs/0"


def json_length(header: str | None, size: int) -> int:
    """Return how many bytes at the start of a body are JSON.

    Args:
        header: Inference-Header-Content-Length, None where the request lacks it: all of the body is JSON.
        size: Bytes of the body, unpacked.

    Raises:
        MalformedBodyError: It is no number of bytes that the body has, or there is no body.
    """
    if header is None and size:
        return size
    if header is None:
        raise MalformedBodyError("The body is empty.", expected="a JSON object, or a tensor")
    if not _LENGTH.fullmatch(header) or int(header) > size:
        raise MalformedBodyError(
            "Inference-Header-Content-Length is not the length of a part of the body.",
            where="Inference-Header-Content-Length",
            found=header[:40],
            expected=f"0 to {size}",
            remedy="It counts the bytes of JSON before the tensors, after decompression.",
        )
    return int(header)


def parse(body: bytes, length: int, spec: InputSpec, encoder: Encoder | None = None, *, max_rows: int) -> Inference:
    """Read an inference request.

    Args:
        body: All of it, unpacked.
        length: Bytes of JSON at its start, as `json_length` gives it; with 0 the body is the input tensor alone, in the
            model's own datatype.
        spec: The model's input.
        encoder: What the model's bundle carries to read texts with.
        max_rows: Texts or encoded images that there may be.

    Raises:
        MalformedBodyError: The bytes are no such request.
        InputError: They are, and ask for what cannot be done.
    """
    if length == 0:
        return Inference(raw_tensor(body, spec), ALL_BINARY)
    document = load_json(body[:length])
    parameters = fields.parameters(document, "")
    tensors = _tensors(document, body, length)
    tensor = tensors.pop(INPUT)
    names = {name: named.names(body, max_rows) for name, named in tensors.items()}
    return Inference(
        inputs=tensor.inputs(body, spec, encoder, max_rows),
        outputs=_outputs(document, binary=fields.flag(parameters, "binary_data_output", "")),
        id=fields.text(document, "id", "/id"),
        policy=fields.text(parameters, "policy", "/parameters/policy"),
        timeout_s=_timeout(parameters),
        segment=_segment(parameters, names.get("segments")),
        references=names.get("references"),
        groups=names.get("groups"),
        where=tensor.where,
    )


def _tensors(document: dict[str, Any], body: bytes, length: int) -> dict[str, InputTensor]:
    """Return the tensors of a request by name, whose bytes lie behind its JSON part in their order."""
    inputs = document.get("inputs")
    if not isinstance(inputs, list):
        raise MalformedBodyError(
            "The request needs `inputs`, an array of tensors.",
            where="/inputs",
            found=kind_of(inputs) if "inputs" in document else "nothing",
            expected="array",
        )
    named = [tensor.get("name") if isinstance(tensor, dict) else None for tensor in inputs]
    names = [name if isinstance(name, str) else kind_of(name) for name in named]
    if INPUT not in names or len({INPUT, *NAMES}.intersection(names)) != len(names):
        raise InputError(
            f"The model takes one input tensor, called {INPUT!r}, and beside it each of {', '.join(NAMES)} once.",
            where="/inputs",
            found=names[:10],
            expected=[INPUT],
        )
    tensors: dict[str, InputTensor] = {}
    end = length
    for index, (name, entry) in enumerate(zip(names, inputs, strict=True)):
        tensors[name] = InputTensor(entry, f"/inputs/{index}", start=end)
        end = tensors[name].end
    if end != len(body):
        raise MalformedBodyError(
            "The bytes behind the JSON part are not those that the input tensors announce.",
            where="/inputs",
            found=f"{len(body) - length} bytes",
            expected=f"{end - length} bytes",
            remedy="Check Inference-Header-Content-Length: it is the exact length of the JSON part.",
        )
    return tensors


def _outputs(document: dict[str, Any], *, binary: bool) -> tuple[Requested, ...]:
    entries = document.get("outputs")
    if entries is not None and not isinstance(entries, list):
        raise MalformedBodyError(
            "`outputs` must be an array.", where="/outputs", found=kind_of(entries), expected="array"
        )
    if not entries:
        return ALL_BINARY if binary else ALL_IN_JSON
    outputs: dict[str, Requested] = {}
    for index, entry in enumerate(entries):
        where = f"/outputs/{index}"
        name = entry.get("name") if isinstance(entry, dict) else None
        if name not in OUTPUTS:
            raise InputError(
                "The model has no such output.",
                where=f"{where}/name",
                found=name if isinstance(name, str) else kind_of(name),
                expected=list(OUTPUTS),
            )
        if name in outputs:
            raise InputError("An output is named twice.", where=f"{where}/name", found=name, expected="each once")
        parameters = fields.parameters(entry, where)
        fields.refuse_shared_memory(parameters, where)
        outputs[name] = Requested(
            name, fields.flag(parameters, "binary_data", where, default=binary), _classes(name, parameters, where)
        )
    return tuple(outputs.values())


def _classes(name: str, parameters: dict[str, Any], where: str) -> int:
    classes = parameters.get("classification", 0)
    if type(classes) is not int or classes < 0:
        raise InputTypeError(
            "`classification` must be a number of classes.",
            where=f"{where}/parameters/classification",
            found=classes if type(classes) is int else kind_of(classes),
            expected="an integer of 1 or more",
        )
    if classes and name not in CLASSIFIED:
        raise InputError(
            f"Output {name!r} has no value for each class.",
            where=f"{where}/parameters/classification",
            found=name,
            expected=list(CLASSIFIED),
        )
    return classes


def _segment(parameters: dict[str, Any], each: list[str | None] | None) -> str | list[str | None] | None:
    where = "/parameters/segment"
    segment = fields.text(parameters, "segment", where)
    if segment is None:
        return each
    if each is not None:
        raise InputValueError("The segment is named twice.", where=where, found=segment, expected="once")
    return check_name(segment, "A segment has", where)


def _timeout(parameters: dict[str, Any]) -> float | None:
    value = parameters.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise InputTypeError(
            "`timeout` must be a number of microseconds.",
            where="/parameters/timeout",
            found=value if type(value) is int else kind_of(value),
            expected="an integer of 0 or more",
        )
    return value / _MICROSECONDS or None
