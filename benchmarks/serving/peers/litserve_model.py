"""LitServe: python litserve_model.py MODE PORT WORKERS, with MODEL in the environment."""

import base64
import io
import os
import sys

import litserve
import numpy as np
import onnxruntime as ort


class Json(litserve.LitAPI):
    def setup(self, device: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self._session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])

    def decode_request(self, request: dict) -> np.ndarray:
        return np.array(request["inputs"], dtype=np.uint8)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self._session.run(["logits"], {"input": x})[0]

    def encode_response(self, output: np.ndarray) -> dict:
        return {"logits": output.tolist()}


class Batched(Json):
    def decode_request(self, request: dict) -> np.ndarray:
        return np.load(io.BytesIO(base64.b64decode(request["npy"])), allow_pickle=False)

    def batch(self, inputs: list[np.ndarray]) -> np.ndarray:
        self._rows = np.cumsum([len(part) for part in inputs])[:-1]
        return np.concatenate(inputs)

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        return np.split(output, self._rows)


if __name__ == "__main__":
    mode, port, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if mode == "Batched":
        api, fast = Batched(max_batch_size=32, batch_timeout=0.001), True
    else:
        api, fast = Json(), False
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=workers, fast_queue=fast)
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning")
