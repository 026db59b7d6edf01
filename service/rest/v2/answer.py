"""Answers of /v2: JSON, with the tensors in it or after it."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import orjson

from bundle.open_inference import bytes_tensor
from service.open_inference.outputs import output, output_of_labels, parameters
from service.open_inference.request import ALL_IN_JSON, Inference
from service.open_inference.versions import version_of
from service.serving.labels import LabelsAnswer
from service.serving.plane import Answer

_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY
_HOLE: Final = b"\0"  # a byte that JSON never has


def write(answer: Answer | LabelsAnswer, inference: Inference) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON part if tensors follow, else None.

    Args:
        answer: Answer of the plane.
        inference: Request.
    """
    if isinstance(answer, LabelsAnswer):
        version, made = answer.served.revision.id.replace("r", ""), partial(output_of_labels, answer)
    elif inference.outputs is ALL_IN_JSON:
        return _all_in_json(answer, inference.id), None
    else:
        version, made = version_of(answer.served), partial(output, answer)
    document = _head(answer.served.revision.model, version, parameters(answer), inference.id)
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for requested in inference.outputs:
        name, datatype, shape, values = made(requested)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if requested.binary:
            behind.append(values.tobytes() if isinstance(values, np.ndarray) else bytes_tensor(values))
            entry["parameters"] = {"binary_data_size": len(behind[-1])}
        else:
            entry["data"] = values.reshape(-1) if isinstance(values, np.ndarray) else values
        outputs.append(entry)
    document["outputs"] = outputs
    head = orjson.dumps(document, option=_NUMPY)
    return (b"".join((head, *behind)), len(head)) if behind else (head, None)


def _head(model: str, version: str, given: dict[str, Any], name: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"model_name": model, "model_version": version, "parameters": given}
    if name is not None:
        document["id"] = name
    return document


def _all_in_json(answer: Answer, name: str | None) -> bytes:
    """Return the usual answer; only what differs between requests is formatted, since the rest takes longer."""
    served, given = answer.served, parameters(answer)
    actions = [action or "" for action in answer.actions]
    frame = _frame(
        served.revision.model, version_of(served), given.get("policy"), name is not None, answer.logits.shape
    )
    found: list[Any] = [given["prediction_ids"], answer.logits, answer.probabilities, answer.confidence, actions]
    if name is not None:
        found.insert(1, name)
    parts = [frame[0]]
    for value, after in zip(found, frame[1:], strict=True):
        if isinstance(value, np.ndarray):
            value = np.ascontiguousarray(value, np.float32).reshape(-1)
        parts += orjson.dumps(value, option=_NUMPY), after
    return b"".join(parts)


@lru_cache(maxsize=256)
def _frame(model: str, version: str, policy: str | None, named: bool, shape: tuple[int, ...]) -> list[bytes]:
    """Return an answer with all outputs in JSON in parts, between which are the ids, any name, and the values."""
    hole = orjson.Fragment(_HOLE)
    given = {"prediction_ids": hole} | ({} if policy is None else {"policy": policy})
    outputs = zip(ALL_IN_JSON, ("FP32", "FP32", "FP32", "BYTES"), (shape, shape, shape[:1], shape[:1]), strict=True)
    document = _head(model, version, given, hole if named else None)
    document["outputs"] = [
        {"name": requested.name, "datatype": datatype, "shape": sides, "data": hole}
        for requested, datatype, sides in outputs
    ]
    return orjson.dumps(document).split(_HOLE)
