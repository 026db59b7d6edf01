"""Read inference requests: the document, its tensors in JSON or in bytes, or a tensor alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from bundle import Columns, InputSpec, Tokenizer
from bundle.open_inference import BYTES
from service.errors import InputError, InputTypeError, InputValueError, MalformedBodyError, kind_of
from service.inference.amounts import AMOUNTS
from service.inference.encoded import Absent, decode_images
from service.inference.inputs import NOTHING, Beyond, Encoder
from service.inference.names import check_name
from service.inference.per_row import NOTHING_SAID, PER_ROW, PerRow
from service.open_inference import fields, named, parameters
from service.open_inference.named import INPUT
from service.open_inference.tensor import InputTensor, raw_tensor
from service.places import Place, in_body, in_header

MOST_BESIDE: Final = len(PER_ROW)
"""Maximum number of tensors beside the model's own, and those of challengers."""

LOGITS, PROBABILITIES, CONFIDENCE, DECISION = OUTPUTS = ("logits", "probabilities", "confidence", "decision")
SET: Final = "set"
"""Output that is there on request only, and only of a policy that makes sets."""
CLASSIFIED: Final = (LOGITS, PROBABILITIES)
"""Outputs with a value per class, which the classification extension applies to."""

_ONE: Final = frozenset({INPUT})
_ALLOWED: Final = frozenset({INPUT, *PER_ROW})
_FIRST: Final = in_body("inputs", 0)
_ID: Final = in_body("id")
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Requested:
    """A requested output.

    Attributes:
        name: One of `OUTPUTS`, or `SET`.
        binary: Whether the values follow the JSON instead of being part of it.
        classes: Number of classes to name in place of the tensor; 0 returns the tensor.
    """

    name: str
    binary: bool
    classes: int = 0


ALL_IN_JSON: Final = tuple(Requested(name, binary=False) for name in OUTPUTS)
ALL_BINARY: Final = tuple(Requested(name, binary=True) for name in OUTPUTS)


@dataclass(slots=True, eq=False)  # not frozen: that takes several times as long to make, once per request
class Inference:
    """Content of an inference request, never changed.

    Attributes:
        inputs: Input array of N examples or one, or encoded images.
        outputs: Requested outputs, in order.
        id: The client's name of the request, repeated in the answer.
        policy: Name of the policy to decide with.
        timeout_s: Queueing deadline in seconds, None for the default of the service.
        segment: Segment of all rows.
        per_row: What is said of each row.
        where: Place of the input tensor, for errors.
        absent: Accepted missing and unknown values of columns; None for other inputs.
    """

    inputs: npt.NDArray[Any] | list[bytes]
    outputs: tuple[Requested, ...]
    id: str | None = None
    policy: str | None = None
    timeout_s: float | None = None
    segment: str | None = None
    per_row: PerRow = NOTHING_SAID
    where: Place = _FIRST
    absent: Absent | None = None

    def array(self, spec: InputSpec, *, max_pixels: int) -> npt.NDArray[Any]:
        """Return the inputs, decoded where they are images.

        Raises:
            InputValueError: An image cannot be used; `where` names its row.
        """
        return decode_images(self.inputs, spec, max_pixels=max_pixels) if isinstance(self.inputs, list) else self.inputs


def read(
    document: dict[str, Any],
    body: bytes,
    start: int,
    spec: InputSpec,
    encoder: Encoder | None,
    *,
    max_rows: int,
    own: str = INPUT,
    beyond: Beyond = NOTHING,
) -> Inference:
    """Read an inference request.

    Args:
        document: The request as its JSON document.
        body: Bytes that contain the binary data of its tensors, in order.
        start: Offset of the first binary data in `body`, which ends with the last.
        spec: Input of the model.
        encoder: Encoder of texts in the bundle of the model.
        max_rows: Maximum number of texts or encoded images.
        own: Name of the only input in the graph of the model.
        beyond: Columns of its challengers.

    Raises:
        MalformedBodyError: The document is not an inference request.
        InputError: The request cannot be answered.
    """
    given = parameters.of_request(document)
    tensors, naming, by_name = _tensors(document, body, start, spec, encoder, own, beyond.known)
    carried = {name: tensors[name] for name in beyond.carried & tensors.keys()} if by_name else {}
    if by_name and isinstance(encoder, Columns) and beyond.known:
        tensors = {name: tensor for name, tensor in tensors.items() if name in encoder.kinds}
    said: dict[str, Any] = {
        name: (tensor.amounts if name == AMOUNTS else tensor.names)(body, max_rows) for name, tensor in naming.items()
    }
    absent: Absent | None = Counter() if by_name else None
    inference = Inference(
        inputs=_inputs(tensors, body, spec, encoder, max_rows, absent, by_name=by_name),
        outputs=_outputs(document, binary=fields.flag(given, "binary_data_output"))
        if len(document) > 1
        else ALL_IN_JSON,
        id=fields.text(document, "id", _ID) if "id" in document else None,
        where=next(iter(tensors.values())).where,
        absent=absent,
    )
    if carried:
        said["carried"] = named.carried_cells(carried, body, len(inference.inputs))
    if given:
        inference.policy = fields.text(given, "policy", in_body("parameters", "policy"))
        inference.timeout_s = _timeout(given)
        for name in ("references", "groups"):
            if (listed := parameters.names_of(given, name, max_rows)) is not None:
                if name in said:
                    raise parameters.given_twice(name)
                said[name] = listed
        inference.segment = _segment(given, said.get("segments"))
    if said:
        inference.per_row = PerRow(**said)
    return inference


def alone(body: bytes, spec: InputSpec, encoder: Encoder | None, *, max_rows: int) -> Inference:
    """Return a request whose body is the input tensor alone, in the datatype of the model.

    Raises:
        InputError: The model takes several tensors or texts, or the body is not a whole number of examples.
    """
    declared = [named.matrix(spec)] if spec.kind == "array" else named.declared(spec, encoder)
    name, datatype, shape = declared[0]
    if len(declared) > 1 or datatype == BYTES:
        raise MalformedBodyError(
            "The body requires a JSON part: the model takes several tensors, or texts.",
            where=in_header("Inference-Header-Content-Length"),
            found="0",
            expected="the length of the JSON part",
        )
    tensors, by_name = {name: raw_tensor(body, datatype, shape)}, _by_name([name], spec, encoder)
    return Inference(_inputs(tensors, body, spec, encoder, max_rows, by_name=by_name), ALL_BINARY)


def _inputs(
    tensors: dict[str, InputTensor],
    body: bytes,
    spec: InputSpec,
    encoder: Encoder | None,
    max_rows: int,
    absent: Absent | None = None,
    *,
    by_name: bool,
) -> npt.NDArray[Any] | list[bytes]:
    if not by_name:
        return tensors[INPUT].inputs(body, spec, encoder, max_rows)
    return named.read(tensors, body, spec, encoder, max_rows, absent)


def _by_name(names: list[str], spec: InputSpec, encoder: Encoder | None) -> bool:
    """Return whether a request names the model's own inputs, instead of one matrix or texts."""
    if isinstance(encoder, Columns) and spec.kind == "array":
        return INPUT not in names or INPUT in encoder.kinds
    if isinstance(encoder, Tokenizer):
        return INPUT not in names or any(tensor.name == INPUT for tensor in spec.tensors)
    return spec.kind in ("tensors", "scores")


def _tensors(
    document: dict[str, Any],
    body: bytes,
    length: int,
    spec: InputSpec,
    encoder: Encoder | None,
    own: str,
    beyond: Set[str],
) -> tuple[dict[str, InputTensor], dict[str, InputTensor], bool]:
    """Return the model's inputs, what the client says of the rows, and whether the inputs are named as the model's own.

    The bytes follow the JSON part in order.
    """
    inputs = document.get("inputs")
    if not isinstance(inputs, list):
        raise MalformedBodyError(
            "The request requires `inputs`, an array of tensors.",
            where=in_body("inputs"),
            found=kind_of(inputs) if "inputs" in document else "nothing",
            expected="array",
        )
    sent = [_name(tensor) for tensor in inputs]
    names = named.renamed(sent, own, spec, encoder)
    known: set[str] | frozenset[str] = _ONE
    by_name = _by_name(names, spec, encoder)
    if by_name:
        encoder = None if isinstance(encoder, Tokenizer) else encoder  # the client has made ids and masks itself
        known = {tensor.name for tensor in named.declared(spec, encoder)}
        named.check_names(names, PER_ROW, spec, encoder, beyond if isinstance(encoder, Columns) else frozenset())
    elif names != [INPUT] and (INPUT not in names or len(_ALLOWED.intersection(names)) != len(names)):
        called = INPUT if isinstance(encoder, Tokenizer) else own
        raise InputError(
            f"The model takes one input tensor named {called!r}, and optionally one each of {', '.join(PER_ROW)}.",
            where=in_body("inputs"),
            found=sent[:10],
            expected=[called] if called == INPUT else [called, INPUT],
        )
    tensors: dict[str, InputTensor] = {}
    end = length
    for index, (name, entry) in enumerate(zip(names, inputs, strict=True)):
        tensors[name] = InputTensor(entry, in_body("inputs", index), start=end)
        end = tensors[name].end
    if end != len(body):
        raise MalformedBodyError(
            "The bytes after the JSON part do not match the sizes of the input tensors.",
            where=in_body("inputs"),
            found=f"{len(body) - length} bytes",
            expected=f"{end - length} bytes",
            remedy="Check Inference-Header-Content-Length: it must be the exact length of the JSON part.",
        )
    naming: dict[str, InputTensor] = {}
    if len(tensors) > 1:
        naming = {name: tensors.pop(name) for name in PER_ROW if name in tensors and name not in known}
    return tensors, naming, by_name


def _name(tensor: Any) -> str:
    name = tensor.get("name") if isinstance(tensor, dict) else None
    return name if isinstance(name, str) else kind_of(name)


def _outputs(document: dict[str, Any], *, binary: bool) -> tuple[Requested, ...]:
    entries = document.get("outputs")
    if entries is not None and not isinstance(entries, list):
        raise MalformedBodyError(
            "`outputs` must be an array.", where=in_body("outputs"), found=kind_of(entries), expected="array"
        )
    if not entries:
        return ALL_BINARY if binary else ALL_IN_JSON
    outputs: dict[str, Requested] = {}
    for index, entry in enumerate(entries):
        where = in_body("outputs", index)
        name = entry.get("name") if isinstance(entry, dict) else None
        if name not in (*OUTPUTS, SET):
            raise InputError(
                "Unknown output.",
                where=where / "name",
                found=name if isinstance(name, str) else kind_of(name),
                expected=[*OUTPUTS, SET],
            )
        if name in outputs:
            raise InputError("Duplicate output.", where=where / "name", found=name, expected="each once")
        given = parameters.of_tensor(entry, "output", where)
        outputs[name] = Requested(
            name, fields.flag(given, "binary_data", where, default=binary), _classes(name, given, where)
        )
    return tuple(outputs.values())


def _classes(name: str, given: dict[str, Any], where: Place) -> int:
    classes = given.get("classification", 0)
    if type(classes) is not int or classes < 0:
        raise InputTypeError(
            "`classification` must be a number of classes.",
            where=where / "parameters" / "classification",
            found=classes if type(classes) is int else kind_of(classes),
            expected="an integer of 1 or more",
        )
    if classes and name not in CLASSIFIED:
        raise InputError(
            f"Output {name!r} does not have a value per class.",
            where=where / "parameters" / "classification",
            found=name,
            expected=list(CLASSIFIED),
        )
    return classes


def _segment(given: dict[str, Any], each: list[str | None] | None) -> str | None:
    where = in_body("parameters", "segment")
    segment = fields.text(given, "segment", where)
    if segment is None:
        return None
    if each is not None:
        raise InputValueError("The segment is given twice.", where=where, found=segment, expected="once")
    return check_name(segment, "A segment has", where)


def _timeout(given: dict[str, Any]) -> float | None:
    value = given.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise InputTypeError(
            "`timeout` must be a number of microseconds.",
            where=in_body("parameters", "timeout"),
            found=value if type(value) is int else kind_of(value),
            expected="an integer of 0 or more",
        )
    return value / _MICROSECONDS or None
