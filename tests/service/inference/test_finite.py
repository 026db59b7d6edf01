"""Scores that are no numbers fail their own request, by its row, and nobody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import bundle as bundles
from calibrators import CALIBRATORS
from service.errors import NonFiniteLogitsError
from service.inference.chain import Chain
from service.inference.finite import check_logits
from service.inference.session import Session
from service.serving.plane import Plane
from tests.waiting import PATIENCE_S

from ..conftest import Digits, HeldUp, InThread, contents

FINE, LOST = np.float32([1.0, -np.inf, 2.0]), np.full(3, -np.inf, np.float32)
NAN, INFINITE = np.float32([0.0, np.nan, np.nan]), np.float32([0.0, np.inf, -1.0])
POISON = np.full((1, 8, 8, 1), 200, np.uint8)


@pytest.fixture(scope="module")
def brittle(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> bundles.Bundle:
    """The digits, their logits multiplied and divided by how far the first pixel is from 200: 0/0 where it is that."""
    model = onnx.load_from_string(digits.bundle.model_bytes)
    for node in model.graph.node:
        node.output[:] = ["logits before" if name == "logits" else name for name in node.output]
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["input"], ["pixels"], to=TensorProto.FLOAT),
            helper.make_node("Flatten", ["pixels"], ["row"]),
            helper.make_node("Gather", ["row", "first"], ["corner"], axis=1),
            helper.make_node("Sub", ["corner", "two hundred"], ["away"]),
            helper.make_node("Mul", ["logits before", "away"], ["multiplied"]),
            helper.make_node("Div", ["multiplied", "away"], ["logits"]),
        ]
    )
    first = helper.make_tensor("first", TensorProto.INT64, [1], [0])
    model.graph.initializer.extend([first, helper.make_tensor("two hundred", TensorProto.FLOAT, [1], [200.0])])
    root = tmp_path_factory.mktemp("brittle")
    return bundles.verify(bundles.write(root, contents(digits.bundle, model_bytes=model.SerializeToString())))


@pytest.mark.parametrize(
    ("rows", "where", "found"),
    [
        ([NAN], "/inputs/5", "nan for class 1; 2 of 3"),
        ([FINE, INFINITE], "/inputs/6", "inf for class 1; 1 of 3"),
        ([FINE, FINE, LOST, NAN], "/inputs/7", "-inf for every class"),
    ],
)
def test_the_first_row_at_fault_is_named(rows: list[np.ndarray], where: str, found: str) -> None:
    with pytest.raises(NonFiniteLogitsError) as caught:
        check_logits(np.stack(rows), first_row=5)
    assert (caught.value.where, caught.value.found.startswith(found)) == (where, True), caught.value.found


def test_a_probability_of_zero_is_a_score() -> None:
    check_logits(np.stack([FINE] * 3))


@pytest.mark.parametrize("bound", [False, True])
def test_with_bound_buffers_as_without_them(brittle: bundles.Bundle, digits: Digits, bound: bool) -> None:
    """A calibrator's graph says nothing of what it is given; the calibrator itself does."""
    session = Session(brittle, provider="cpu", threads=1, max_batch_size=4, bound=bound)
    fit = brittle.reference.fit
    chain = Chain(session, CALIBRATORS["isotonic"]().fit(fit.logits, fit.labels))
    images = np.concatenate([digits.images[:6], POISON])
    assert np.isfinite(chain.run(images[:6])[1]).all()
    with pytest.raises(NonFiniteLogitsError) as caught:
        chain.run(images, first_row=10)
    assert caught.value.where == "/inputs/16"


@pytest.fixture
def service(start: Callable[..., InThread], brittle: bundles.Bundle) -> InThread:
    return start(bundles=brittle.path.parents[1], max_batch_size=16)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_it_fails_alone_in_its_batch(
    service: InThread, hold: Callable[[Plane], HeldUp], digits: Digits, version: str
) -> None:
    held = hold(service.runtime.models.get("digits").plane)
    images = [digits.images[row : row + 2] for row in range(0, 14, 2)]
    images[4] = np.concatenate([digits.images[:1], POISON])
    answers: dict[int, Any] = {}

    def ask(which: int) -> None:
        if version == "v1":
            answers[which] = service.http.post("/predict", json={"inputs": images[which].tolist()})
        else:
            tensor = {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": images[which].tolist()}
            answers[which] = service.http.post("/v2/models/digits/infer", json={"inputs": [tensor]})

    asking = [threading.Thread(target=ask, args=(which,)) for which in range(len(images))]
    asking[0].start()
    held.wait_until_busy()
    for thread in asking[1:]:
        thread.start()
    held.wait_for_rows(12)
    held.go.set()
    for thread in asking:
        thread.join(PATIENCE_S)
    assert {which for which, answer in answers.items() if answer.status_code == 200} == {0, 1, 2, 3, 5, 6}
    assert len(held.runs[1]) == 6, "they shared a batch"
    assert answers[4].status_code == 422
    document = answers[4].json()
    if version == "v1":
        assert (document["type"], document["where"]) == ("/errors/non-finite-logits", "/inputs/1")
        assert document["found"].startswith("nan for class 0")
    else:
        assert "Where: row 1 of /inputs/0. Found: nan for class 0" in document["error"]
    assert service.runtime.log.flush()
    assert service.metric("candor_log_written_total") == 12
    assert service.metric("candor_refused_requests_total", model="digits", reason="failed") == 1


def test_its_row_is_counted_in_the_request_and_not_in_the_run(service: InThread, digits: Digits) -> None:
    """The request is larger than a run."""
    plane = service.runtime.models.get("digits").plane
    images = np.concatenate([digits.images[:40], POISON, digits.images[:3]])
    with pytest.raises(NonFiniteLogitsError) as caught:
        asyncio.run(plane.predict(plane.served, images, deadline_s=60))
    assert caught.value.where == "/inputs/40"
    assert plane.statistics["r1"].failure.count == 1
