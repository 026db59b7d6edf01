"""New bundles are proven in a process of their own, and nothing else waits for it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import bundle as bundles
from service.errors import BundleRefusedError, ConfigurationError, error_document
from service.others import Alone
from service.serving.models import Models
from service.settings import Settings
from service.state.database import Database
from service.state.keys import KeyStore
from tests.children import children_of
from tests.waiting import PATIENCE_S, until

from ..conftest import contents

FOR_EVER = np.iinfo(np.int64).max


def endless() -> bytes:
    """Return a model of the digits' form that adds without end."""
    step = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still_going"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still_going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(np.float32(1), "one")],
    )
    loop = helper.make_node("Loop", ["trips", "true", "start"], ["logits"], body=step)
    return _model([loop], trips=np.int64(FOR_EVER), true=np.bool_(True))


def greedy() -> bytes:
    """Return a model that asks for 64 GB while it runs."""
    nodes = [
        helper.make_node("Shape", ["input"], ["shape"], end=1),
        helper.make_node("Mul", ["shape", "many"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        helper.make_node("Add", ["start", "sum"], ["logits"]),
    ]
    return _model(nodes, many=np.array([2**34], dtype=np.int64))


def _model(nodes: list[Any], **constants: Any) -> bytes:
    first = [
        helper.make_node("Cast", ["input"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "flat"], ["rows"]),
        helper.make_node("Slice", ["rows", "zero", "ten", "axis"], ["start"]),
    ]
    arrays = constants | {
        "flat": np.array([0, 64]),
        "zero": np.array([0]),
        "ten": np.array([10]),
        "axis": np.array([1]),
    }
    graph = helper.make_graph(
        [*first, *nodes],
        "model",
        [helper.make_tensor_value_info("input", TensorProto.UINT8, ["rows", 8, 8, 1])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def test_nothing_waits_for_a_model_that_never_ends(start: Any, digits: Any, root: Path) -> None:
    service = start(bundles=root, proof_timeout_s=PATIENCE_S * 10)
    store = KeyStore(service.runtime.database)
    admin, revoked = (store.create(name, ["admin"]) for name in ("ann", "eve"))
    service.application._access.refresh()
    service.http.headers["authorization"] = f"Bearer {admin[1]}"
    service.activate(service.propose_policy())
    bundles.write(root, contents(digits.bundle, model_bytes=endless()))
    answers: list[Any] = []
    loading = threading.Thread(target=lambda: answers.append(service.http.post("/v1/models/digits/load")))
    loading.start()
    proofs = service.runtime.models._loader._proofs
    until(lambda: proofs._running)
    (child,) = proofs._running
    until(
        lambda: Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "1000\n", "the kernel may end the service first"
    )
    until(lambda: os.getpriority(os.PRIO_PROCESS, child.pid) > 0, "predictions go first")
    assert service.http.get("/readyz").status_code == 200
    store.revoke(revoked[0].prefix)
    known = {"authorization": f"Bearer {revoked[1]}"}
    until(lambda: service.http.get("/v1/models", headers=known).status_code == 401)
    assert service.rollback()["active"] == "r1"
    assert len(service.predict(digits.images[:2])) == 2
    assert not answers, "the model is still being proven"
    service.runtime.models.stop_loading()  # as a stop does
    loading.join(PATIENCE_S)
    assert list(answers[0].json()["refused"]) == ["2"]
    service.close()


def test_a_stop_does_not_wait_for_it(spawn: Any, digits: Any, root: Path) -> None:
    service = spawn(bundles=str(root), drain_timeout_s=str(PATIENCE_S * 10), proof_timeout_s=str(PATIENCE_S * 10))
    bundles.write(root, contents(digits.bundle, model_bytes=endless()))
    loading = threading.Thread(target=lambda: service.http.post("/v1/models/digits/load"))
    loading.start()
    (proof, *_) = until(lambda: children_of(service.popen.pid))
    assert os.getsid(proof) == os.getsid(service.popen.pid), "its priority counts within a session only"
    until(lambda: os.getpgid(proof) == proof, "Ctrl-C would reach it")
    service.popen.terminate()
    status, _ = service.end()
    assert status == 0
    loading.join(PATIENCE_S)


def test_a_stop_does_not_wait_for_the_first_bundle(spawn: Any, digits: Any, tmp_path: Path) -> None:
    bundles.write(tmp_path / "bundles", contents(digits.bundle, model_bytes=endless()))
    service = spawn(wait=False, bundles=str(tmp_path / "bundles"), proof_timeout_s=str(PATIENCE_S * 10))
    (proof, *_) = until(lambda: children_of(service.popen.pid))
    until(lambda: resource.prlimit(proof, resource.RLIMIT_CORE) == (0, 0), "it does not run")
    priorities = [os.getpriority(os.PRIO_PROCESS, each) for each in (proof, service.popen.pid)]
    assert priorities[0] == priorities[1], "the start waits for it"
    service.popen.terminate()
    assert service.end()[0] == 0


def test_the_first_bundle_of_an_empty_state_has_the_limits_of_a_proof(digits: Any, tmp_path: Path) -> None:
    bundles.write(tmp_path / "bundles", contents(digits.bundle, model_bytes=greedy()))
    settings = Settings(bundles=tmp_path / "bundles", policies=None, proof_memory_bytes=2**30)
    with closing(Database.open(f"sqlite:///{tmp_path}/state.db")) as database:
        models = Models(settings, database, lambda *_: None, Alone())
        with pytest.raises(BundleRefusedError, match="bytes of memory"):
            models.start()
        models.close()


@pytest.mark.parametrize(
    ("model", "settings", "told"),
    [
        (endless, {"proof_timeout_s": 2.0}, "longer than 2 s"),
        (greedy, {"proof_memory_bytes": 2**30}, "bytes of memory"),
    ],
    ids=["time", "memory"],
)
def test_a_model_that_takes_too_much_is_refused(
    start: Any, digits: Any, root: Path, model: Any, settings: dict[str, Any], told: str
) -> None:
    service = start(bundles=root, **settings)
    bundles.write(root, contents(digits.bundle, model_bytes=model()))
    answer = service.http.post("/v1/models/digits/load").json()
    assert answer["proposed"] == {}
    assert told in answer["refused"]["2"]
    assert [item["id"] for item in service.revisions()["items"]] == ["r1"]
    assert len(service.predict(digits.images[:2])) == 2


@pytest.fixture
def started(root: Path, digits: Any, tmp_path: Path) -> Iterator[Callable[..., Models]]:
    """Start models as a service does that finds its active bundle and newer ones, each with a model."""
    database = Database.open(f"sqlite:///{tmp_path}/models.db")

    def run(*newer: bytes, first: bool = True, **settings: Any) -> Models:
        for others, models in ((Alone(), ()), (Alone(), newer)):
            others.first = first
            for model in models:
                bundles.write(root, contents(digits.bundle, model_bytes=model))
            started = Models(Settings(bundles=root, policies=None, **settings), database, lambda *_: None, others)
            started.start()
            started.close()
        return started

    yield run
    database.close()


NO_PYTHON = """#!/bin/sh
echo '{}'
"""
MISCONFIGURED = json.dumps(error_document(ConfigurationError("No GPU.")))


@pytest.mark.parametrize(
    ("python", "told"),
    [
        (None, "no process could be started"),
        (NO_PYTHON.format("Loading …"), "no answer that can be read"),
        (NO_PYTHON.format("1"), "no answer that can be read"),
        (NO_PYTHON.format(MISCONFIGURED), "No GPU."),
    ],
    ids=["no process", "a stray line", "another document", "a setting"],
)
def test_a_proof_that_fails_in_any_way_stops_no_start(
    started: Callable[..., Models],
    digits: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    python: str | None,
    told: str,
) -> None:
    file = tmp_path / "python"
    if python is not None:
        file.write_text(python)
        file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))
    model = started(digits.bundle.model_bytes).get("digits")
    assert model.served.revision.id == "r1"
    assert told in model.refused[2]


def test_a_start_has_the_time_of_one_proof_for_all(started: Callable[..., Models]) -> None:
    refused = started(endless(), endless(), endless(), proof_timeout_s=1.5).get("digits").refused
    assert refused.keys() == {2, 3, 4}
    assert sum("take longer than" in why for why in refused.values()) <= 1
    assert "others took the time" in refused[4]


def test_one_worker_alone_proves_at_the_start(started: Callable[..., Models], digits: Any) -> None:
    assert started(digits.bundle.model_bytes, first=False, proof_timeout_s=1e-9).get("digits").refused == {}


def test_a_proof_ends_with_its_service() -> None:
    command = [sys.executable, "-m", "service.serving.proof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.close()  # as the end of the service does
        assert child.wait(PATIENCE_S) == 1
