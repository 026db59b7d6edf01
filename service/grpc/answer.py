"""Answers of inference as messages, with raw or typed contents."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bundle.open_inference import bytes_tensor
from service.grpc.messages import message
from service.open_inference.datatypes import BOOL
from service.open_inference.outputs import output, parameters
from service.open_inference.request import Inference
from service.open_inference.versions import version_of
from service.serving.plane import Answer

ModelInferResponse: Final = message("ModelInferResponse")


def write(answer: Answer, inference: Inference, *, raw: bool) -> Any:
    """Return a ModelInferResponse.

    Args:
        answer: Answer of the plane.
        inference: Request.
        raw: Whether the request had raw contents: the answer has contents of the same kind.
    """
    served = answer.served
    response = ModelInferResponse(
        model_name=served.revision.model, model_version=version_of(served), id=inference.id or ""
    )
    for name, text in parameters(answer).items():
        response.parameters[name].string_param = text
    for requested in inference.outputs:
        name, datatype, shape, values = output(answer, requested)
        tensor = response.outputs.add(name=name, datatype=datatype, shape=shape)
        if raw:
            data = values.tobytes() if isinstance(values, np.ndarray) else bytes_tensor(values)
            response.raw_output_contents.append(data)
        elif datatype == BOOL and isinstance(values, np.ndarray):
            tensor.contents.bool_contents.extend(values.reshape(-1).tolist())
        elif isinstance(values, np.ndarray):
            tensor.contents.fp32_contents.extend(values.reshape(-1).tolist())
        else:
            tensor.contents.bytes_contents.extend(text.encode() for text in values)
    return response
