"""Ray Serve: python ray_model.py DEPLOYMENT PORT WORKERS, with MODEL in the environment.

Images come as `.npy` files, logits are answered as float32.
"""

import io
import os
import signal
import sys

import numpy as np
import onnxruntime as ort
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


def session() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["THREADS"])
    return ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])


@serve.deployment(max_ongoing_requests=64)
class Single:
    def __init__(self) -> None:
        self._session = session()

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":  # readiness
            return Response()
        images = np.load(io.BytesIO(await request.body()), allow_pickle=False)
        logits = self._session.run(["logits"], {"input": images})[0]
        return Response(logits.tobytes(), media_type="application/octet-stream")


@serve.deployment(max_ongoing_requests=64)
class Batched:
    def __init__(self) -> None:
        self._session = session()

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0)
    async def _run(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        logits = self._session.run(["logits"], {"input": np.concatenate(parts)})[0]
        return np.split(logits, np.cumsum([len(part) for part in parts])[:-1])

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":  # readiness
            return Response()
        images = np.load(io.BytesIO(await request.body()), allow_pickle=False)
        return Response((await self._run(images)).tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    deployment, port, workers = {"Single": Single, "Batched": Batched}[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=workers + 1)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(deployment.options(num_replicas=workers).bind(), route_prefix="/predict")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.pause()
