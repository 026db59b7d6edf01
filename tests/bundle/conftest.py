"""A small, complete bundle made without torch: a linear model on 2 × 2 images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import bundle
from bundle import images
from calibrators import CALIBRATORS

SPEC = bundle.InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1))
WEIGHTS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def linear_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["input"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["float"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("input", TensorProto.UINT8, ["N", 2, 2, 1])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def make_contents() -> bundle.BundleContents:
    rng = np.random.default_rng(1)

    def rows(n: int) -> bundle.LabelledLogits:
        return bundle.LabelledLogits(rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 3, n).astype(np.int64))

    reference = bundle.Reference(rows(30), rows(20), rows(10))
    inputs = rng.integers(0, 256, (4, 2, 2, 1)).astype(np.uint8)
    golden = bundle.Golden(
        inputs,
        inputs.reshape(4, 4).astype(np.float32) @ WEIGHTS,
        (
            bundle.EncodedImage("image/png", images.encode_png(inputs[0]), 0),
            bundle.EncodedImage("image/png", images.encode_png(inputs[2]), 2),
        ),
    )
    part = bundle.Part(rows=1, sha256="0" * 64)
    return bundle.BundleContents(
        model="shapes",
        labels=("disc", "square", "star"),
        input=SPEC,
        model_bytes=linear_model().SerializeToString(),
        calibrator=CALIBRATORS["temperature"]().fit(reference.fit.logits, reference.fit.labels),
        reference=reference,
        golden=golden,
        architecture=bundle.Architecture(name="linear", parameters=12, config={}),
        training=bundle.TrainingRecord(
            dataset="noise",
            loss=bundle.Loss(name="cross_entropy"),
            seed=0,
            epochs=1,
            batch_size=1,
            optimiser="adam",
            learning_rate=0.1,
            splits={"train": part},
        ),
        versions={"numpy": np.__version__},
        metrics={"nll_before": 1.0},
        report={"schema_version": 1, "note": "größer"},
        diagrams={"reliability-before": b"<svg/>"},
    )


@pytest.fixture
def contents() -> bundle.BundleContents:
    return make_contents()


@pytest.fixture
def written(tmp_path: Path, contents: bundle.BundleContents) -> Path:
    return bundle.write(tmp_path / "bundles", contents)
