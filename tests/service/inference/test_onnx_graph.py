"""A calibrator's graph gives the calibrator's own probabilities, whatever the logits."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper

from bundle import BundleFormatError, GraphOutput
from calibrators import (
    CALIBRATORS,
    CalibrationDataError,
    CalibrationFitError,
    Calibrator,
    Histogram,
    Isotonic,
    Platt,
    PriorShift,
    Temperature,
    from_dict,
)
from calibrators.methods.pool import Pool
from service.inference.onnx_graph import OPSET, calibrated_model, calibrator_model
from service.inference.onnx_graph.maps import MAPS

from ...importing import graphs

TOLERANCE = 1e-6
VARIANTS: dict[str, Callable[[], Calibrator]] = {
    **{name: CALIBRATORS[name] for name in CALIBRATORS},
    # Of seven, since the shares of two or three classes that tie are on an edge of six or fifteen, but for rounding.
    "histogram by width": lambda: Histogram(7, scheme="width"),
    "histogram per class": lambda: Histogram(on="per_class"),
    "histogram per class by width": lambda: Histogram(7, on="per_class", scheme="width"),
    "platt of the margin": lambda: Platt(on="margin"),
    "prior_shift, told": lambda: PriorShift("isotonic"),
    "prior_shift, a class gone": lambda: PriorShift("histogram"),
}
# Two, fewer and more than numpy adds up one by one, and more than the temperature is in float64 for.
CLASSES = (2, 3, 9, 40)
EVERY = pytest.mark.parametrize("name", VARIANTS)


def draw(rows: int, classes: int, seed: int, spread: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (rows, classes)).astype(np.float32)
    return logits, np.argmax(logits / 1.6 + rng.gumbel(size=logits.shape), axis=1)


@cache
def fitted(name: str, classes: int) -> Calibrator:
    calibrator = VARIANTS[name]().fit(*draw(600, classes, seed=classes))
    if isinstance(calibrator, PriorShift) and name != "prior_shift":
        gone = 0.0 if name == "prior_shift, a class gone" else 0.5
        shares = np.array([gone, *np.linspace(1, 2, classes - 1)])
        calibrator = copy.deepcopy(calibrator).adapt_to(shares / shares.sum())
    return calibrator


@cache
def graph(name: str, classes: int) -> Any:
    return runnable(calibrator_model(fitted(name, classes), classes))


def runnable(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def check(name: str, logits: np.ndarray) -> None:
    expected = fitted(name, logits.shape[1]).predict_proba(logits)
    found = graph(name, logits.shape[1]).run(None, {"logits": logits})[0]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE, err_msg=name)


@EVERY
@pytest.mark.parametrize("classes", CLASSES)
def test_it_agrees_on_fresh_rows_and_on_those_of_the_fit_which_lie_on_edges_and_plateaus(name, classes):
    seen = draw(600, classes, seed=classes)[0]
    check(name, seen)
    if classes == 2:
        # Of two classes the margin is exact, so the smallest step off an edge is seen.
        for column, end in ((0, np.inf), (0, -np.inf), (1, np.inf), (1, -np.inf)):
            beside = seen.copy()
            beside[:, column] = np.nextafter(seen[:, column], np.float32(end))
            check(name, beside)
    check(name, draw(400, classes, seed=99)[0])
    check(name, draw(400, classes, seed=98, spread=30)[0])


@EVERY
@pytest.mark.parametrize("classes", CLASSES)
def test_it_agrees_on_extremes(name, classes):
    logits = draw(200, classes, seed=7)[0]
    check(name, np.round(logits))
    check(name, np.zeros_like(logits[:1]))
    check(name, logits * np.float32(1e3))
    rng = np.random.default_rng(1)
    impossible = np.where(rng.random(logits.shape) < 0.4, np.float32(-np.inf), logits)
    impossible[np.isneginf(impossible).all(axis=1), 0] = 0
    check(name, impossible)
    certain = np.full((classes, classes), -np.inf, np.float32)
    np.fill_diagonal(certain, 3)
    check(name, certain)
    largest = np.finfo(np.float32).max
    check(name, np.array([[largest, *[-largest] * (classes - 1)], [-largest, *[largest] * (classes - 1)]], np.float32))


LOGITS = st.floats(-60, 60, width=32) | st.sampled_from([-np.inf, 0.0, 1.0, -1.0, 1e-30])


@pytest.mark.parametrize("classes", [2, 3])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_it_agrees_on_any_logits(classes, data):
    """Every calibrator on the same logits: to draw them takes several times as long as to check them."""
    logits = data.draw(arrays.arrays(np.float32, (4, classes), elements=LOGITS))
    logits[np.isneginf(logits).all(axis=1), 0] = 0
    for name in VARIANTS:
        check(name, logits)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_may_be_empty_or_of_one_row(rows):
    for classes in CLASSES:
        assert graph("isotonic", classes).run(None, {"logits": np.zeros((rows, classes), np.float32)})[0].shape == (
            rows,
            classes,
        )


@EVERY
def test_the_document_alone_makes_the_same_bytes(name):
    calibrator = fitted(name, 3)
    restored = from_dict(json.loads(json.dumps(calibrator.to_dict())))
    assert calibrator_model(restored, 3) == calibrator_model(calibrator, 3)


def test_every_calibrator_has_a_map():
    assert set(MAPS) == {*CALIBRATORS.values(), Pool}


def test_the_model_is_valid_and_its_size_grows_with_the_logarithm_of_the_knots():
    sizes = []
    for rows in (500, 8_000):
        model = onnx.load_from_string(calibrator_model(Isotonic().fit(*draw(rows, 2, seed=0, spread=1)), 2))
        onnx.checker.check_model(model, full_check=True)
        sizes.append(len(model.graph.node))
    assert sizes[0] < sizes[1] <= sizes[0] + 4 * 5


def test_one_fitted_for_another_number_of_classes_and_one_not_fitted_are_refused():
    with pytest.raises(CalibrationDataError, match="3"):
        calibrator_model(fitted("temperature", 2), 3)
    with pytest.raises(CalibrationFitError, match="not fitted"):
        calibrator_model(Temperature(), 3)


def classifier(classes: int, *, opset: int = 20, output: str = "logits") -> tuple[bytes, np.ndarray]:
    weights = np.random.default_rng(0).normal(size=(5, classes)).astype(np.float32)
    node = helper.make_node("MatMul", ["input", "weights"], [output])
    model = helper.make_model(
        helper.make_graph(
            [node],
            "classifier",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["rows", 5])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["rows", classes])],
            [numpy_helper.from_array(weights, "weights")],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    return model.SerializeToString(), weights


@EVERY
def test_a_classifier_gives_its_logits_and_what_the_calibrator_makes_of_them(name):
    for classes in (2, 3):
        model, weights = classifier(classes)
        calibrator = fitted(name, classes)
        fused = runnable(calibrated_model(model, calibrator, classes))
        assert [one.name for one in fused.get_outputs()] == ["logits", "probabilities", "confidence", "label"]
        inputs = np.random.default_rng(1).normal(0, 3, (50, 5)).astype(np.float32)
        logits, probabilities, confidence, label = fused.run(None, {"input": inputs})
        np.testing.assert_allclose(logits, inputs @ weights, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(probabilities, calibrator.predict_proba(logits), rtol=0, atol=TOLERANCE)
        expected_label, expected_confidence = calibrator.top_label(logits, probabilities)
        np.testing.assert_array_equal(label, expected_label)
        np.testing.assert_array_equal(confidence, expected_confidence)


def test_metadata_are_written_beside_those_of_the_model():
    model = onnx.load_from_string(classifier(3)[0])
    helper.set_model_props(model, {"author": "someone"})
    fused = calibrated_model(model.SerializeToString(), fitted("temperature", 3), 3, metadata={"candor.revision": "r7"})
    assert runnable(fused).get_modelmeta().custom_metadata_map == {"author": "someone", "candor.revision": "r7"}


def test_models_that_cannot_be_fused_are_refused():
    calibrator = fitted("temperature", 3)
    once = calibrated_model(classifier(3)[0], calibrator, 3)
    with pytest.raises(BundleFormatError, match="a model without a calibrator"):
        calibrated_model(once, calibrator, 3)
    with pytest.raises(BundleFormatError, match=rf"opset 13.*{OPSET} or later"):
        calibrated_model(classifier(3, opset=13)[0], calibrator, 3)
    with pytest.raises(BundleFormatError, match="an output `logits`"):
        calibrated_model(classifier(3, output="scores")[0], calibrator, 3)
    with pytest.raises(BundleFormatError, match="not a valid ONNX"):
        calibrated_model(b"no model", calibrator, 3)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize(
    ("model", "output"),
    [
        (graphs.logits(), GraphOutput(name="scores", form="logits")),
        (graphs.halves(), GraphOutput(name="scores", form="logits", order=(1, 0))),
        (graphs.cut(0.3), GraphOutput(name="log", form="logits", smallest=1e-6)),
        (graphs.probabilities(), GraphOutput(name="p", form="probabilities", smallest=0.2)),
        (graphs.sigmoid(), GraphOutput(name="p", form="positive")),
        (graphs.sigmoid(squashed=False), GraphOutput(name="margin", form="margin")),
        (graphs.label_and_maps(["b", "a"]), GraphOutput(name="maps", form="maps", keys=("a", "b"))),
    ],
)
def test_what_an_imported_graph_gives_becomes_logits(model: bytes, output: GraphOutput, method: str) -> None:
    kind = np.float16 if model == graphs.halves() else np.float32
    calibrator, rows = fitted(method, 2), np.random.default_rng(5).normal(size=(50, 3)).astype(kind)
    wanted = output.logits(runnable(model).run([output.name], {"x": rows})[0], 2)
    exported = runnable(calibrated_model(model, calibrator, 2, output=output))
    names = [one.name for one in exported.get_outputs()][-4:]
    assert names == ["logits", "probabilities", "confidence", "label"]
    logits, probabilities, confidence, label = exported.run(names, {"x": rows})
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(probabilities, calibrator.predict_proba(wanted), atol=1e-6)
    expected_label, expected_confidence = calibrator.top_label(logits, probabilities)
    np.testing.assert_array_equal(label, expected_label)
    np.testing.assert_array_equal(confidence, expected_confidence)


def test_maps_that_no_operator_makes_are_refused() -> None:
    with pytest.raises(BundleFormatError, match=r"no ZipMap makes.*zipmap=False"):
        calibrated_model(graphs.logits(), fitted("temperature", 2), 2, output=GraphOutput(name="scores", form="maps"))


@pytest.mark.parametrize("classes", [2, 5])
def test_auto_agrees_with_a_pool_and_with_a_floor(classes: int) -> None:
    logits, labels = draw(800, classes, 0)
    members = [CALIBRATORS[name]().fit(logits, labels) for name in ("temperature", "isotonic_multiclass", "beta")]
    pool = Pool(members, np.array([0.2, 0.5, 0.3]))
    fresh = draw(300, classes, 1)[0]
    logits[3, labels[3]] = -np.inf
    floored = CALIBRATORS["auto"]().fit(logits, labels)
    assert floored.floor_ > 0
    fresh[:5, 0] = -np.inf
    for calibrator in (pool, floored):
        session = onnxruntime.InferenceSession(calibrator_model(calibrator, classes))
        (found,) = session.run(None, {session.get_inputs()[0].name: fresh})
        np.testing.assert_allclose(found, calibrator.predict_proba(fresh), atol=TOLERANCE)
