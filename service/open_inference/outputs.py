"""Outputs of answered inference requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from bundle.open_inference import BYTES
from service.errors import InputValueError
from service.open_inference.datatypes import BOOL
from service.open_inference.request import CONFIDENCE, DECISION, LOGITS, PROBABILITIES, SET, Requested
from service.places import in_body
from service.serving.labels import LabelsAnswer
from service.serving.plane import Answer

_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY


class Output(NamedTuple):
    """An output tensor.

    Attributes:
        name: One of `OUTPUTS`, or `SET`.
        datatype: "FP32", "BOOL" or "BYTES".
        shape: Shape of the tensor.
        values: float32 or bool values in that shape, or texts, flat.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | Sequence[str]


def output(answer: Answer, requested: Requested) -> Output:
    """Return an output of an answer as it was requested.

    Raises:
        InputValueError: A prediction set is requested of a policy without one.
    """
    if requested.name == DECISION:
        texts: Sequence[str] = [action or "" for action in answer.actions]
        return Output(requested.name, BYTES, (len(texts),), texts)
    if requested.name == SET:
        if answer.sets is None:
            raise InputValueError(
                "No prediction sets: the policy has no `set`, or no policy decides.",
                where=in_body("outputs"),
                found=SET,
                expected="a policy with `set`",
                remedy="Leave the output out, or name a policy with `set`.",
            )
        return Output(SET, BOOL, answer.sets.shape, np.ascontiguousarray(answer.sets))
    values = _values(answer, requested.name)
    if not requested.classes:
        return Output(requested.name, "FP32", values.shape, values)
    texts = top_classes(values, answer.served.labels, requested.classes)
    return Output(requested.name, BYTES, (len(values), len(texts) // len(values)), texts)


def output_of_labels(answer: LabelsAnswer, requested: Requested) -> Output:
    """Return an output of a multi-label model, with a column per label.

    `probabilities` are those of its presence, `logits` its log-odds as the model gives them, `confidence` the
    probability of the more probable side, `decision` the action.

    Raises:
        InputValueError: Prediction sets are requested.
    """
    if requested.name == SET:
        raise InputValueError(
            "Multi-label models answer no prediction sets.",
            where=in_body("outputs"),
            found=SET,
            expected=f"{PROBABILITIES}, {LOGITS}, {CONFIDENCE} or {DECISION}",
            remedy="Send the request to the model of one label.",
        )
    if requested.name == DECISION:
        rows = zip(*(one.actions for one in answer.answers), strict=True)
        texts: Sequence[str] = [action or "" for row in rows for action in row]
        return Output(requested.name, BYTES, (len(answer.ids), len(answer.answers)), texts)
    if requested.name == CONFIDENCE:
        values = np.stack([one.confidence for one in answer.answers], axis=1)
    else:
        values = answer.logits if requested.name == LOGITS else answer.probabilities
    if not requested.classes:
        return Output(requested.name, "FP32", values.shape, np.ascontiguousarray(values, np.float32))
    texts = top_classes(values, answer.served.labels, requested.classes)
    return Output(requested.name, BYTES, (len(values), len(texts) // len(values)), texts)


def parameters(answer: Answer | LabelsAnswer) -> dict[str, str]:
    """Return the parameters of an answer: the prediction ids, and the policy with its version."""
    found = {"prediction_ids": ",".join(answer.ids)}
    if isinstance(answer, LabelsAnswer):
        used = [one.policy for one in answer.answers]
        policies = ["" if one is None else f"{one.policy.id}@{one.version}" for one in used]
        return found | ({"policies": ",".join(policies)} if any(policies) else {})
    if answer.policy is not None:
        found["policy"] = f"{answer.policy.policy.id}@{answer.policy.version}"
    return found


def _values(answer: Answer, name: str) -> npt.NDArray[np.float32]:
    if name == LOGITS:
        values = answer.logits
    elif name == CONFIDENCE:
        values = answer.confidence
    else:
        values = answer.probabilities
    return np.ascontiguousarray(values, dtype=np.float32)


def top_classes(values: npt.NDArray[np.float32], labels: Sequence[str], count: int) -> list[str]:
    """Return the classes with the largest values as "value:index:label", row by row, largest first.

    Among equal values the class with the smaller index comes first. A value reads back as the same float32.

    Args:
        values: Shape (N, K).
        labels: Names of the K classes.
        count: Maximum classes per row.

    Example:
        >>> top_classes(np.array([[0.25, 0.5, 0.25]], dtype=np.float32), ("cat", "dog", "eel"), 2)
        ['0.5:1:dog', '0.25:0:cat']
    """
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    shortest = orjson.dumps(np.take_along_axis(values, order, axis=1).reshape(-1), option=_NUMPY)[1:-1].decode()
    shortest = shortest.replace("null", "-inf")  # JSON cannot express it, text can
    pairs = zip(shortest.split(","), order.reshape(-1).tolist(), strict=True)
    return [f"{value}:{index}:{labels[index]}" for value, index in pairs]
