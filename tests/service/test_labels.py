"""Multi-label models over HTTP: all labels of a row in one request, each calibrated and decided on its own."""

from __future__ import annotations

import asyncio
import csv
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import select
from typer.testing import CliRunner

import bundle as bundles
from candor.contract.labels import LabelsEntry
from service.cli import app
from service.errors import DeadlineExceededError, UnknownLabelError
from service.ids import id_of
from service.operations import labels as operations
from service.operations.principal import Principal
from service.places import Place, in_body
from service.state import answered_ids, tables
from service.state.keys import KeyStore
from tests.service.labels_of_comments import LABELS, WEIGHTS, drawn, imported, sigmoids
from tests.waiting import PATIENCE_S, WAIT, until

Launch = Callable[..., Any]
ROWS, MARKS = drawn(40, 7)
PREDICT, FEEDBACK = "/v1/multilabel/comments/predict", "/v1/multilabel/comments/feedback"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comments")
    imported(folder, sigmoids(), "--calibrator", "temperature")
    return folder


@pytest.fixture(scope="module", params=["background", "sync"])
def served(launch_many: Launch, root: Path, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Iterator[Any]:
    folders = {"bundles": root / "bundles", "policies": root / "policies"}
    running = launch_many(tmp_path_factory.mktemp("state"), **folders, log_mode=request.param)
    yield running
    running.close()


@pytest.fixture
def own(start: Launch, root: Path, tmp_path: Path) -> Any:
    """A service that the test may change."""
    return start(bundles=root / "bundles", policies=root / "policies")


def predicted(caller: Any, rows: np.ndarray = ROWS, **body: Any) -> dict[str, Any]:
    response = caller.http.post(PREDICT, json={"inputs": rows.tolist(), **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def chances(answer: dict[str, Any]) -> np.ndarray:
    return np.array([[one["probabilities"][label] for label in LABELS] for one in answer["predictions"]])


def test_every_label_gets_the_probability_and_the_decision_of_its_own_model(served: Any, root: Path) -> None:
    answer = predicted(served, references=[f"post-{place}" for place in range(len(ROWS))])
    found = chances(answer)
    assert np.ptp(found.sum(axis=1)) > 0.5  # no softmax
    odds = (2 * ROWS @ WEIGHTS).astype(np.float64)
    for place, label in enumerate(LABELS):
        model = answer["labels"][label]["model"]
        bundle = bundles.verify(root / "bundles" / model / "1")
        pairs = np.stack([-np.logaddexp(0, odds[:, place]), -np.logaddexp(0, -odds[:, place])], axis=1)
        expected = bundle.calibrator.predict_proba(pairs.astype(np.float32))[:, 1]
        np.testing.assert_allclose(found[:, place], expected, atol=2e-6)
        alone = served.http.post(f"/v1/models/{model}/predict", json={"inputs": ROWS.tolist()}).json()
        assert answer["labels"][label]["policy"] == alone["policy"]
        certificate = alone["policy"]["certified"]["hide"]
        assert (certificate["valid"], certificate["delta"]) == (True, pytest.approx(0.05 / 3 / 2))
        for one, other in zip(answer["predictions"], alone["predictions"], strict=True):
            assert one["probabilities"][label] == pytest.approx(other["probabilities"]["present"], abs=1e-6)
            assert one["decisions"][label]["action"] == other["decision"]["action"]


def test_the_graph_runs_once_for_all_labels(served: Any) -> None:
    active = served.runtime.models.multilabels.get("comments").served
    assert [places for _, places in active.runs] == [(0, 1, 2)]
    assert len({id(one.session._session) for one in active.members}) == 1  # in memory once


def test_open_inference_has_a_column_per_label(served: Any) -> None:
    found = chances(predicted(served))
    infer = "/v2/models/comments/infer"
    tensor = {"name": "x", "shape": [len(ROWS), 3], "datatype": "FP32", "data": ROWS.ravel().tolist()}
    response = served.http.post(infer, json={"inputs": [tensor], "parameters": {"policy": "moderation"}})
    assert response.status_code == 200, response.text
    answer = response.json()
    outputs = {one["name"]: one for one in answer["outputs"]}
    assert {tuple(one["shape"]) for one in outputs.values()} == {(len(ROWS), 3)}
    np.testing.assert_allclose(np.reshape(outputs["probabilities"]["data"], (-1, 3)), found, atol=1e-6)
    np.testing.assert_allclose(np.reshape(outputs["logits"]["data"], (-1, 3)), 2 * ROWS @ WEIGHTS, atol=1e-3)
    np.testing.assert_allclose(
        np.reshape(outputs["confidence"]["data"], (-1, 3)), np.maximum(found, 1 - found), atol=1e-6
    )
    assert set(outputs["decision"]["data"]) == {"hide", "show"}
    assert answer["parameters"]["policies"] == "moderation@1,moderation@1,moderation@1"
    assert len(answer["parameters"]["prediction_ids"].split(",")) == len(ROWS)
    top = {"inputs": [tensor], "outputs": [{"name": "probabilities", "parameters": {"classification": 1}}]}
    texts = served.http.post(infer, json=top).json()["outputs"][0]["data"]
    assert [text.split(":")[2] for text in texts] == [LABELS[place] for place in found.argmax(axis=1)]
    metadata = served.http.get("/v2/models/comments").json()
    assert [one["shape"] for one in metadata["outputs"]] == [[-1, 3]] * 4
    assert served.http.get("/v2/models/comments/ready").json()["ready"]
    for wrong in ({"inputs": [tensor], "outputs": [{"name": "set"}]}, {"inputs": [tensor | {"shape": [3, len(ROWS)]}]}):
        assert served.http.post(infer, json=wrong).status_code == 422
    assert served.http.post("/v2/models/comments/versions/1/infer", json={"inputs": [tensor]}).status_code == 404


def test_the_list_names_the_models_of_the_labels(served: Any) -> None:
    (item,) = served.http.get("/v1/multilabel").json()["items"]
    assert item == {"model": "comments", "labels": {label: f"comments--{label}" for label in LABELS}, "problem": None}


def test_stages_and_refusals_of_all_labels_together_are_counted(served: Any) -> None:
    def count(name: str, **labels: str) -> float:
        return float(served.metric(name, model="comments", **labels))

    queued, late = (
        count("candor_stage_seconds_count", stage="queue"),
        count("candor_refused_requests_total", reason="deadline"),
    )
    predicted(served)
    assert count("candor_stage_seconds_count", stage="queue") == queued + 1
    several = served.runtime.models.multilabels.get("comments")

    def failures() -> list[int]:  # with each label, as a request to its own model
        planes = [
            (model.plane, member) for model, member in zip(several.served.models, several.served.members, strict=True)
        ]
        return [plane._statistics_of(member).failure.count for plane, member in planes]

    before = failures()
    with pytest.raises(DeadlineExceededError):
        asyncio.run(several.plane.predict(several.served, ROWS.astype(np.float32), deadline_s=0))
    assert count("candor_refused_requests_total", reason="deadline") == late + 1
    assert failures() == [one + 1 for one in before]


def test_requests_at_the_same_time_get_their_own_rows(served: Any) -> None:
    expected = chances(predicted(served))

    def one(place: int) -> float:
        return float(np.abs(chances(predicted(served, ROWS[place : place + 1])) - expected[place]).max())

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(one, range(len(ROWS)))) < 1e-6


def test_feedback_reaches_the_model_of_each_label_and_unknown_ones_stay_unknown(served: Any) -> None:
    ids = [one["prediction_id"] for one in predicted(served)["predictions"][:2]]
    served.runtime.log.flush(10)
    items = [
        {"prediction_id": ids[0], "labels": {"toxic": True, "threat": 0, "insult": None}, "source": "reviewer"},
        {"prediction_id": ids[1], "labels": {"insult": 1}},
    ]
    receipt = served.http.post(FEEDBACK, json={"items": items}).json()
    assert [sorted(item["labels"]) for item in receipt["items"]] == [["threat", "toxic"], ["insult"]]
    assert (receipt["stored"], receipt["pending"]) == (3, 0)
    again = served.http.post(FEEDBACK, json={"items": items}).json()
    assert (again["stored"], again["duplicates"]) == (0, 3)
    other = {"prediction_id": ids[0], "labels": {"toxic": False}, "source": "reviewer"}
    assert served.http.post(FEEDBACK, json={"items": [other]}).json()["conflicts"] == 1
    toxic = served.http.post(
        "/v1/models/comments--toxic/feedback",
        json={"items": [{"prediction_id": id_of(ids[1], "comments--toxic"), "label": "present"}]},
    ).json()
    assert toxic["stored"] == 1  # the row's id in the log of the label's model


def test_the_event_loop_does_not_wait_for_the_checks_of_many_labels(served: Any) -> None:
    threads = []

    def place(index: int, _: str | None) -> Place:
        threads.append(threading.get_ident())
        return in_body("items", index)

    entry = LabelsEntry(reference="a", labels={"spam": True})
    several = operations.get(served.runtime.models, "comments")
    store = operations.store(
        served.runtime,
        several,
        [entry],
        place,
        by=Principal("till", frozenset()),
        idempotency_key=None,
        body_digest=b"",
    )
    with pytest.raises(UnknownLabelError):
        asyncio.run(store)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("item", "status", "where"),
    [
        ({"reference": "a", "labels": {"spam": True}}, 422, "/items/0/labels/spam"),
        ({"reference": "a", "labels": {"toxic": 2}}, 422, '"/items/0/labels/toxic"'),
        ({"reference": "a", "labels": {"toxic": "yes"}}, 422, '"/items/0/labels/toxic"'),
        ({"reference": "a", "labels": {"toxic": 0.5}}, 422, '"/items/0/labels/toxic"'),
        ({"reference": "a", "labels": {"toxic": None}}, 422, "/items/0"),
        ({"reference": "a", "labels": {}}, 422, "labels"),
        ({"reference": "a", "label": "toxic"}, 422, "label"),
        ({"labels": {"toxic": True}}, 422, "/items/0"),
        ({"prediction_id": "nope", "labels": {"toxic": True}}, 422, "prediction_id"),
        ({"reference": "a", "labels": {"toxic": True}, "labelled_at": "2999-01-01T00:00:00Z"}, 422, "labelled_at"),
    ],
)
def test_wrong_feedback_stores_nothing(served: Any, item: dict[str, Any], status: int, where: str) -> None:
    good = {"reference": "good", "labels": {"toxic": True}}
    response = served.http.post(FEEDBACK, json={"items": [item, good]})
    assert response.status_code == status, response.text
    assert where in response.text
    if "labels" in item and "reference" in item:  # the good one was not stored: it is no duplicate
        found = served.http.post(FEEDBACK, json={"items": [good | {"reference": f"{where}{item}"[:200]}]}).json()
        assert found["duplicates"] == 0


@pytest.mark.parametrize(
    ("body", "query", "status"),
    [
        ({"inputs": [[1.0, 2.0]]}, "", 422),
        ({"inputs": [[1.0, 2.0, None]]}, "", 422),
        ({"inputs": [[1.0, 2.0, 1e39]]}, "", 422),
        ({"inputs": []}, "", 422),
        ({"scores": [[0.1, 0.2, 0.3]]}, "", 400),
        ({"inputs": ROWS.tolist(), "references": ["a"]}, "", 422),
        ({"inputs": ROWS.tolist()}, "?policy=nope", 404),
        ({"inputs": ROWS.tolist()}, "?top=2", 422),
    ],
)
def test_wrong_predictions_are_refused(served: Any, body: dict[str, Any], query: str, status: int) -> None:
    response = served.http.post(PREDICT + query, json=body)
    assert response.status_code == status, response.text
    assert served.http.post(PREDICT, json={"inputs": ROWS.tolist()}).status_code == 200


def test_the_name_is_no_model_of_one_label_per_row(served: Any) -> None:
    for path in ("/v1/models/comments/predict", "/v1/models/comments/recalibrate", "/v1/models/comments/feedback"):
        body = {"items": [{"reference": "a", "label": "present"}]} if path.endswith("feedback") else {}
        refused = served.http.post(path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (404, "/errors/unknown-model")
        assert "comments--toxic" in refused.json()["remedy"]
    unknown = served.http.post("/v1/multilabel/comments--toxic/predict", json={"inputs": ROWS.tolist()})
    assert (unknown.status_code, unknown.json()["expected"]) == (404, ["comments"])


def recalibrated(caller: Any, model: str, mode: str) -> dict[str, Any]:
    response = caller.http.post(
        f"/v1/models/{model}/recalibrate", json={"mode": mode, "calibrator": "beta"}, headers=WAIT
    )
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.usefixtures("refits_here")
def test_one_label_drifts_is_recalibrated_activated_and_rolled_back(own: Any) -> None:
    rows, marks = drawn(1500, 3)
    marks[:, 0] = drawn(1500, 3, shift=2.0)[1][:, 0]  # toxic alone
    before = chances(predicted(own))
    items = []
    for start in range(0, len(rows), 500):
        part = predicted(own, rows[start : start + 500])["predictions"]
        items += [
            {"prediction_id": one["prediction_id"], "labels": dict(zip(LABELS, map(bool, given), strict=True))}
            for one, given in zip(part, marks[start : start + 500].tolist(), strict=True)
        ]
    for start in range(0, len(items), 500):
        assert own.http.post(FEEDBACK, json={"items": items[start : start + 500]}).status_code == 200
    result = recalibrated(own, "comments--toxic", "activate")
    assert result["gate"]["passed"], result
    epoch = own.http.get("/v1/models/comments--toxic/revisions").json()["epoch"]
    answer = predicted(own)
    if answer["labels"]["toxic"]["revision"] == "r1":  # not activated by itself: a person does
        own.http.post(
            f"/v1/models/comments--toxic/revisions/{result['revision']}/activate",
            json={"reason": "drift", "accept_change": True},
            headers={"if-match": f'"{epoch}"'},
        ).raise_for_status()
        answer = predicted(own)
    assert [answer["labels"][label]["revision"] for label in LABELS] == ["r2", "r1", "r1"]
    after = chances(answer)
    truth = 1 / (1 + np.exp(-(ROWS @ WEIGHTS[:, 0] + 2.0)))
    assert np.abs(after[:, 0] - truth).mean() < np.abs(before[:, 0] - truth).mean() / 2  # 0.05 or so; of 500 fit rows
    np.testing.assert_array_equal(after[:, 1:], before[:, 1:])
    epoch = own.http.get("/v1/models/comments--toxic/revisions").json()["epoch"]
    own.http.post("/v1/models/comments--toxic/rollback", json={}, headers={"if-match": f'"{epoch}"'}).raise_for_status()
    np.testing.assert_array_equal(chances(predicted(own)), before)


def test_a_label_that_is_unloaded_is_named_and_policies_share_delta(own: Any) -> None:
    document = {
        "positive": "present",
        "bands": [{"action": "hide", "when": {"min_precision": 0.6}}, {"action": "show"}],
    }
    path = "/v1/models/comments--threat/policies/other"
    refused = own.http.put(path, json=document)
    assert refused.status_code == 422
    assert (refused.json()["where"], refused.json()["expected"]) == ("/certify/labels", 3)
    assert own.http.put(path, json=document | {"certify": {"labels": 3}}).status_code == 201
    own.http.post("/v1/models/comments--threat/unload").raise_for_status()
    response = own.http.post(PREDICT, json={"inputs": ROWS.tolist()})
    assert (response.status_code, response.json()["found"]) == (503, "threat")
    assert "threat" in own.http.get("/v1/multilabel").json()["items"][0]["problem"]
    own.http.post("/v1/models/comments--threat/load").raise_for_status()
    predicted(own)


@pytest.mark.usefixtures("proofs_here")
def test_labels_move_to_a_new_model_file_one_by_one(start: Launch, tmp_path: Path) -> None:
    imported(tmp_path, sigmoids(), "--calibrator", "temperature", count=600)
    caller = start(bundles=tmp_path / "bundles", policies=tmp_path / "policies", state=tmp_path)
    before = chances(predicted(caller))
    imported(tmp_path, sigmoids(factor=4.0), "--calibrator", "temperature", count=600)
    loaded = caller.http.post("/v1/models/comments--threat/load").json()
    epoch = caller.http.get("/v1/models/comments--threat/revisions").json()["epoch"]
    caller.http.post(
        f"/v1/models/comments--threat/revisions/{loaded['proposed']['2']}/activate",
        json={"reason": "a new model", "accept_change": True},
        headers={"if-match": f'"{epoch}"'},
    ).raise_for_status()
    answer = predicted(caller)
    assert [answer["labels"][label]["revision"] for label in LABELS] == ["r1", loaded["proposed"]["2"], "r1"]
    active = caller.runtime.models.multilabels.get("comments").served
    assert sorted(places for _, places in active.runs) == [(0, 2), (1,)]
    # The weights are twice as large and the temperature too, so the probabilities stay.
    np.testing.assert_allclose(chances(answer), before, atol=1e-3)
    np.testing.assert_array_equal(chances(answer)[:, [0, 2]], before[:, [0, 2]])


def test_scores_of_all_labels_in_one_request(start: Launch, tmp_path: Path) -> None:
    rows, marks = drawn(800, 4)
    scores = 1 / (1 + np.exp(-2 * rows @ WEIGHTS))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["p0", "p1", "p2", *LABELS])
        writer.writerows([*one, *other] for one, other in zip(scores.tolist(), marks.tolist(), strict=True))
    given = ["import", "scores", str(tmp_path / "rows.csv"), "--name", "comments", "--scores", "p0,p1,p2"]
    options = ["--label-columns", ",".join(LABELS), "--out", str(tmp_path / "bundles")]
    result = CliRunner().invoke(app, [*given, *options])
    assert result.exit_code == 0, result.output
    caller = start(bundles=tmp_path / "bundles", policies=None, state=tmp_path)
    sent = [[0.9, 0.1, 0.99999999], [0.0, 1.0, 0.5]]
    response = caller.http.post(PREDICT, json={"scores": sent})
    assert response.status_code == 200, response.text
    for place, label in enumerate(LABELS):
        alone = caller.http.post(f"/v1/models/comments--{label}/predict", json={"scores": [row[place] for row in sent]})
        expected = [one["probabilities"]["present"] for one in alone.json()["predictions"]]
        assert [one["probabilities"][label] for one in response.json()["predictions"]] == expected
    for wrong in ([[0.1, 0.2]], [0.1, 0.2, 0.3], [[0.1, 0.2, 1.5]], [[0.1, 0.2, "x"]], [[0.1, 0.2, None]]):
        assert caller.http.post(PREDICT, json={"scores": wrong}).status_code == 422
    ids = [one["prediction_id"] for one in response.json()["predictions"]]
    items = [{"prediction_id": ids[0], "labels": {"toxic": True}}]
    assert caller.http.post(FEEDBACK, json={"items": items}).json()["items"][0]["labels"].keys() == {"toxic"}


def test_a_key_of_the_multi_label_model_reaches_it_and_no_key_of_a_label_does(start: Launch, root: Path) -> None:
    caller = start(bundles=root / "bundles", policies=root / "policies")
    store = KeyStore(caller.runtime.database)
    texts = {
        models: store.create(name=models, scopes=("predict", "feedback"), models=(models,))[1]
        for models in ("comments", "comments--toxic")
    }
    until(lambda: httpx.get(f"{caller.url}/v1/models", timeout=PATIENCE_S).status_code == 401)
    for models, text in texts.items():
        allowed = models == "comments"
        with httpx.Client(base_url=caller.url, headers={"authorization": f"Bearer {text}"}, timeout=PATIENCE_S) as http:
            assert (http.post(PREDICT, json={"inputs": ROWS.tolist()}).status_code == 200) is allowed
            assert (http.get("/v1/multilabel").json()["items"] != []) is allowed
            own_model = http.post("/v1/models/comments--toxic/predict", json={"inputs": ROWS.tolist()})
            assert (own_model.status_code == 200) is not allowed


def test_the_audit_log_names_the_key_of_a_row_by_its_ids_in_the_logs_of_all_labels(start: Launch, root: Path) -> None:
    caller = start(bundles=root / "bundles", policies=root / "policies", log_mode="sync")
    key, text = KeyStore(caller.runtime.database).create(name="app", scopes=("predict",))
    until(lambda: httpx.get(f"{caller.url}/v1/models", timeout=PATIENCE_S).status_code == 401)
    caller.http.headers["authorization"] = f"Bearer {text}"
    rows = [one["prediction_id"] for one in predicted(caller)["predictions"]]
    caller.runtime.access_record.take(last=True)
    caller.runtime.access_record.write()
    with caller.runtime.database.connect() as connection:
        logged = connection.scalars(select(tables.predictions.c.id)).all()
        assert len({*rows, *logged}) == (1 + len(LABELS)) * len(rows)
        for id_ in (*rows, *logged):
            found = answered_ids.find(connection, id_)
            assert found is not None
            assert (found.key, found.model, found.whole) == (key.prefix, "comments", True)
        for id_ in (id_of(rows[0], "comments--nothing"), id_of(rows[0], "pets--toxic")):
            assert answered_ids.find(connection, id_) is None
