"""A row that makes its model loop is ended; the model and the others go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from bundle import Graph, GraphInput, GraphOutput, InputSpec
from service.inference.session import Session
from tests.importing.graphs import model, negating, value
from tests.service import imported_models
from tests.waiting import PATIENCE_S, until

FOR_EVER = 1e18


def counting(root: Path) -> None:
    """Write a bundle whose model takes as many steps as the first value of a row says."""
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["counts"], axis=1),
        helper.make_node("ReduceMax", ["counts"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["turns"], to=TensorProto.INT64),
        helper.make_node("Loop", ["turns", "true", "zero"], ["last"], body=negating()),
        helper.make_node("Mul", ["x", "signs"], ["signed"]),
        helper.make_node("Add", ["signed", "last"], ["scores"]),
    ]
    made = model(
        nodes,
        [value("x", TensorProto.FLOAT, 2)],
        [value("scores", TensorProto.FLOAT, 2)],
        first=np.array([0]),
        true=np.array(True),
        zero=np.array(0, np.float32),
        signs=np.array([0, 1], np.float32),
    )
    rows = imported_models.RANDOM.normal(size=(90, 2)).astype(np.float32)
    imported_models.write(
        root,
        "counting",
        np.abs(rows, out=rows),
        InputSpec(kind="array", dtype="float32", shape=(2,)),
        model_bytes=made,
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="x", dtype="float32", shape=(2,)),),
            output=GraphOutput(name="scores", form="logits"),
        ),
    )


def test_a_row_that_loops_is_ended_and_the_service_goes_on(start: Any, tmp_path: Path) -> None:
    root = tmp_path / "bundles"
    counting(root)
    imported_models.shares(root)
    service = start(bundles=root, policies=None, run_timeout_s=0.5)

    def predict(*rows: list[float]) -> Any:
        return service.http.post("/v1/models/counting/predict", json={"inputs": rows})

    before = predict([3.0, 1.0], [2.0, -1.0])
    assert before.status_code == 200
    plane = service.runtime.models.get("counting").plane
    session = plane.served.session
    assert not session.on_loop, "a row could hold up the event loop, and with it all other models"
    pace = plane._batcher._row_s
    answers: list[Any] = []
    held = threading.Thread(target=lambda: answers.append(predict([FOR_EVER, 1.0])))
    held.start()
    until(lambda: session._limit._running or answers)
    other = service.http.post("/v1/models/shares/predict", json={"inputs": [{"float_input": [0.5, 0.2]}]})
    assert other.status_code == 200
    held.join(PATIENCE_S)
    (ended,) = answers
    assert ended.status_code == 500
    problem = ended.json()
    assert problem["type"] == "/errors/run-too-long"
    assert "at most 0.5 s" in problem["expected"]
    assert "CANDOR_RUN_TIMEOUT_S" in problem["remedy"]
    assert plane.refusals.failed == 1
    assert plane._batcher._row_s == pace, "the next rows would be refused as too late"
    after = predict([3.0, 1.0], [2.0, -1.0]).json()
    for one, same in zip(before.json()["predictions"], after["predictions"], strict=True):
        assert one["probabilities"] == same["probabilities"]
    assert not session._limit._running


def test_a_quick_model_of_candor_s_own_may_run_on_the_event_loop(digits: Any) -> None:
    """It resizes images, to a size that no value of a row sets."""
    assert Session(digits.bundle, provider="cpu", threads=1).on_loop
