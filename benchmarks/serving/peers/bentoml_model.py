"""BentoML: bentoml serve bentoml_model:Onnx, with MODEL in the environment."""

import os

import bentoml
import numpy as np
import onnxruntime as ort


@bentoml.service(workers=1)
class Onnx:
    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])

    @bentoml.api
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._session.run(["logits"], {"input": inputs.astype(np.uint8)})[0]
