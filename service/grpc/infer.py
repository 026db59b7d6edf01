"""ModelInfer, and the requests of ModelStreamInfer, one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from service.grpc.answer import write
from service.grpc.calls import FEW_PARTS, Call, parsed
from service.grpc.gathering import Gathering
from service.grpc.messages import message
from service.grpc.request import parse
from service.grpc.wire import count_parts
from service.open_inference.inferring import Inferring
from service.open_inference.request import Inference
from service.open_inference.versions import served_version
from service.operations.decoding import Decoders
from service.operations.predicting import LARGE, Predicting, most_at_once
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Served
from service.settings import Settings
from service.telemetry.metrics import Metrics

ModelInferRequest: Final = message("ModelInferRequest")
ModelStreamInferResponse: Final = message("ModelStreamInferResponse")
_MOST_PARTS: Final = 65_536  # which take 26 ms to parse; each text of typed contents is one


class _Prediction(Inferring[bytes]):
    """A ModelInferRequest."""

    def __init__(
        self,
        predicting: Predicting,
        model: Model,
        served: Served,
        request: Any,
        wrap: Callable[[Any], bytes],
        *,
        quick: bool,
    ) -> None:
        super().__init__(predicting, model, served)
        self._request = request
        self._raw = bool(request.raw_input_contents)
        self._wrap = wrap
        self._quick = quick

    def quick(self, body: bytes) -> bool:
        """Return whether the contents are raw numbers in few tensors, which cost nothing to read, or few."""
        binary = self._raw and self.served.encoder is None and self.served.input.kind != "tensors"
        return (binary and self._quick) or len(body) <= most_at_once(self.served.encoder)

    def _read(self, body: bytes) -> Inference:  # noqa: ARG002 — it is a message by now
        return parse(self._request, self.model, self.served, max_rows=self._predicting.max_rows)

    def write(self) -> bytes:
        """Return the serialized response."""
        return self._wrap(write(self.answer, self.read, raw=self._raw))


class Infer(Predicting):
    """Answer inference requests."""

    def __init__(self, models: Models, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        super().__init__(models, settings, metrics, decoders)
        self._gathering = Gathering()

    async def alone(self, data: bytes, call: Call) -> bytes:
        """Answer a ModelInferRequest with a ModelInferResponse.

        Raises:
            CandorError: The request cannot be answered.
        """
        await self._gathering.together()
        return await self._answer(data, call, lambda response: response.SerializeToString())

    async def in_stream(self, data: bytes, call: Call) -> bytes:
        """Answer a ModelInferRequest with a ModelStreamInferResponse.

        Raises:
            CandorError: The request cannot be answered.
        """
        return await self._answer(data, call, _streamed)

    async def _message(self, data: bytes) -> tuple[Any, bool]:
        """Return a request, and whether it has few parts."""
        if len(data) <= LARGE or count_parts(ModelInferRequest, data, FEW_PARTS) <= FEW_PARTS:
            return parsed(ModelInferRequest, data), True
        return await self._decoders.run(partial(parsed, ModelInferRequest, data, _MOST_PARTS), len(data)), False

    async def _answer(self, data: bytes, call: Call, wrap: Callable[[Any], bytes]) -> bytes:
        request, quick = await self._message(data)
        model = self.models.get(request.model_name)
        call.principal.on(model.name).require("predict")
        served = served_version(model, request.model_version or None)
        model.plane.check_room(served)
        prediction = _Prediction(self, model, served, request, wrap, quick=quick)
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
