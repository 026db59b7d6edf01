"""Every operation answers as the contract says: no field more, no field less, no value changed by reading it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import BaseModel, ValidationError

import candor.contract
from candor.contract.audit import AuditPage
from candor.contract.backtests import Backtest
from candor.contract.cases import Case, CaseDetail, CasePage, Claims, LabelledCase
from candor.contract.certificates import SolvedPolicy
from candor.contract.challengers import Challenger, ChallengerComparison, ChallengerPage
from candor.contract.documents import Answer
from candor.contract.erasure import Erasure
from candor.contract.feedback import FeedbackEntry, FeedbackReceipt
from candor.contract.health import Health, Liveness
from candor.contract.jobs import Job, JobPage, ProposedJob
from candor.contract.kserve import InstancePredictions, ModelReadiness
from candor.contract.labelled_sets import LabelledSet, LabelledSetPage
from candor.contract.labels import LabelsPredictions, LabelsReceipt, MultiLabelModels
from candor.contract.models import Model, ModelPage
from candor.contract.monitoring import Monitoring
from candor.contract.open_inference import (
    Done,
    InferenceError,
    InferenceResponse,
    ModelConfiguration,
    ModelMetadata,
    ModelReady,
    RepositoryEntry,
    ServerLive,
    ServerMetadata,
    ServerReady,
    Statistics,
)
from candor.contract.predictions import Predictions
from candor.contract.prior_shift import PriorShift, PriorShiftReport
from candor.contract.problem import Problem
from candor.contract.recalibration import Recalibration, RecalibrationReport
from candor.contract.revisions import Pointer, PolicyProposal, Rejection, Revision, RevisionPage
from candor.contract.simulation import Simulation, SimulationRequest
from candor.contract.traffic import TrafficChange
from service.serving.child import child
from service.state.database import now_us
from service.times import iso
from tests.array_files import npz
from tests.service import imported_models, labels_of_comments
from tests.waiting import WAIT

MODEL = "/v1/models/{model}"
LABELS = "/v1/multilabel"
V2 = "/v2/models/{model}"
VERSION = f"{V2}/versions/{{version}}"
REPOSITORY = "/v2/repository"
ANSWERS: dict[tuple[str, str], dict[int, type[Answer]]] = {
    ("GET", "/livez"): {200: Liveness},
    ("GET", "/readyz"): {200: Health},
    ("GET", "/v1/models"): {200: ModelPage},
    ("POST", "/predict"): {200: Predictions},
    ("POST", f"{MODEL}/predict"): {200: Predictions},
    ("POST", "/feedback"): {200: FeedbackReceipt},
    ("POST", f"{MODEL}/feedback"): {200: FeedbackReceipt},
    ("GET", LABELS): {200: MultiLabelModels},
    ("POST", f"{LABELS}/{{model}}/predict"): {200: LabelsPredictions},
    ("POST", f"{LABELS}/{{model}}/feedback"): {200: LabelsReceipt},
    ("GET", f"{MODEL}/cases"): {200: CasePage},
    ("GET", f"{MODEL}/cases/{{case}}"): {200: CaseDetail},
    ("POST", f"{MODEL}/cases/claim"): {200: Claims},
    ("POST", f"{MODEL}/cases/{{case}}/claim"): {200: Case},
    ("POST", f"{MODEL}/cases/{{case}}/label"): {200: LabelledCase},
    ("POST", f"{MODEL}/cases/{{case}}/skip"): {200: Case},
    ("POST", f"{MODEL}/cases/{{case}}/release"): {200: Case},
    ("POST", f"{MODEL}/cases/{{case}}/assign"): {200: Case},
    ("POST", "/recalibrate"): {200: Recalibration, 202: Job},
    ("POST", f"{MODEL}/recalibrate"): {200: Recalibration, 202: Job},
    ("GET", "/v1/jobs"): {200: JobPage},
    ("GET", "/v1/jobs/{job}"): {200: Job},
    ("DELETE", "/v1/jobs/{job}"): {200: Job},
    ("POST", "/v1/jobs/{job}/propose"): {201: ProposedJob},
    ("GET", f"{MODEL}/revisions"): {200: RevisionPage},
    ("GET", f"{MODEL}/revisions/{{revision}}"): {200: Revision},
    ("GET", f"{MODEL}/revisions/{{revision}}/traffic"): {200: TrafficChange},
    ("POST", f"{MODEL}/revisions/{{revision}}/activate"): {200: Pointer},
    ("POST", f"{MODEL}/revisions/{{revision}}/reject"): {200: Rejection},
    ("POST", f"{MODEL}/rollback"): {200: Pointer},
    ("GET", f"{MODEL}/audit"): {200: AuditPage},
    ("GET", f"{MODEL}/policies/{{policy}}"): {200: SolvedPolicy},
    ("PUT", f"{MODEL}/policies/{{policy}}"): {200: PolicyProposal, 201: PolicyProposal},
    ("POST", f"{MODEL}/policies/{{policy}}/simulate"): {200: Simulation},
    ("POST", f"{MODEL}/policies/{{policy}}/backtest"): {200: Backtest},
    ("POST", f"{MODEL}/prior-shift"): {200: PriorShift, 201: PriorShift},
    ("GET", f"{MODEL}/monitoring"): {200: Monitoring},
    ("GET", f"{MODEL}/challengers"): {200: ChallengerPage},
    ("GET", f"{MODEL}/challengers/{{challenger}}"): {200: ChallengerComparison},
    ("PUT", f"{MODEL}/challengers/{{challenger}}"): {200: Challenger, 201: Challenger},
    ("DELETE", f"{MODEL}/challengers/{{challenger}}"): {200: Challenger},
    ("POST", f"{MODEL}/labelled-sets"): {200: LabelledSet, 201: LabelledSet},
    ("GET", f"{MODEL}/labelled-sets"): {200: LabelledSetPage},
    ("GET", f"{MODEL}/labelled-sets/{{labelled_set}}"): {200: LabelledSet},
    ("DELETE", f"{MODEL}/labelled-sets/{{labelled_set}}"): {200: LabelledSet},
    ("POST", f"{MODEL}/erase"): {200: Erasure},
    ("POST", f"{MODEL}/load"): {200: Model},
    ("POST", f"{MODEL}/unload"): {200: Model},
    ("GET", MODEL): {200: ModelReadiness},
    ("POST", f"{MODEL}:predict"): {200: InstancePredictions},
    ("GET", "/v2"): {200: ServerMetadata},
    ("GET", "/v2/health/live"): {200: ServerLive},
    ("GET", "/v2/health/ready"): {200: ServerReady},
    ("GET", "/v2/models/stats"): {200: Statistics},
    **{
        (method, f"{path}{rest}"): {200: answer}
        for path in (V2, VERSION)
        for method, rest, answer in (
            ("GET", "", ModelMetadata),
            ("GET", "/ready", ModelReady),
            ("GET", "/config", ModelConfiguration),
            ("GET", "/stats", Statistics),
            ("POST", "/infer", InferenceResponse),
        )
    },
    ("POST", f"{REPOSITORY}/index"): {200: RepositoryEntry},
    ("POST", f"{REPOSITORY}/models/{{model}}/load"): {200: Done},
    ("POST", f"{REPOSITORY}/models/{{model}}/unload"): {200: Done},
}
"""What each operation answers, or has in a list, by status; /metrics is text."""

BY_LAMP = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_precision": 0.8}}, {"action": "check"}],
    "explore": {"share": 1.0, "actions": ["accept", "check"]},
    "segments": {"values": ["bright", "dim"], "fallback": "check"},
    "set": {"coverage": 0.5, "per_class": False},
    "review": {},
}
FEEDBACK = {
    "since": "2026-01-01T00:00:00Z",
    "until": "2100-01-01T00:00:00Z",
    "unknown_propensity": "fit",
    "rescore": True,
}
RULED = {name: value for name, value in FEEDBACK.items() if name not in ("since", "until")}
SILENCE = {"label": "7", "source": "nobody", "maturity_days": 0.001, "actions": ["review"]}
T = TypeVar("T", bound=Answer)


class Checked:
    """Calls operations of a service and holds each answer to its type.

    Attributes:
        asked: Operations and statuses seen.
        fields: Fields seen in answers, by type.
    """

    def __init__(self, service: Any) -> None:
        self.service = service
        self.asked: set[tuple[str, str, int]] = set()
        self.fields: dict[type[BaseModel], set[str]] = {}

    def __call__(self, method: str, path: str, wanted: int = 200, names: Any = None, **options: Any) -> Any:
        """Call an operation by its path in the OpenAPI document and return its answer, read."""
        url = path.format(**{"model": "digits"} | (names or {}))
        response = self.service.http.request(method, url, **options)
        assert response.status_code == wanted, response.text
        self.asked.add((method, path, wanted))
        binary_after = response.headers.get("inference-header-content-length")
        document = json.loads(response.content[: None if binary_after is None else int(binary_after)])
        kind = ANSWERS[method, path][wanted]
        one = not isinstance(document, list)
        answer = exactly(kind, document) if one else tuple(exactly(kind, entry) for entry in document)
        self.note(answer)
        return answer

    def move(self, path: str, **names: str) -> Pointer:
        """Move the pointer at the present epoch."""
        epoch = self("GET", f"{MODEL}/revisions").epoch
        headers = {"if-match": f'"{epoch}"'}
        accepted = {"accept_change": True, "guard": {"window": 60, "max_change": 0.99}}
        body = {"reason": "a test"} | (accepted if path.endswith("activate") else {})
        moved: Pointer = self("POST", f"{MODEL}/{path}", names=names, json=body, headers=headers)
        return moved

    def ended(self, job: str) -> Job:
        """Wait for a job's end."""
        while (found := self("GET", "/v1/jobs/{job}", names={"job": job})).state in ("queued", "running"):
            time.sleep(0.02)
        return found  # type: ignore[no-any-return]

    def revision(self, revision: str) -> Revision:
        """Return a revision."""
        return self("GET", f"{MODEL}/revisions/{{revision}}", names={"revision": revision})  # type: ignore[no-any-return]

    def note(self, value: Any) -> None:
        """Note the fields of an answer and its parts."""
        if isinstance(value, BaseModel):
            self.fields.setdefault(type(value), set()).update(value.model_fields_set)
            for name in value.model_fields_set:
                self.note(getattr(value, name))
        elif isinstance(value, tuple | list | dict):
            for entry in value.values() if isinstance(value, dict) else value:
                self.note(entry)


def ask_of_labels(ask: Checked, launch: Callable[..., Any], folder: Path) -> None:
    """Ask a service of a multi-label model."""
    folder.mkdir()
    labels_of_comments.imported(folder, labels_of_comments.sigmoids(), "--calibrator", "temperature")
    comments = launch(folder, bundles=folder / "bundles", policies=folder / "policies")
    seen = Checked(comments)
    seen.asked, seen.fields = ask.asked, ask.fields
    assert [model.model for model in seen("GET", LABELS).items] == ["comments"]
    named = {"model": "comments"}
    answer = seen("POST", f"{LABELS}/{{model}}/predict", names=named, json={"inputs": [[1.0, 0.0, 1.0]]})
    item = {"prediction_id": answer.predictions[0].prediction_id, "labels": {"toxic": True, "threat": None}}
    receipt = seen("POST", f"{LABELS}/{{model}}/feedback", names=named, json={"items": [item]})
    assert receipt.items[0].labels.keys() == {"toxic"}
    comments.close()


def exactly(kind: type[T], document: Any) -> T:
    """Read an answer with unknown fields forbidden, and show that nothing of it is lost or changed by that."""
    answer = kind.model_validate(document, extra="forbid")
    assert answer.document == document
    return answer


def teach(ask: Checked, images: npt.NDArray[np.uint8], labels: list[str], segment: str) -> list[str]:
    """Predict images under the policy with segments and send their labels; returns the prediction ids."""
    body = {
        "inputs": images.tolist(),
        "segments": [segment] * len(images),
        "groups": [f"g-{segment}"] + [None] * (len(images) - 1),
    }
    answer = ask("POST", "/predict", params={"policy": "by-lamp", "top": 1}, json=body)
    ids = [row.prediction_id for row in answer.predictions]
    items = [{"prediction_id": prediction, "label": label} for prediction, label in zip(ids, labels, strict=True)]
    ask("POST", "/feedback", json={"items": items})
    assert ask.service.runtime.log.flush()
    return ids


@pytest.mark.usefixtures("checks_here", "refits_here")
def test_every_operation_answers_as_the_contract_says(
    start: Callable[..., Any],
    launch_many: Callable[..., Any],
    reviewing: Any,
    digits: Any,
    slow: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = start(keep_inputs="all", monitor_maturity_s=3600.0, monitor_interval_s=1e6)
    service.runtime.monitors.clock = lambda: now_us() + int(3600e6)
    ask = Checked(service)

    # Health, models, policies
    ask("GET", "/livez")
    assert ask("GET", "/readyz").models == {"digits": "r1"}
    assert [model.revision for model in ask("GET", "/v1/models").items] == ["r1"]
    other = tmp_path / "tables"
    other.mkdir()
    imported_models.payments(other / "bundles")
    imported_models.drivers(other / "bundles")
    tables = launch_many(other, bundles=other / "bundles", default_model="payments", policies=None)
    ask.note(exactly(ModelPage, tables.http.get("/v1/models").json()))
    body = {"inputs": imported_models.driver_rows(600).tolist()}
    assert tables.http.post("/v1/models/drivers/predict", json=body).status_code == 200
    tables.runtime.drift.step()
    bands = [{"action": "review", "when": {"max_review_per_day": 9}}, {"action": "accept"}]
    document = {"positive": "top", "bands": bands, "rows_per_day": 90}
    queue = tables.http.put("/v1/models/drivers/policies/queue", json=document).json()["id"]
    epoch = tables.http.get("/v1/models/drivers/revisions").json()["epoch"]
    accepted, headers = {"reason": "a test", "accept_change": True}, {"if-match": f'"{epoch}"'}
    path = f"/v1/models/drivers/revisions/{queue}/activate"
    assert tables.http.post(path, json=accepted, headers=headers).status_code == 200
    ask.note(exactly(Monitoring, tables.http.get("/v1/models/drivers/monitoring").json()))
    tables.close()
    assert ask.revision("r1").report == digits.bundle.report
    ask_of_labels(ask, launch_many, tmp_path / "labels")
    by_lamp = {"policy": "by-lamp"}
    proposed = ask("PUT", f"{MODEL}/policies/{{policy}}", 201, by_lamp, json=BY_LAMP)
    assert proposed.warnings
    ask.move("revisions/{revision}/activate", revision=proposed.id)
    assert ask("PUT", f"{MODEL}/policies/{{policy}}", 200, by_lamp, json=BY_LAMP).state == "active"
    assert set(ask("GET", f"{MODEL}/policies/{{policy}}", 200, by_lamp).segments) == {"bright", "dim"}

    # A challenger on the log, with other decisions under one policy
    rival = {"challenger": "rival"}
    strict = {**BY_LAMP, "bands": [{"action": "accept", "when": {"min_probability": 0.99}}, {"action": "check"}]}
    other = ask("PUT", f"{MODEL}/policies/{{policy}}", 201, by_lamp, json=strict)
    ask("PUT", f"{MODEL}/challengers/{{challenger}}", 201, rival, json={"revision": other.id})
    ask("PUT", f"{MODEL}/challengers/{{challenger}}", 200, rival, json={"revision": other.id})
    assert ask("GET", f"{MODEL}/challengers").items[0].name == "rival"

    # Predictions, their labels, and what monitors make of them
    ids = teach(ask, digits.images[:500], digits.labels[:500], "bright")
    for start_ in range(0, 900, 300):
        part = slice(start_, start_ + 300)
        teach(ask, digits.dimmed[part], digits.labels[part], "dim")
    ask("POST", f"{MODEL}/predict", json={"inputs": digits.images[:2].tolist()})
    items = [{"prediction_id": ids[0], "label": "7"}, {"reference": "later", "label": "7"}]
    assert ask("POST", f"{MODEL}/feedback", json={"items": items}).pending == 1
    assert ask("GET", f"{MODEL}/monitoring").estimates is None
    service.runtime.monitors.step()
    watched = ask("GET", f"{MODEL}/monitoring")
    assert any(one.changes for one in ask("GET", f"{MODEL}/challengers/{{challenger}}", names=rival).policies)
    ask("DELETE", f"{MODEL}/challengers/{{challenger}}", names=rival)
    assert watched.estimates.labelled.delay_s.median > 0
    assert watched.alarm.monitor.rows > 0

    # The review queue
    body = {"inputs": digits.images[500:504].tolist(), "groups": ["g-queue"] * 4}
    ask("POST", "/predict", params={"policy": "by-lamp"}, json=body)
    assert service.runtime.log.flush()
    first, second = ask("POST", f"{MODEL}/cases/claim", json={"count": 2}).items
    one, other = {"case": first.id}, {"case": second.id}
    assert ask("POST", f"{MODEL}/cases/{{case}}/claim", names=one).lease == first.lease
    assert ask("POST", f"{MODEL}/cases/{{case}}/assign", names=other, json={"to": "ann"}).assignee == "ann"
    assert ask("POST", f"{MODEL}/cases/{{case}}/release", names=other).state == "open"
    assert ask("POST", f"{MODEL}/cases/{{case}}/assign", names=other, json={"to": None}).assignee is None
    assert ask("POST", f"{MODEL}/cases/{{case}}/skip", names=other, json={"reason": "dark"}).state == "skipped"
    assert ask("POST", f"{MODEL}/cases/{{case}}/label", names=one, json={"label": "7"}).feedback == "stored"
    shown = ask("GET", f"{MODEL}/cases/{{case}}", names=one)
    assert np.shape(shown.inputs) == digits.images[0].shape
    assert len(shown.earlier) == 3
    assert {past.id for past in shown.history} == {past.id for past in shown.earlier}
    assert all(0 <= past.probability <= 1 for past in shown.history)
    assert len(ask("GET", f"{MODEL}/cases", params={"limit": 1}).items) == 1
    waiting = exactly(CasePage, reviewing.http.get("/v1/models/cards/cases").json()).items[0].id
    explained = exactly(CaseDetail, reviewing.http.get(f"/v1/models/cards/cases/{waiting}").json())
    assert explained.reasons is not None
    ask.note(explained)

    # Recalibration: jobs, proposals, revisions
    body: dict[str, Any] = {"mode": "dry_run", "source": {"feedback": FEEDBACK}}
    tried = ask("POST", "/recalibrate", json=body, headers=WAIT)
    assert tried.rows.fit > 0
    job = ask("POST", "/recalibrate", 202, json={"mode": "propose", "calibrator": "vector"})
    kept = ask.ended(job.job).result
    assert kept.state in ("proposed", "refused")
    assert isinstance(ask.revision(kept.revision).report, RecalibrationReport)
    silent = {"source": {"feedback": {"implicit_negative": SILENCE}}}
    assert ask("POST", f"{MODEL}/recalibrate", json=silent, headers=WAIT).implicit_negative.label == "7"
    again = ask("POST", "/v1/jobs/{job}/propose", 201, {"job": tried.job})
    assert ask("GET", f"{MODEL}/revisions/{{revision}}/traffic", 200, {"revision": again.revision}).rows > 0
    ask.move("revisions/{revision}/activate", revision=again.revision)
    ask.move("rollback")
    decided = ask("POST", "/recalibrate", json={"mode": "activate", "source": {"feedback": RULED}}, headers=WAIT)
    assert decided.state in ("proposed", "refused"), "the gate's rows depend on random ids"
    other = {"policy": "strict"}
    bands = [{"action": "accept", "when": {"min_probability": 0.75}}, {"action": "review"}]
    unwanted = ask("PUT", f"{MODEL}/policies/{{policy}}", 201, other, json={"positive": "top", "bands": bands})
    ask("POST", f"{MODEL}/revisions/{{revision}}/reject", 200, {"revision": unwanted.id}, json={"reason": "no"})
    began = now_us()
    unsought = ask("POST", "/predict", json={"inputs": digits.images[:100].tolist()}).predictions
    items = [{"prediction_id": row.prediction_id, "label": "7"} for row in unsought]
    ask("POST", "/feedback", json={"items": items})
    assert service.runtime.log.flush()
    hopeless = {"source": {"feedback": {"since": iso(began)}}}
    failed = ask.ended(ask("POST", f"{MODEL}/recalibrate", 202, json=hopeless).job)
    assert (failed.state, failed.error.kind) == ("failed", "TooFewLabelsError")

    # Prior shift, simulation, labelled sets
    target = {"target": {"7": 0.5}, "source": {"7": 0.1}}
    assert ask("POST", f"{MODEL}/prior-shift", json=target).revision is None
    shifted = ask("POST", f"{MODEL}/prior-shift", 201, json={"mode": "propose", "estimate": {"rows": 1000}})
    assert isinstance(ask.revision(shifted.revision).report, PriorShiftReport)
    wanted = {"document": {"positive": "top", "bands": bands}}
    simulated = ask("POST", f"{MODEL}/policies/{{policy}}/simulate", 200, by_lamp, json=wanted)
    assert simulated.decisions.flips
    in_force = ask("POST", f"{MODEL}/policies/{{policy}}/simulate", 200, by_lamp, json={"rows": 100})
    assert set(in_force.segments) == {"bright", "dim"}
    assert ask("POST", f"{MODEL}/policies/{{policy}}/backtest", 200, by_lamp, json=wanted).lower
    upload = {
        "content": npz(label=np.array(digits.labels), inputs=digits.dimmed),
        "headers": {"content-type": "application/x-npz"},
    }
    labelled = ask("POST", f"{MODEL}/labelled-sets", 201, **upload, params={"represents": "traffic"})
    assert ask("POST", f"{MODEL}/labelled-sets", 200, **upload, params={"represents": "traffic"}) == labelled
    assert ask("GET", f"{MODEL}/labelled-sets").items == (labelled,)
    from_set = {"source": {"labelled_set": labelled.id}}
    assert ask("POST", "/recalibrate", json=from_set, headers=WAIT).source.sha256 == labelled.sha256
    named = {"labelled_set": labelled.id}
    ask("GET", f"{MODEL}/labelled-sets/{{labelled_set}}", 200, named)
    assert ask("POST", f"{MODEL}/erase", json={"group": "g-dim"}).labelled_sets == ()
    ask("DELETE", f"{MODEL}/labelled-sets/{{labelled_set}}", 200, named)

    # Other protocols
    assert ask("GET", MODEL).ready
    answer = ask("POST", f"{MODEL}:predict", json={"instances": digits.images[:2].tolist()})
    assert np.shape(answer.predictions) == (2, 10)
    assert ask("GET", "/v2/health/live").live
    assert ask("GET", "/v2/health/ready").ready
    assert "statistics" in ask("GET", "/v2").extensions
    loaded = {"version": ask("GET", f"{MODEL}/revisions").active.removeprefix("r")}
    tensor = {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": digits.images[:2].ravel().tolist()}
    chosen = {"policy": "by-lamp", "segment": "bright"}
    inference: dict[str, Any] = {"id": "1", "parameters": chosen, "inputs": [tensor]}
    chosen_outputs = [{"name": "logits", "parameters": {"binary_data": True}}, {"name": "set"}, {"name": "decision"}]
    for path, outputs in ((V2, {}), (VERSION, {"outputs": chosen_outputs})):
        assert ask("GET", path, names=loaded).name == "digits"
        assert ask("GET", f"{path}/ready", names=loaded).ready
        inferred = ask("POST", f"{path}/infer", names=loaded, json=inference | outputs)
        assert len(inferred.outputs) == (3 if outputs else 4)
        assert json.loads(ask("GET", f"{path}/config", names=loaded).parameters.labels.string_value)
        assert ask("GET", f"{path}/stats", names=loaded).model_stats[-1].batch_stats
    ask("GET", "/v2/models/stats")
    ask.note(exactly(InferenceError, service.http.get("/v2/models/none").json()))

    # What is refused; a job that is cancelled, a model that goes and comes back
    for path, body in (("/predict", {"inputs": [[[1, 2], [3, 4]]]}), ("/v1/models/digits/rollback", {})):
        ask.note(exactly(Problem, service.http.post(path, json=body).json()))
    monkeypatch.setattr("service.recalibration.execution.child", child)  # a process, which can be cancelled
    slow()
    running = ask("POST", "/recalibrate", 202)
    assert ask("DELETE", "/v1/jobs/{job}", 200, {"job": running.job}).summary
    assert {entry.state for entry in ask("GET", "/v1/jobs").items} >= {"done", "failed", "cancelled"}
    assert not ask("POST", f"{MODEL}/unload").loaded
    assert ask("POST", f"{MODEL}/load").refused == {}
    ask("POST", f"{REPOSITORY}/models/{{model}}/unload")
    assert {entry.state for entry in ask("POST", f"{REPOSITORY}/index")} == {"UNAVAILABLE"}
    ask("POST", f"{REPOSITORY}/models/{{model}}/load")
    assert {entry.state for entry in ask("POST", f"{REPOSITORY}/index")} == {"READY"}
    assert ask("GET", f"{MODEL}/audit").items

    described = {
        (method.upper(), path)
        for path, item in service.http.get("/openapi.json").json()["paths"].items()
        for method in item
        if path != "/metrics"
    }
    assert described == set(ANSWERS)
    assert {(method, path) for method, path, _ in ask.asked} == described
    for kind in answers():  # a base that no operation answers with itself
        if kind not in ask.fields:
            ask.fields[kind] = set().union(*(names for seen, names in ask.fields.items() if issubclass(seen, kind)))
    never = {kind: set(kind.model_fields) - ask.fields[kind] for kind in answers()}
    assert {kind.__name__: names for kind, names in never.items() if names} == {}


def answers() -> Iterator[type[Answer]]:
    """Yield the types of all answers and their parts."""
    for module in iter_modules(candor.contract.__path__):
        for kind in vars(import_module(f"candor.contract.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Answer) and kind is not Answer:
                yield kind


@pytest.mark.parametrize("policy", [None, "auto-read"])
@pytest.mark.parametrize("top", [None, 0, 3])
@pytest.mark.parametrize("references", [None, ["a", None]])
def test_the_hot_paths_bytes_are_the_contracts(
    shared: Any, digits: Any, policy: str | None, top: int | None, references: list[str | None] | None
) -> None:
    given = {"policy": policy, "top": top}
    body: dict[str, Any] = {"inputs": digits.images[:2].tolist()} | ({"references": references} if references else {})
    parameters = {key: value for key, value in given.items() if value is not None}
    answer = exactly(Predictions, shared.http.post("/predict", params=parameters, json=body).json())
    assert [row.reference for row in answer.predictions] == (references or [None, None])
    assert {len(row.probabilities) for row in answer.predictions} == {10 if top is None else top}
    assert (answer.policy is None) == (policy is None)


def test_a_field_that_a_newer_service_adds_is_ignored(shared: Any) -> None:
    document = shared.http.get("/livez").json()
    newer = {**document, "added": {"by": "a newer service"}}
    assert Liveness.model_validate(newer) == Liveness.model_validate(document)
    with pytest.raises(ValidationError, match="added"):
        exactly(Liveness, newer)


def test_thousands_of_unknown_fields_are_one_error() -> None:
    many = {f"unknown{number}": number for number in range(20_000)}
    with pytest.raises(ValidationError) as refused:
        SimulationRequest.model_validate({"rows": "many"} | many)
    assert [(error["type"], error["loc"]) for error in refused.value.errors()] == [
        ("int_parsing", ("rows",)),
        ("extra_forbidden", ("unknown0",)),
    ]
    with pytest.raises(ValidationError, match="typo"):
        SimulationRequest.model_validate({"typo": 1})


@pytest.mark.parametrize("time", [5, 1_700_000_000, 1.7e9, True, "1700000000", "-5", "1.7"])
def test_a_number_is_refused_as_a_time(time: object) -> None:
    with pytest.raises(ValidationError, match="a text with its zone"):
        FeedbackEntry.model_validate({"prediction_id": "x", "label": "1", "labelled_at": time})
