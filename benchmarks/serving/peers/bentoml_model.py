"""BentoML: bentoml serve bentoml_model:SERVICE, with MODEL and WORKERS in the environment."""

import io
import os

import bentoml
import numpy as np
import onnxruntime as ort
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

workers = int(os.environ["WORKERS"])


def session() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["THREADS"])
    return ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])


@bentoml.service(workers=workers)
class Onnx:
    def __init__(self) -> None:
        self._session = session()

    @bentoml.api
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._session.run(["logits"], {"input": inputs.astype(np.uint8)})[0]


@bentoml.service(workers=workers)
class Batched:
    def __init__(self) -> None:
        self._session = session()

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=1000)
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._session.run(["logits"], {"input": inputs.astype(np.uint8)})[0]


async def predict(request: Request) -> Response:
    images = np.load(io.BytesIO(await request.body()), allow_pickle=False)
    logits = bentoml.get_current_service().session.run(["logits"], {"input": images})[0]
    return Response(logits.tobytes(), media_type="application/octet-stream")


@bentoml.service(workers=workers)
@bentoml.asgi_app(Starlette(routes=[Route("/predict", predict, methods=["POST"])]), path="/raw")
class Mounted:
    def __init__(self) -> None:
        self.session = session()
