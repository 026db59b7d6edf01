"""KServe: python kserve_model.py --http_port PORT --workers WORKERS …, with MODEL in the environment."""

import os

import onnxruntime as ort
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Onnx(Model):
    def __init__(self) -> None:
        super().__init__("model")
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self._session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self.ready = True

    def __reduce__(self):  # workers get a copy of the model
        return Onnx, ()

    def predict(self, payload: InferRequest, headers=None, response_headers=None) -> InferResponse:
        logits = self._session.run(["logits"], {"input": payload.inputs[0].as_numpy()})[0]
        output = InferOutput(name="logits", shape=list(logits.shape), datatype="FP32")
        output.set_data_from_numpy(logits, binary_data=bool(payload.use_binary_outputs))
        return InferResponse(response_id=payload.id or "0", model_name=self.name, infer_outputs=[output])


if __name__ == "__main__":
    ModelServer(enable_grpc=False).start([Onnx()])
