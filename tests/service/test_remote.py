"""Models that stay on another server: a service asks another of its own kind over the Open Inference Protocol."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import BundleRefusedError
from service.state import audit
from service.state.keys import KeyStore
from tests.waiting import until

from . import remote_models
from .conftest import Digits, InThread
from .remote_models import Hostile, give, upstream_of

ROWS = 8


@pytest.fixture
def near(start: Callable[..., InThread], tmp_path: Path) -> InThread:
    """The server that runs the model."""
    state = tmp_path / "near"
    state.mkdir()
    return start(state=state)


@pytest.fixture
def hostile(near: InThread) -> Iterator[Hostile]:
    running = Hostile(near.url)
    yield running
    running.close()


@pytest.fixture
def far(start: Callable[..., InThread], digits: Digits, tmp_path: Path) -> Callable[..., InThread]:
    """Start the service that asks it."""

    def run(url: str, *, output: str = "logits", settings: dict[str, Any] | None = None, **fields: Any) -> InThread:
        state = tmp_path / "far"
        state.mkdir()
        remote_models.write(state / "bundles", digits.bundle, upstream_of(url, **fields), output=output)
        return start(state=state, bundles=state / "bundles", policies=None, **(settings or {}))

    return run


def probabilities(service: InThread, model: str, images: Any) -> np.ndarray:
    answer = ask(service, model, images)
    assert answer.status_code == 200, answer.text
    return np.array([[*row["probabilities"].values()] for row in answer.json()["predictions"]])


def ask(service: InThread, model: str, images: Any) -> Any:
    return service.http.post(f"/v1/models/{model}/predict", json={"inputs": images.tolist()})


def problem(service: InThread) -> str | None:
    found: str | None = service.http.get("/v1/models").json()["items"][0]["problem"]
    return found


@pytest.mark.parametrize("fields", [{}, {"binary": False}, {"by_version": True}], ids=str)
def test_it_gives_the_same_probabilities_as_beside_its_model(
    near: InThread, far: Any, digits: Digits, fields: Any
) -> None:
    images = digits.images[:ROWS]
    service = far(near.url, **fields)
    np.testing.assert_allclose(probabilities(service, "far", images), probabilities(near, "digits", images), atol=1e-6)
    assert service.http.get("/v1/models").json()["items"][0]["provider"] == "remote"
    assert problem(service) is None
    assert service.http.get("/v2/models/far/ready").status_code == 200


def test_a_server_that_is_gone_gives_503_and_comes_back_without_a_restart(
    start: Any, near: InThread, far: Any, digits: Digits, tmp_path: Path
) -> None:
    images = digits.images[:ROWS]
    hostile = Hostile(near.url)
    service = far(hostile.url, settings={"upstream_interval_s": 0.05})
    wanted = probabilities(service, "far", images)
    statuses: list[int] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            statuses.append(ask(service, "far", images).status_code)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        until(lambda: len(statuses) > 20, lambda: str(statuses))
        hostile.close()
        until(lambda: 503 in statuses, lambda: str(statuses))
        gone = ask(service, "far", images)
        assert (gone.json()["type"], gone.headers["retry-after"]) == ("/errors/upstream-down", "1")
        assert problem(service) is not None
        again = Hostile(near.url, port=hostile.port)
        try:
            until(lambda: ask(service, "far", images).status_code == 200, lambda: str(statuses[-20:]))
            np.testing.assert_allclose(probabilities(service, "far", images), wanted, atol=1e-7)
        finally:
            stop.set()
            thread.join()
            again.close()
    finally:
        stop.set()
        thread.join()
    assert set(statuses) <= {200, 503}
    assert service.metric("candor_upstream_failures_total", model="far", reason="down") > 0


@pytest.mark.parametrize("on_change", ["refuse", "alarm"])
def test_another_version_is_an_alarm_within_a_check(near: InThread, far: Any, digits: Digits, on_change: str) -> None:
    images = digits.images[:ROWS]
    service = far(near.url, on_change=on_change, settings={"upstream_interval_s": 0.05})
    assert service.metric("candor_upstream_changed", model="far") == 0
    near.activate(near.propose_policy())
    until(lambda: service.metric("candor_upstream_changed", model="far") == 1, "the change was not seen")
    assert problem(service) == "version 2 answers, expected 1"
    answer, ready = ask(service, "far", images), service.http.get("/v2/models/far/ready")
    if on_change == "refuse":
        assert (answer.status_code, answer.json()["type"]) == (503, "/errors/upstream-changed")
        assert answer.json()["found"] == "version 2 answers, expected 1"
        assert ready.status_code == 503
    else:
        assert answer.status_code == ready.status_code == 200
    assert service.http.get("/readyz").status_code == 200  # all replicas see the same server
    entry = until(lambda: found if (found := audit.read(service.runtime.database)[0]).by == "monitor" else None, "none")
    assert (entry.model, entry.action, entry.subject) == ("far", "upstream_changed", "r1")
    assert "version 2 answers" in service.http.get("/dashboard/models/far").text
    near.rollback()
    until(lambda: problem(service) is None, "the end of the change was not seen")
    assert ask(service, "far", images).status_code == 200
    until(lambda: audit.read(service.runtime.database)[0].action == "upstream_restored", "it was not recorded")


def test_an_answer_of_another_version_is_withheld_before_any_check(near: InThread, far: Any, digits: Digits) -> None:
    service = far(near.url)
    near.activate(near.propose_policy())
    answer = ask(service, "far", digits.images[:1])
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/upstream-changed")


def test_a_version_in_the_path_stays_while_it_is_loaded_there(near: InThread, far: Any, digits: Digits) -> None:
    service = far(near.url, by_version=True, retries=0)
    near.activate(near.propose_policy())
    assert ask(service, "far", digits.images[:1]).status_code == 200
    near.activate(near.propose_policy("second"))  # unloads version 1
    answer = ask(service, "far", digits.images[:1])
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/upstream-down")
    assert "status 404" in answer.json()["found"]


def test_other_weights_are_seen_by_the_golden_rows(hostile: Hostile, far: Any, digits: Digits) -> None:
    service = far(hostile.url, settings={"upstream_interval_s": 0.05})

    def sharper(handler: Any, found: Any) -> None:
        length = int(found.headers["inference-header-content-length"])
        logits = np.frombuffer(found.content[length:], np.float32) * np.float32(1.01)
        give(handler, found.content[:length] + logits.tobytes(), **dict(found.headers))

    hostile.answer = sharper
    until(lambda: problem(service), "the change was not seen")
    assert "the golden inputs give different logits" in str(problem(service))
    assert ask(service, "far", digits.images[:1]).json()["type"] == "/errors/upstream-changed"
    hostile.answer = None
    until(lambda: ask(service, "far", digits.images[:1]).status_code == 200, "it did not recover")


def test_a_slow_server_gives_504_and_holds_up_nobody_else(hostile: Hostile, far: Any, digits: Digits) -> None:
    service = far(hostile.url, timeout_s=0.6)
    before = hostile.asked  # for the golden rows
    go = threading.Event()
    hostile.answer = lambda handler, found: (go.wait(10), give(handler, found.content))[1]
    answers: list[Any] = []
    callers = [
        threading.Thread(target=lambda: answers.append(ask(service, "far", digits.images[:1]))) for _ in range(3)
    ]
    try:
        for caller in callers:
            caller.start()
        until(lambda: hostile.asked > before, "it was not asked")
        began = time.monotonic()
        assert service.http.get("/livez").status_code == 200
        assert not answers, f"the event loop waited {time.monotonic() - began:.1f} s"
        for caller in callers:
            caller.join()
    finally:
        go.set()
    assert {answer.status_code for answer in answers} == {504}
    assert {answer.json()["type"] for answer in answers} == {"/errors/upstream-slow"}
    assert hostile.asked <= before + 2, "a batch that was late is not asked for again by halves"


def test_a_deadline_of_the_client_is_that_of_the_upstream_too(hostile: Hostile, far: Any, digits: Digits) -> None:
    service = far(hostile.url, timeout_s=30)
    go = threading.Event()
    hostile.answer = lambda handler, found: (go.wait(10), give(handler, found.content))[1]
    tensor = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": digits.images[0].ravel().tolist()}
    body = {"inputs": [tensor], "parameters": {"timeout": 300_000}}
    try:
        answer = service.http.post("/v2/models/far/infer", json=body, timeout=5)
    finally:
        go.set()
    assert answer.status_code == 504, answer.text


def _changed(**changes: Any) -> Callable[[Any, Any], None]:
    """Answer with JSON whose one tensor, or whole document, is changed."""

    def answer(handler: Any, _: Any) -> None:
        tensor = {"name": "logits", "datatype": "FP32", "shape": [1, 10], "data": [0.0] * 10}
        document = {"model_name": "digits", "model_version": "1", "outputs": [tensor]}
        tensor |= {key: value for key, value in changes.items() if key in tensor}
        document |= {key: value for key, value in changes.items() if key not in tensor}
        give(handler, json.dumps(document).encode())

    return answer


HOSTILE: dict[str, tuple[Callable[[Any, Any], None], int, str]] = {
    "not JSON": (lambda handler, _: give(handler, b"<html>"), 502, "not JSON"),
    "JSON of JSON": (lambda handler, _: give(handler, b"[" * 60_000), 502, "not JSON"),
    "an array": (lambda handler, _: give(handler, b"[]"), 502, "expected an object"),
    "no outputs": (_changed(outputs=None), 502, "`outputs` is not an array"),
    "another output": (_changed(name="noise"), 502, "no output 'logits'"),
    "too few classes": (_changed(shape=[1, 9], data=[0.0] * 9), 502, "9 values a row, expected 10"),
    "too many rows": (_changed(shape=[2, 10], data=[0.0] * 20), 502, "for 1 rows"),
    "a lying shape": (_changed(shape=[10**9, 10**9]), 502, "not as many as its shape"),
    "texts": (_changed(datatype="BYTES", data=["0"] * 10), 502, "expected numbers"),
    "ragged": (_changed(data=[[0.0], 1.0]), 502, "no numbers in `data`"),
    "a version that is a number": (_changed(model_version=1), 502, "`model_version` is int"),
    "another version": (_changed(model_version="9"), 503, "version 9 answers"),
    "NaN": (_changed(data=[float("nan")] * 10), 422, "not finite"),
    "a redirect": (
        lambda handler, _: give(handler, b"", 307, location="http://169.254.169.254/latest/meta-data/"),
        502,
        "status 307",
    ),
    "too many bytes": (lambda handler, _: give(handler, b" " * 2**20), 502, "1048576 bytes announced"),
    "a promise of bytes": (lambda handler, _: give(handler, b"", content_length="9" * 30), 502, "Content-Length"),
    "a bomb": (lambda handler, _: give(handler, b"x", content_encoding="gzip"), 502, "content encoding"),
    "a lying head": (
        lambda handler, _: give(handler, b"{}", inference_header_content_length="9"),
        502,
        "does not fit a body of 2 bytes",
    ),
    "rejected": (lambda handler, _: give(handler, b'{"error": "no such column"}', 400), 502, "no such column"),
}


@pytest.fixture(scope="module")
def asked(launch: Any, digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InThread, Hostile]]:
    near = launch(tmp_path_factory.mktemp("near"))
    hostile = Hostile(near.url)
    state = tmp_path_factory.mktemp("far")
    remote_models.write(state / "bundles", digits.bundle, upstream_of(hostile.url))
    service = launch(state, bundles=state / "bundles", policies=None)
    yield service, hostile
    service.close()
    hostile.close()
    near.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_is_none_is_refused(asked: tuple[InThread, Hostile], digits: Digits, name: str) -> None:
    service, hostile = asked
    hostile.answer, status, found = HOSTILE[name]
    answer = ask(service, "far", digits.images[:1])
    assert answer.status_code == status, answer.text
    assert found in answer.json()["found"]
    hostile.answer = None
    for remote in service.runtime.models.get("far").remotes:
        remote.check()
    assert ask(service, "far", digits.images[:1]).status_code == 200
    assert problem(service) is None


def test_one_row_that_the_server_rejects_fails_alone(
    asked: tuple[InThread, Hostile], hold: Any, digits: Digits
) -> None:
    service, hostile = asked
    poison = np.full((1, 8, 8, 1), 77, np.uint8)

    def picky(handler: Any, found: Any) -> None:
        length = int(found.headers["inference-header-content-length"])
        if poison.tobytes() in found.request.content:
            give(handler, b'{"error": "77"}', 500)
        else:
            give(handler, found.content, **dict(found.headers))
        assert length

    hostile.answer = picky
    held = hold(service.runtime.models.get("far").plane)
    answers: dict[str, Any] = {}
    rows = {"first": digits.images[:1], "good": digits.images[1:2], "bad": poison}
    callers = [
        threading.Thread(target=lambda name=name, row=row: answers.__setitem__(name, ask(service, "far", row)))
        for name, row in rows.items()
    ]
    callers[0].start()
    held.wait_until_busy()
    for caller in callers[1:]:
        caller.start()
    held.wait_for_rows(2)
    held.go.set()
    for caller in callers:
        caller.join()
    hostile.answer = None
    assert {name: answer.status_code for name, answer in answers.items()} == {"first": 200, "good": 200, "bad": 502}
    assert held.runs[1] == [1, 1]


def test_a_request_is_repeated_once_after_503_and_never_after_400(
    asked: tuple[InThread, Hostile], digits: Digits
) -> None:
    service, hostile = asked
    for status, answered, times in ((503, 200, 2), (400, 502, 1), (404, 503, 1)):
        before = hostile.asked

        def once(handler: Any, found: Any, status: int = status) -> None:
            hostile.answer = None
            give(handler, b"{}", status)

        hostile.answer = once
        assert ask(service, "far", digits.images[:1]).status_code == answered
        assert hostile.asked - before == times
    hostile.answer = None


def test_a_first_start_waits_for_the_server(near: InThread, start: Any, digits: Digits, tmp_path: Path) -> None:
    hostile = Hostile(near.url)
    upstream = upstream_of(hostile.url)
    hostile.close()
    remote_models.write(tmp_path / "bundles", digits.bundle, upstream)
    state = tmp_path / "far"
    state.mkdir()
    service = start(state=state, bundles=tmp_path / "bundles", policies=None)
    assert service.http.get("/readyz").status_code == 503
    assert "does not answer" in str(problem(service))
    again = Hostile(near.url, port=hostile.port)
    try:
        until(lambda: service.http.get("/readyz").status_code == 200, "it was not served")
        assert ask(service, "far", digits.images[:1]).status_code == 200
    finally:
        again.close()


def test_a_header_comes_from_the_environment(
    near: InThread, far: Any, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = KeyStore(near.runtime.database).create("far", ["predict"])
    near.http.headers["authorization"] = f"Bearer {key}"
    monkeypatch.setenv("CANDOR_HEADER_NEAR", f"Bearer {key}")
    service = far(near.url, key=key, headers={"authorization": "CANDOR_HEADER_NEAR"})
    assert ask(service, "far", digits.images[:1]).status_code == 200


def test_a_header_that_is_not_set_is_said(near: InThread, far: Any) -> None:
    with pytest.raises(BundleRefusedError, match="CANDOR_HEADER_NEAR is not set"):
        far(near.url, headers={"authorization": "CANDOR_HEADER_NEAR"})


def test_the_commands_say_where_the_model_is(near: InThread, digits: Digits, spawn: Any, tmp_path: Path) -> None:
    hostile = Hostile(near.url)
    path = remote_models.write(tmp_path / "bundles", digits.bundle, upstream_of(hostile.url))
    hostile.close()
    found = spawn.run("doctor", bundles=str(tmp_path / "bundles"))
    assert found.returncode != 0
    assert "The server that runs the model does not answer. [Errno 111] Connection refused" in found.stdout
    written = spawn.run("export-onnx", tmp_path / "model.onnx", "--bundle", path)
    assert written.returncode != 0
    assert "its model runs elsewhere" in written.stdout + written.stderr
