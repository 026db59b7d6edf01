"""Ray Serve: python ray_model.py MODEL.onnx PORT; images as `.npy` files, logits as float32."""

import io
import signal
import sys

import numpy as np
import onnxruntime as ort
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=64)
class Onnx:
    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":  # readiness
            return Response()
        images = np.load(io.BytesIO(await request.body()), allow_pickle=False)
        logits = self._session.run(["logits"], {"input": images})[0]
        return Response(logits.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(Onnx.bind(sys.argv[1]), route_prefix="/predict")
    signal.sigwait({signal.SIGTERM})
    ray.shutdown()
