"""The benchmark's models with random weights, as ONNX files and bundles: one of LeNet's size, one slow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import bundle
from calibrators import CALIBRATORS

SHAPE = (32, 32, 3)
CLASSES = 10
LENET, SLOW = "lenet", "slow"
_OPSET, _IR = 20, 10
_REFERENCE_ROWS = 3_000
_POLICY = """\
id: default
positive: top
bands:
  - {action: accept, when: {min_probability: 0.5}}
  - {action: review}
"""


@dataclass(frozen=True)
class Prepared:
    """A model and its data for a run.

    Attributes:
        onnx: The model file.
        bundles: Folder of bundles with the model as `<name>/1`.
        policies: Folder of its policies.
        inputs: uint8 (N, 32, 32, 3).
        logits: float32 (N, K), from ONNX Runtime on the CPU.
        probabilities: float32 (N, K), calibrated.
    """

    onnx: Path
    bundles: Path
    policies: Path
    inputs: npt.NDArray[np.uint8]
    logits: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]


def prepare(name: str, folder: Path, *, classes: int = CLASSES, policy: str = _POLICY) -> Prepared:
    """Write the model called `LENET` or `SLOW`, its bundle and a policy to a folder."""
    rng = np.random.default_rng(7)
    graph = {LENET: _lenet, SLOW: _slow}[name](rng, classes)
    model_bytes = helper.make_model(
        graph, ir_version=_IR, opset_imports=[helper.make_opsetid("", _OPSET)]
    ).SerializeToString()
    inputs = rng.integers(0, 256, (64, *SHAPE)).astype(np.uint8)
    return bundled(name, model_bytes, inputs, folder, policy=policy)


def bundled(
    name: str, model_bytes: bytes, inputs: npt.NDArray[np.uint8], folder: Path, *, policy: str = _POLICY
) -> Prepared:
    """Write a model, a bundle of it and a policy to a folder. The reference rows are synthetic, and so is calibration.

    Args:
        name: Name of the model.
        model_bytes: ONNX model from `input`, uint8 (N, 32, 32, 3), to `logits`.
        inputs: Images to compare answers on; the first four are golden.
        folder: The folder.
        policy: The policy `default`, as YAML.
    """
    rng = np.random.default_rng(7)
    path = folder / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model_bytes)
    session = ort.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    logits = np.concatenate([session.run(["logits"], {"input": row[None]})[0] for row in inputs])
    classes = logits.shape[1]
    reference = bundle.Reference(*(overconfident(rng, _REFERENCE_ROWS // 3, classes) for _ in range(3)))
    calibrator = CALIBRATORS["temperature"]().fit(reference.fit.logits, reference.fit.labels)
    bundle.write(
        folder / "bundles",
        bundle.BundleContents(
            model=name,
            labels=tuple(str(label) for label in range(classes)),
            input=bundle.InputSpec(kind="image", dtype="uint8", shape=SHAPE),
            model_bytes=model_bytes,
            calibrator=calibrator,
            reference=reference,
            golden=bundle.Golden(inputs[:4], logits[:4]),
            architecture=bundle.Architecture(name=name, parameters=0, config={}),
            training=bundle.TrainingRecord(
                dataset="noise",
                loss=bundle.Loss(name="cross_entropy"),
                seed=7,
                epochs=1,
                batch_size=1,
                optimiser="none",
                learning_rate=0.1,
                splits={"train": bundle.Part(rows=1, sha256="0" * 64)},
            ),
            versions={"onnx": onnx.__version__},
            metrics={},
            report={"schema_version": 1},
        ),
    )
    file = folder / "policies" / name / "default.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(policy, encoding="utf-8")
    probabilities = np.asarray(calibrator.predict_proba(logits), dtype=np.float32)
    return Prepared(path, folder / "bundles", folder / "policies", inputs, logits, probabilities)


def overconfident(
    rng: np.random.Generator, count: int, classes: int, *, temperature: float = 1.5
) -> bundle.LabelledLogits:
    """Draw logits, and labels with true probabilities softmax(logits / temperature)."""
    logits = rng.normal(size=(count, classes)) * 2
    labels = np.argmax(logits / temperature + rng.gumbel(size=logits.shape), axis=1)
    return bundle.LabelledLogits(logits.astype(np.float32), labels.astype(np.int64))


class _Layers:
    """A sequence of nodes with random weights."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._last = "input"

    def add(self, operator: str, *weights: npt.NDArray[Any], name: str | None = None, **attributes: Any) -> _Layers:
        number = len(self._nodes)
        names = [f"w{number}_{index}" for index in range(len(weights))]
        self._weights += [numpy_helper.from_array(array, key) for key, array in zip(names, weights, strict=True)]
        output = name or f"x{number}"
        self._nodes.append(helper.make_node(operator, [self._last, *names], [output], **attributes))
        self._last = output
        return self

    def pixels(self) -> _Layers:
        """Convert a bundle's input to the layers' N × 3 × 32 × 32 in [0, 1]."""
        self.add("Cast", to=TensorProto.FLOAT).add("Mul", np.float32(1 / 255))
        return self.add("Transpose", perm=[0, 3, 1, 2])

    def convolution(self, channels: int, filters: int, side: int, *, pad: int = 0) -> _Layers:
        weights = self._normal(filters, channels, side, side, fan_in=channels * side * side)
        return self.add("Conv", weights, self._normal(filters, fan_in=1), pads=[pad] * 4).add("Relu")

    def dense(self, inputs: int, outputs: int, name: str | None = None) -> _Layers:
        weights = self._normal(inputs, outputs, fan_in=inputs)
        return self.add("Gemm", weights, self._normal(outputs, fan_in=1), name=name)

    def graph(self, classes: int) -> onnx.GraphProto:
        return helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("input", TensorProto.UINT8, ["N", *SHAPE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])],
            self._weights,
        )

    def _normal(self, *shape: int, fan_in: int) -> npt.NDArray[np.float32]:
        return (self._rng.normal(size=shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def _lenet(rng: np.random.Generator, classes: int) -> onnx.GraphProto:
    """Return LeNet-5 with more filters: about 0.1 ms per image on one core."""
    layers = _Layers(rng).pixels()
    for channels, filters in ((3, 16), (16, 40)):
        layers.convolution(channels, filters, 5).add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    layers.add("Flatten").dense(1000, 300).add("Relu")
    return layers.dense(300, classes, "logits").graph(classes)


def _slow(rng: np.random.Generator, classes: int) -> onnx.GraphProto:
    """Return ten 3 × 3 convolutions of 64 channels at full size: about 5 ms per image on one core."""
    layers = _Layers(rng).pixels().convolution(3, 64, 3, pad=1)
    for _ in range(10):
        layers.convolution(64, 64, 3, pad=1)
    layers.add("GlobalAveragePool").add("Flatten")
    return layers.dense(64, classes, "logits").graph(classes)
