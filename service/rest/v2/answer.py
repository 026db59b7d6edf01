"""Answers of /v2: JSON, with the tensors in it or after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from bundle.open_inference import bytes_tensor
from service.open_inference.outputs import output, parameters
from service.open_inference.request import Inference
from service.open_inference.versions import version_of
from service.serving.plane import Answer


def write(answer: Answer, inference: Inference) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON part if tensors follow, else None.

    Args:
        answer: Answer of the plane.
        inference: Request.
    """
    revision = answer.served.revision
    document: dict[str, Any] = {
        "model_name": revision.model,
        "model_version": version_of(revision),
        "parameters": parameters(answer),
    }
    if inference.id is not None:
        document["id"] = inference.id
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for requested in inference.outputs:
        name, datatype, shape, values = output(answer, requested)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if requested.binary:
            behind.append(values.tobytes() if isinstance(values, np.ndarray) else bytes_tensor(values))
            entry["parameters"] = {"binary_data_size": len(behind[-1])}
        else:
            entry["data"] = values.reshape(-1) if isinstance(values, np.ndarray) else values
        outputs.append(entry)
    document["outputs"] = outputs
    head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((head, *behind)), len(head)) if behind else (head, None)
