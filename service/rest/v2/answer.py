"""An answer in the protocol's words: JSON, with the tensors in it or behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from service.plane import Answer
from service.rest.v2.datatypes import BYTES
from service.rest.v2.request import CONFIDENCE, DECISION, LOGITS, Inference, Requested
from service.rest.v2.versions import version_of

_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY


def write(answer: Answer, inference: Inference) -> tuple[bytes, int | None]:
    """Return the body of an answer, and how many of its bytes are JSON if tensors follow, else None.

    Args:
        answer: What the model says.
        inference: What was asked for.
    """
    revision = answer.served.revision
    parameters: dict[str, str] = {"prediction_ids": ",".join(answer.ids)}
    if answer.policy is not None:
        parameters["policy"] = f"{answer.policy.policy.id}@{answer.policy.version}"
    document: dict[str, Any] = {
        "model_name": revision.model,
        "model_version": version_of(revision),
        "parameters": parameters,
    }
    if inference.id is not None:
        document["id"] = inference.id
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for requested in inference.outputs:
        if requested.name == DECISION or requested.classes:
            output, data = _strings(answer, requested)
        else:
            output, data = _numbers(answer, requested)
        outputs.append(output)
        if data is not None:
            behind.append(data)
    document["outputs"] = outputs
    head = orjson.dumps(document, option=_NUMPY)
    return (b"".join((head, *behind)), len(head)) if behind else (head, None)


def _numbers(answer: Answer, requested: Requested) -> tuple[dict[str, Any], bytes | None]:
    values = _values(answer, requested.name)
    output: dict[str, Any] = {"name": requested.name, "datatype": "FP32", "shape": values.shape}
    if not requested.binary:
        output["data"] = values.reshape(-1)
        return output, None
    data = values.tobytes()
    output["parameters"] = {"binary_data_size": len(data)}
    return output, data


def _strings(answer: Answer, requested: Requested) -> tuple[dict[str, Any], bytes | None]:
    shape: tuple[int, ...]
    if requested.classes:
        values = _values(answer, requested.name)
        texts: Sequence[str] = top_classes(values, answer.served.labels, requested.classes)
        shape = (len(values), len(texts) // len(values))
    else:
        texts = [action or "" for action in answer.actions]
        shape = (len(texts),)
    output: dict[str, Any] = {"name": requested.name, "datatype": BYTES, "shape": shape}
    if not requested.binary:
        output["data"] = texts
        return output, None
    data = bytes_tensor(texts)
    output["parameters"] = {"binary_data_size": len(data)}
    return output, data


def _values(answer: Answer, name: str) -> npt.NDArray[np.float32]:
    if name == LOGITS:
        values = answer.logits
    elif name == CONFIDENCE:
        values = answer.confidence
    else:
        values = answer.probabilities
    return np.ascontiguousarray(values, dtype=np.float32)


def top_classes(values: npt.NDArray[np.float32], labels: Sequence[str], count: int) -> list[str]:
    """Return the classes of the largest values as "value:index:label", row after row, largest first.

    Among equal values the class with the smaller index comes first. A value is written so that it reads back as the
    very same float32.

    Args:
        values: Shape (N, K).
        labels: Names of the K classes.
        count: Classes per row; all of them where there are fewer.

    Example:
        >>> top_classes(np.array([[0.25, 0.5, 0.25]], dtype=np.float32), ("cat", "dog", "eel"), 2)
        ['0.5:1:dog', '0.25:0:cat']
    """
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    shortest = orjson.dumps(np.take_along_axis(values, order, axis=1).reshape(-1), option=_NUMPY)[1:-1].decode()
    shortest = shortest.replace("null", "-inf")  # what JSON has no number for, and readers of text have
    pairs = zip(shortest.split(","), order.reshape(-1).tolist(), strict=True)
    return [f"{value}:{index}:{labels[index]}" for value, index in pairs]


def bytes_tensor(texts: Sequence[str]) -> bytes:
    r"""Return texts as a BYTES tensor: each is its length in four bytes, then its UTF-8.

    >>> bytes_tensor(["a", ""])
    b'\x01\x00\x00\x00a\x00\x00\x00\x00'
    """
    parts: list[bytes] = []
    for text in texts:
        encoded = text.encode()
        parts += (len(encoded).to_bytes(4, "little"), encoded)
    return b"".join(parts)
