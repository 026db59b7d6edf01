"""ModelInfer, and the requests of ModelStreamInfer, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from service.grpc.answer import write
from service.grpc.calls import Call, parsed
from service.grpc.messages import message
from service.grpc.request import parse
from service.open_inference.inferring import Inferring
from service.open_inference.named import own_name
from service.open_inference.request import Inference
from service.open_inference.versions import served_version
from service.operations.predicting import Predicting, most_at_once
from service.serving.model import Model
from service.serving.plane import Served

ModelInferRequest: Final = message("ModelInferRequest")
ModelStreamInferResponse: Final = message("ModelStreamInferResponse")


class _Prediction(Inferring[bytes]):
    """A ModelInferRequest."""

    def __init__(
        self, predicting: Predicting, model: Model, served: Served, request: Any, wrap: Callable[[Any], bytes]
    ) -> None:
        super().__init__(predicting, model, served)
        self._request = request
        self._raw = bool(request.raw_input_contents)
        self._wrap = wrap

    def quick(self, body: bytes) -> bool:
        """Return whether the contents are raw numbers, which cost nothing to read, or few."""
        binary = self._raw and self.served.encoder is None and self.served.input.kind != "tensors"
        return binary or len(body) <= most_at_once(self.served.encoder)

    def _read(self, body: bytes) -> Inference:  # noqa: ARG002 — it is a message by now
        served, most = self.served, self._predicting.max_rows
        return parse(self._request, served.input, served.encoder, max_rows=most, own=own_name(served.bundle))

    def write(self) -> bytes:
        """Return the serialized response."""
        return self._wrap(write(self.answer, self.read, raw=self._raw))


class Infer(Predicting):
    """Answer inference requests."""

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
        model = self.models.get(request.model_name)
        served = served_version(model, request.model_version or None)
        model.plane.check_room(served)
        prediction = _Prediction(self, model, served, request, wrap)
        prediction.remaining_s = call.remaining_s
        await self.predict(prediction, data)
        content = await self.written(prediction)
        call.facts["answer"] = prediction.answer
        call.times = prediction.times
        return content


def _streamed(response: Any) -> bytes:
    response.parameters["triton_final_response"].bool_param = True  # one answer per request, as clients may check
    content: bytes = ModelStreamInferResponse(infer_response=response).SerializeToString()
    return content
