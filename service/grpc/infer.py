"""ModelInfer, and the requests of ModelStreamInfer, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from service.grpc.answer import write
from service.grpc.calls import Call, parsed
from service.grpc.messages import message
from service.grpc.request import parse
from service.open_inference.inferring import Inferring
from service.open_inference.named import own_name
from service.open_inference.versions import served_version
from service.operations.predicting import most_at_once

ModelInferRequest: Final = message("ModelInferRequest")
ModelStreamInferResponse: Final = message("ModelStreamInferResponse")


class Infer(Inferring):
    """Read a request, ask the plane of the model, write the answer."""

    async def alone(self, data: bytes, call: Call) -> bytes:
        """Answer a ModelInferRequest with a ModelInferResponse.

        Raises:
            CandorError: The request cannot be answered.
        """
        return await self._answer(data, call, lambda response: response.SerializeToString())

    async def in_stream(self, data: bytes, call: Call) -> bytes:
        """Answer a ModelInferRequest with a ModelStreamInferResponse.

        Raises:
            CandorError: The request cannot be answered.
        """
        return await self._answer(data, call, _streamed)

    async def _answer(self, data: bytes, call: Call, wrap: Callable[[Any], bytes]) -> bytes:
        request = parsed(ModelInferRequest, data)
        model = self._models.get(request.model_name)
        served = served_version(model, request.model_version or None)
        model.plane.check_room(served)
        raw = bool(request.raw_input_contents)
        own = own_name(served.bundle)
        read = partial(parse, request, served.input, served.encoder, max_rows=self._max_rows, own=own)
        # Raw numbers cost nothing to read; texts and typed contents take time.
        binary = raw and served.encoder is None and served.input.kind != "tensors"
        quick = binary or len(data) <= most_at_once(served.encoder)
        inferring = self._inferred(model, served, read, len(data), quick=quick, remaining_s=call.remaining_s)
        answer, inference, arrived, decoded = await inferring
        answered = time.perf_counter()
        content = await self._aside(lambda: wrap(write(answer, inference, raw=raw)), answer.logits.nbytes)
        encoded = time.perf_counter()
        model.plane.stages.encode.add(encoded - answered)
        call.facts["answer"] = answer
        call.times = (arrived, decoded, answered, encoded)
        return content


def _streamed(response: Any) -> bytes:
    response.parameters["triton_final_response"].bool_param = True  # one answer per request, as clients may check
    content: bytes = ModelStreamInferResponse(infer_response=response).SerializeToString()
    return content
