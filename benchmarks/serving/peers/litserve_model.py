"""LitServe: python litserve_model.py MODEL.onnx PORT."""

import sys

import litserve
import numpy as np
import onnxruntime as ort


class Onnx(litserve.LitAPI):
    def setup(self, device: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])

    def decode_request(self, request: dict) -> np.ndarray:
        return np.array(request["inputs"], dtype=np.uint8)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self._session.run(["logits"], {"input": x})[0]

    def encode_response(self, output: np.ndarray) -> dict:
        return {"logits": output.tolist()}


if __name__ == "__main__":
    litserve.LitServer(Onnx(), accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="warning"
    )
