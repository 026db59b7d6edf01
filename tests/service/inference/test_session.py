"""Sessions and chains, on the CPU provider both as it runs there and with the buffers that a GPU has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from calibrators import CALIBRATORS, Calibrator
from service.errors import BundleRefusedError, RevisionStateError
from service.inference import onnx_graph, providers, session
from service.inference.chain import Chain
from service.inference.session import Session
from service.inference.stages import bucket_sizes

from ...importing import graphs
from ..conftest import Digits


@pytest.fixture(scope="module")
def bound(digits: Digits) -> Session:
    return Session(digits.bundle, provider="cpu", threads=1, max_batch_size=6, bound=True)


@pytest.fixture(scope="module")
def plain(digits: Digits) -> Session:
    return Session(digits.bundle, provider="cpu", threads=1)


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (32, (1, 2, 4, 8, 16, 32))],
)
def test_batches_are_padded_to_a_power_of_two_or_the_largest(largest: int, sizes: tuple[int, ...]) -> None:
    assert bucket_sizes(largest) == sizes


def test_every_size_is_made_ready_before_the_first_request(bound: Session, plain: Session) -> None:
    assert [stage.size for stage in bound.stages] == [1, 2, 4, 6]
    assert all(np.abs(stage.logits.numpy()).max() > 0 for stage in bound.stages)
    assert plain.stages == []
    assert bound.provider == plain.provider == "cpu"


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6, 7, 13])
def test_bound_buffers_give_the_same_logits_for_any_number_of_rows(
    bound: Session, plain: Session, digits: Digits, rows: int
) -> None:
    images = digits.images[:rows]
    logits = bound.run(images)
    assert logits.shape == (rows, 10)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, plain.run(images) if rows else logits, rtol=1e-5, atol=1e-5)


def test_logits_are_the_callers_own(bound: Session, digits: Digits) -> None:
    first = bound.run(digits.images[:2])
    kept = first.copy()
    bound.run(digits.images[2:4])
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("method", ["temperature", "isotonic", "histogram", "structured_vector", "venn_abers"])
def test_a_chain_on_the_device_gives_what_the_calibrator_gives(
    bound: Session, plain: Session, digits: Digits, method: str
) -> None:
    fit = digits.bundle.reference.fit
    calibrator: Calibrator = CALIBRATORS[method]().fit(fit.logits, fit.labels)
    on_device, on_cpu = Chain(bound, calibrator), Chain(plain, calibrator)
    for rows in (1, 3, 6, 17):
        logits, probabilities = on_device.run(digits.images[:rows])
        np.testing.assert_allclose(probabilities, calibrator.predict_proba(logits), rtol=0, atol=1e-6)
        expected_logits, expected = on_cpu.run(digits.images[:rows])
        np.testing.assert_allclose(logits, expected_logits, rtol=1e-5, atol=1e-5)
        assert probabilities.shape == expected.shape
        assert probabilities.dtype == np.float32


def test_a_graph_that_does_something_else_than_its_calibrator_is_refused(
    bound: Session, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one would whose input ONNX Runtime copied once, when it was bound."""
    fit = digits.bundle.reference.fit
    calibrator, other = (CALIBRATORS[name]().fit(fit.logits, fit.labels) for name in ("temperature", "histogram"))
    Chain(bound, calibrator)
    graph = onnx_graph.calibrator_model(other, bound.classes)
    monkeypatch.setattr(onnx_graph, "calibrator_model", lambda *_: graph)
    with pytest.raises(RevisionStateError, match="different probabilities"):
        Chain(bound, calibrator)


def test_chains_of_one_session_do_not_disturb_one_another(bound: Session, digits: Digits) -> None:
    """Two revisions, of which one is being made ready, run on the same buffers in turns."""
    fit = digits.bundle.reference.fit
    chains = [Chain(bound, CALIBRATORS[name]().fit(fit.logits, fit.labels)) for name in ("temperature", "vector")]
    expected = [chain.run(digits.images[:5]) for chain in chains]
    failures: list[str] = []

    def run(chain: Chain, logits: np.ndarray, probabilities: np.ndarray) -> None:
        for _ in range(50):
            again = chain.run(digits.images[:5])
            if not (np.array_equal(again[0], logits) and np.array_equal(again[1], probabilities)):
                failures.append("another chain's numbers")

    workers = [threading.Thread(target=run, args=(chain, *pair)) for chain, pair in zip(chains, expected, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_a_service_on_bound_buffers_answers_and_activates_as_on_any(
    start: Callable[..., object], digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Session.__init__

    def always_bound(self: Session, *arguments: object, **options: object) -> None:
        original(self, *arguments, **{**options, "bound": True})  # type: ignore[arg-type]

    plain = start()
    expected = plain.predict(digits.images[:40])
    plain.close()
    monkeypatch.setattr(Session, "__init__", always_bound)
    service = start()
    found = service.predict(digits.images[:40])
    for one, other in zip(found, expected, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
        assert one["label"] == other["label"]
    service.activate(service.propose_policy())
    assert len(service.predict(digits.images[:40])) == 40


def test_a_graph_that_loops_does_not_keep_the_service_from_starting(
    digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        helper.make_node("Loop", ["", "true", "zero"], ["last"], body=graphs.negating()),
        helper.make_node("Flatten", ["input"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["pixels", "last"], ["logits"]),
    ]
    constants = [
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]
    image = helper.make_tensor_value_info("input", TensorProto.UINT8, ["N", 8, 8, 1])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 64])
    graph = helper.make_graph(nodes, "loop", [image], [logits], constants)
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    monkeypatch.setattr(session, "FIRST_RUNS_S", 0.3)
    with pytest.raises(BundleRefusedError, match="take longer than"):
        Session(replace(digits.bundle, model_bytes=made), provider="cpu", threads=1)


def test_a_graph_that_takes_too_long_to_open_is_refused(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "OPENING_S", 0.05)
    slow = replace(digits.bundle, model_bytes=graphs.slow_to_open(1500, 5))  # half a second at least
    with pytest.raises(BundleRefusedError, match="s to open the model"):
        Session(slow, provider="cpu", threads=1)
    for thread in threading.enumerate():  # it goes on until it is done
        if thread.name == "time limit":
            thread.join()
