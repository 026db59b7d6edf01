"""The exported graph does what the network does, alone and in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import bundle
from bundle import external_data
from bundle.images import check_golden, decode_image
from training import ExportError, export
from training.models import MODELS
from training.preprocess import ImageInput


@pytest.fixture(scope="module")
def session(trained_bundle: bundle.Bundle) -> Any:
    return onnxruntime.InferenceSession(trained_bundle.model_bytes, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("height", "width", "channels"), [(20, 28, 3), (32, 32, 1)])
def test_onnx_runtime_agrees_with_torch(height: int, width: int, channels: int) -> None:
    torch.manual_seed(0)
    architecture = MODELS["lenet5"]
    module = nn.Sequential(ImageInput([60.0] * channels, architecture.size), architecture(channels, 4)).eval()
    images = np.random.default_rng(0).integers(0, 256, (7, height, width, channels)).astype(np.uint8)
    golden = export.make_golden(module, images)
    model = export.to_onnx(module, golden.inputs)
    assert export.check(model, golden) <= export.TOLERANCE
    check_golden(golden, bundle.InputSpec(kind="image", dtype="uint8", shape=(height, width, channels)))
    external_data.refuse(model, file="model.onnx")


def test_golden_inputs_through_onnx_runtime_encoded_ones_too(trained_bundle: bundle.Bundle, session: Any) -> None:
    golden, spec = trained_bundle.golden, trained_bundle.manifest.input
    np.testing.assert_allclose(session.run(["logits"], {"input": golden.inputs})[0], golden.logits, atol=1e-4)
    assert golden.encoded
    for image in golden.encoded:
        decoded = decode_image(image.data, spec, max_pixels=64)
        logits = session.run(["logits"], {"input": decoded[np.newaxis]})[0]
        np.testing.assert_allclose(logits[0], golden.logits[image.row], atol=1e-4)
    values = {int(row.min()) for row in golden.inputs} | {int(row.max()) for row in golden.inputs}
    assert {0, 255} <= values


def test_the_graph_has_the_promised_form(session: Any) -> None:
    (taken,), (given_back,) = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.type, taken.shape[1:]) == ("input", "tensor(uint8)", [8, 8, 1])
    assert (given_back.name, given_back.type, given_back.shape[1:]) == ("logits", "tensor(float)", [10])
    assert isinstance(taken.shape[0], str)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_a_row_does_not_depend_on_its_batch(session: Any, rows: int, seed: int) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (rows, 8, 8, 1)).astype(np.uint8)
    together = session.run(["logits"], {"input": images})[0]
    assert together.shape == (rows, 10)
    for row in range(0, rows, 7):
        alone = session.run(["logits"], {"input": images[row : row + 1]})[0]
        np.testing.assert_allclose(together[row], alone[0], atol=1e-4, rtol=1e-4)


def test_the_model_tells_nothing_of_the_machine(trained_bundle: bundle.Bundle) -> None:
    for trace in (b"site-packages", b".py", b"/home", b"/root", b"stack_trace"):
        assert trace not in trained_bundle.model_bytes
    model = onnx.load_from_string(trained_bundle.model_bytes)
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)


def test_a_graph_that_does_something_else_is_noticed(trained_bundle: bundle.Bundle) -> None:
    golden = trained_bundle.golden
    wrong = golden.logits.copy()
    wrong[-1, -1] += 0.01
    with pytest.raises(ExportError, match="differ"):
        export.check(trained_bundle.model_bytes, replace(golden, logits=wrong))
    with pytest.raises(ExportError, match="differ"):
        export.check(trained_bundle.model_bytes, replace(golden, logits=wrong * np.float32("nan")))
