"""MLServer: a runtime for ONNX files; `settings` beside it are written by the benchmark."""

import os

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):
    async def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        uri = self.settings.parameters.uri
        self._session = ort.InferenceSession(uri, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = NumpyCodec.decode_input(payload.inputs[0])
        logits = self._session.run(["logits"], {"input": inputs})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("logits", logits)])
