"""Challengers of a running service: the same rows, logged together, compared, and never in an answer's way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sqlalchemy import func, select

import bundle as bundles
from bundle import Column, Columns, Graph, GraphInput, GraphOutput, InputSpec
from candor import ApiError, Client
from service.serving import challengers
from service.state import audit
from service.state.database import now_us
from service.state.prediction_rows import CHALLENGERS, in_sample
from service.state.retention import prune
from service.state.tables import challenger_scores, compared_groups
from service.times import DAY_US
from tests.importing.graphs import model, value

from ..conftest import Digits, InThread, contents
from ..imported_models import write
from ..recalibration.test_rescoring import doubled
from .test_swap import propose_temperature

pytestmark = pytest.mark.usefixtures("proofs_here")

MATURITY_S = 3600.0
ROWS = 240


def later() -> int:
    return now_us() + int(MATURITY_S * 1e6)


@pytest.fixture
def beside(start: Callable[..., InThread], digits: Digits, tmp_path: Path) -> Callable[..., InThread]:
    """Start a service with a copy of the bundles, whose monitors count when a test says so."""

    def run(**changes: Any) -> InThread:
        root = Path(shutil.copytree(digits.root, tmp_path / "bundles", dirs_exist_ok=True))
        service = start(**{"bundles": root, "monitor_maturity_s": MATURITY_S, "monitor_interval_s": 1e6} | changes)
        service.runtime.monitors.clock = later
        return service

    return run


def add_bundle(service: InThread, changed: Any) -> int:
    """Put another bundle beside the active one; return its version."""
    bundles.write(service.runtime.settings.bundle_folder, changed)
    loaded = service.http.post("/v1/models/digits/load").json()
    assert loaded["refused"] == {}
    return max(map(int, loaded["proposed"]))


def compared(service: InThread, name: str) -> Any:
    """Let everything be scored and counted, and return the comparison."""
    assert service.runtime.log.flush()
    assert service.runtime.beside.flush()
    service.runtime.monitors.step()
    with Client(service.url, model="digits") as client:
        return client.challenger(name)


def rows_of(service: InThread, table: Any = challenger_scores) -> int:
    with service.runtime.database.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def counts(service: InThread, name: str, model: str = "digits") -> dict[str, int]:
    found = service.runtime.beside.counts
    return {result: found[model, name, result] for result in challengers.RESULTS if found[model, name, result]}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_another_bundle_is_scored_on_the_same_rows_and_compared(
    beside: Callable[..., InThread], digits: Digits, database: str, request: pytest.FixtureRequest
) -> None:
    changes = {}
    if database == "postgresql":
        address: str = request.getfixturevalue("postgresql_url")
        changes["state"] = address.replace("postgresql://", "postgresql+psycopg://")
    service = beside(**changes)
    version = add_bundle(service, doubled(digits))
    with Client(service.url) as client:
        put = client.put_challenger("double", bundle=version, share=1.0)
        assert (put.bundle, put.scoring, put.problem) == (version, "own session", None)
        assert client.challengers().items == (put,)
    answers = [service.teach(digits.dimmed[part], digits.labels[part]) for part in (slice(0, ROWS), slice(ROWS, 300))]
    assert sum(answer["stored"] for answer in answers) == 300
    found = compared(service, "double")
    assert counts(service, "double") == {"scored": 300}
    assert (found.scored, found.labelled, found.missing, found.active) == (300, 300, 0, "r1")
    assert found.log_loss.difference == pytest.approx(0.0, abs=1e-5), "twice the logits at twice the temperature"
    assert found.log_loss.better is None
    assert {one.policy: one.flipped for one in found.policies} == {"auto-read": 0, "flag-zero": 0}
    assert rows_of(service, compared_groups) == 300
    assert service.metric("candor_challenger_rows_total", challenger="double", result="scored") == 300

    # Inputs are not kept: its scores tell what it would do to the traffic
    change = service.http.get(f"/v1/models/digits/revisions/{put.revision}/traffic").json()
    assert (change["rows"], change["not_compared"], set(change["policies"])) == (300, None, {"auto-read", "flag-zero"})

    # The same rows again: their groups have shown their labels
    service.teach(digits.dimmed[:50], digits.labels[:50])
    again = compared(service, "double")
    assert (again.scored, again.rows) == (350, found.rows)

    # What is erased or too old takes its scores along
    service.predict(digits.images[300:302])
    unsought = compared(service, "double")
    assert (unsought.scored, unsought.rows) == (352, found.rows), "no policy decided them"
    with service.runtime.database.connect() as connection:
        target = connection.execute(select(challenger_scores.c.id).limit(1)).scalar_one()
    before = rows_of(service)
    assert service.http.post("/v1/models/digits/erase", json={"prediction_id": target}).status_code == 200
    assert rows_of(service) == before - 1
    prune(service.runtime.database, later() + 3 * DAY_US, by="test")  # PostgreSQL drops the day's partition
    assert rows_of(service) == 0

    removed = service.http.delete("/v1/models/digits/challengers/double")
    assert removed.status_code == 200
    assert rows_of(service) == 0
    assert service.http.get("/v1/models/digits/challengers/double").status_code == 404
    with service.runtime.database.connect():
        actions = [entry.action for entry in audit.read(service.runtime.database, "digits", limit=50)]
    assert {"put_challenger", "delete_challenger"} <= set(actions)


def test_few_scores_of_a_challenger_do_not_tell_what_it_does_to_the_traffic(
    beside: Callable[..., InThread], digits: Digits
) -> None:
    service = beside()
    version = add_bundle(service, doubled(digits))
    with Client(service.url, model="digits") as client:
        proposed = client.put_challenger("old", bundle=version, share=1.0).revision
        service.predict(digits.images[:1])
        compared(service, "old")
        few = client.traffic_change(proposed)
        assert (few.rows, few.not_compared) == (1, None)
        assert "not known" in few.exceeds[-1]
        service.predict(digits.images[1:120])
        compared(service, "old")
        client.put_challenger("new", bundle=version, share=1.0)  # by name, it comes first
        service.predict(digits.images[120:121])
        assert compared(service, "new").scored == 1
        enough = client.traffic_change(proposed)
        assert (enough.rows, enough.exceeds) == (121, ())


def test_a_revision_of_the_active_bundle_is_compared_on_the_log(
    beside: Callable[..., InThread], digits: Digits, spawn: Any
) -> None:
    service = beside()
    cold = propose_temperature(service.runtime.revisions, 20.0)
    service.teach(digits.images[:100], digits.labels[:100])  # before it is put
    with Client(service.url) as client:
        assert client.put_challenger("cold", revision=cold).scoring == "from the log"
        assert client.challenger("cold").log_loss is None
        service.teach(digits.images[100:500], digits.labels[100:500])
        found = compared(service, "cold")
        assert found.document == client.challenger("cold").document
    assert (found.scored, rows_of(service)) == (400, 0)
    assert found.log_loss.better == "active"
    assert found.log_loss.interval[0] > 0
    assert found.log_loss.active < found.log_loss.challenger
    assert [entry.action for entry in audit.read(service.runtime.database, "digits", limit=1)] == ["challenger_decided"]
    assert service.runtime.monitors.last_alarm("digits") is None, "a comparison casts no doubt on an activation"
    shown = spawn.run("challenger", "compare", "cold", url=service.url)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "log loss" in shown.stdout
    assert "400 mature predictions" in shown.stdout
    assert json.loads(spawn.run("challenger", "compare", "cold", "--json", url=service.url).stdout) == found.document

    # The dashboard shows it, and so does the page that asks whether to activate it
    epoch = service.revisions()["epoch"]
    for path in ("", f"/revisions/{cold}/activate?epoch={epoch}"):
        page = service.http.get(f"/dashboard/models/digits{path}")
        assert page.status_code == 200
        assert f"({cold})" in page.text
        assert "auto-read</bdi>: errors" in page.text

    # Put into service it has nothing left to challenge; its comparison has ended
    service.activate(cold)
    service.runtime.monitors.step()
    active = service.http.get("/v1/models/digits/challengers/cold").json()
    assert (active["scoring"], active["problem"], active["log_loss"]) == ("none", "It is active.", None)
    assert rows_of(service, compared_groups) == 0


def test_amounts_above_those_before_the_start_are_cut_and_counted(
    beside: Callable[..., InThread], digits: Digits, spawn: Any
) -> None:
    service = beside()
    costs = {"false_positive": "1 + 0.01 * amount", "false_negative": "amount"}
    bands = [{"action": "block", "when": {"cost": costs}}, {"action": "allow"}]
    policy = {"positive": "3", "bands": bands, "explore": {"share": 1.0, "actions": ["block", "allow"]}}
    put = service.http.put("/v1/models/digits/policies/cards", json=policy)
    assert put.status_code == 201, put.text
    service.activate(put.json()["id"])

    def pay(images: Any, amounts: list[float]) -> None:
        body = {"inputs": images.tolist(), "amounts": amounts}
        answer = service.http.post("/predict", json=body, params={"policy": "cards"})
        assert answer.status_code == 200, answer.text

    pay(digits.images[:20], [80.0] * 20)
    assert service.runtime.log.flush()
    with Client(service.url) as client:
        cold = service.http.put("/v1/models/digits/policies/other", json=policy).json()["id"]
        client.put_challenger("same", revision=cold)
        pay(digits.images[20:60], [50.0] * 37 + [81.0, 1e6, 1e9])
        found = compared(service, "same")
    (outcome,) = (one for one in found.policies if one.policy == "cards")
    assert (outcome.unit, outcome.amount_limit, outcome.amount_cut) == ("cost", 80.0, 3)
    shown = spawn.run("challenger", "compare", "same", url=service.url)
    assert "3 amounts count as 80.00" in " ".join(shown.stdout.split())
    assert "(3 amounts count as 80" in service.http.get("/dashboard/models/digits").text


def breaking(digits: Digits) -> Any:
    """The digits, with a table that is looked up at 100 where the first pixel is 200: it has fewer entries."""
    changed = onnx.load_from_string(digits.bundle.model_bytes)
    for node in changed.graph.node:
        node.output[:] = ["logits before" if name == "logits" else name for name in node.output]
    changed.graph.node.extend(
        [
            helper.make_node("Cast", ["input"], ["pixels"], to=TensorProto.INT64),
            helper.make_node("Flatten", ["pixels"], ["row"]),
            helper.make_node("Gather", ["row", "first"], ["corner"], axis=1),
            helper.make_node("Equal", ["corner", "two hundred"], ["poison"]),
            helper.make_node("Cast", ["poison"], ["one"], to=TensorProto.INT64),
            helper.make_node("Mul", ["one", "hundred"], ["place"]),
            helper.make_node("Gather", ["table", "place"], ["nothing"]),
            helper.make_node("Add", ["logits before", "nothing"], ["logits"]),
        ]
    )
    first = helper.make_tensor("first", TensorProto.INT64, [1], [0])
    numbers = [
        helper.make_tensor(name, TensorProto.INT64, [], [at]) for name, at in (("two hundred", 200), ("hundred", 100))
    ]
    table = helper.make_tensor("table", TensorProto.FLOAT, [3], [0.0] * 3)
    changed.graph.initializer.extend([first, table, *numbers])
    return contents(digits.bundle, model_bytes=changed.SerializeToString())


def test_a_challenger_that_fails_touches_no_answer(beside: Callable[..., InThread], digits: Digits) -> None:
    service = beside()
    version = add_bundle(service, breaking(digits))
    poison = digits.images[:20].copy()
    poison[:, 0, 0] = 200
    alone = service.predict(poison, policy="auto-read")
    assert service.runtime.log.flush()  # else these rows may be logged while there is a challenger
    with Client(service.url) as client:
        client.put_challenger("breaks", bundle=version, share=1.0)
    answers = service.predict(poison, policy="auto-read")
    assert [row["probabilities"] for row in answers] == [row["probabilities"] for row in alone]
    assert service.runtime.log.flush()
    assert service.runtime.beside.flush()
    assert counts(service, "breaks") == {"failed": 20}
    service.predict(digits.images[:20], policy="auto-read")
    assert compared(service, "breaks").scored == 20, "it goes on with rows that it can score"
    assert service.http.get("/readyz").status_code == 200


def test_a_challenger_that_falls_behind_loses_rows_and_delays_none(
    beside: Callable[..., InThread], digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(challengers, "CAPACITY_ROWS", 30)
    service = beside()
    version = add_bundle(service, doubled(digits))
    with Client(service.url) as client:
        client.put_challenger("double", bundle=version, share=1.0)
    assert len(service.predict(digits.images[:31])) == 31
    assert service.runtime.log.flush()
    assert service.runtime.beside.flush()
    assert counts(service, "double") == {"dropped": 31}


def test_a_challenger_whose_bundle_is_damaged_is_refused_or_has_a_problem(
    beside: Callable[..., InThread], digits: Digits
) -> None:
    service = beside()
    version = add_bundle(service, doubled(digits))
    file = service.runtime.settings.bundle_folder / "digits" / str(version) / "model.onnx"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with Client(service.url) as client:
        with pytest.raises(ApiError, match="cannot be used"):
            client.put_challenger("double", bundle=version)
        assert client.challengers().items == ()
        file.write_bytes(whole)
        client.put_challenger("double", bundle=version)
    service.close()
    file.write_bytes(whole[:-1])
    again = beside()
    again.runtime.models.follow()
    (found,) = again.http.get("/v1/models/digits/challengers").json()["items"]
    assert found["scoring"] == "none"
    assert "cannot be used" in found["problem"]
    assert len(again.predict(digits.images[:3])) == 3
    assert again.http.get("/readyz").status_code == 200


def claims(root: Path, columns: Columns, labels: tuple[str, ...] = ("honest", "fraud")) -> None:
    """A linear model of some columns."""
    size = len(columns)
    weights = np.random.default_rng(size).normal(size=(size, len(labels))).astype(np.float32)
    nodes = [
        helper.make_node("IsNaN", ["x"], ["gap"]),
        helper.make_node("Where", ["gap", "zero", "x"], ["whole"]),
        helper.make_node("MatMul", ["whole", "w"], ["scores"]),
    ]
    rng = np.random.default_rng(1)
    encoded = rng.integers(0, 3, (90, size)).astype(np.float32)
    write(
        root,
        "claims",
        encoded,
        InputSpec(kind="array", dtype="float32", shape=(size,)),
        labels=labels,
        model_bytes=model(
            nodes,
            [value("x", TensorProto.FLOAT, size)],
            [value("scores", TensorProto.FLOAT, len(labels))],
            w=weights,
            zero=np.array(0, np.float32),
        ),
        source="imported",
        graph=Graph(
            inputs=(GraphInput(name="x", dtype="float32", shape=(size,)),),
            output=GraphOutput(name="scores", form="logits"),
        ),
        columns=columns,
    )


def test_bundles_of_other_columns_run_beside_each_other(
    launch: Callable[..., InThread], tmp_path: Path, digits: Digits
) -> None:
    del digits
    root = tmp_path / "tables"
    age, fault = Column("age"), Column("fault", ("driver", "third party"))
    claims(root, Columns((age, fault)))
    service = launch(tmp_path, bundles=root, policies=None)
    try:
        more = Column("fault", ("driver", "third party", "weather"))
        for columns in ((Column("fault", ("third party", "driver")),), (fault, age, Column("income")), (more,)):
            claims(root, Columns(columns))
        assert service.http.post("/v1/models/claims/load").json()["refused"] == {}
        with Client(service.url, model="claims") as client:
            for name, version in (("fewer", 2), ("more", 3), ("unknown", 4)):
                client.put_challenger(name, bundle=version, share=1.0)
            rows = [
                {"age": 41.0, "fault": "driver"},
                {"age": None, "fault": "third party"},
                {"age": 20, "fault": "snow"},
            ]
            answer = service.http.post("/v1/models/claims/predict", json={"inputs": rows})
            assert answer.status_code == 200, answer.text
        assert service.runtime.log.flush()
        assert service.runtime.beside.flush()
        assert counts(service, "fewer", "claims") == {"scored": 3}
        assert counts(service, "more", "claims") == {"inputs": 3}, "nobody sent its income"
        assert counts(service, "unknown", "claims") == {"scored": 3}, "snow is no category of either"
        ids = [row["prediction_id"] for row in answer.json()["predictions"]]
        fewer = service.runtime.challengers.get("claims", "fewer")
        with service.runtime.database.connect() as connection:
            own = challenger_scores.c.challenger == fewer.number
            query = select(challenger_scores.c.id, challenger_scores.c.logits).where(own)
            stored = dict(map(tuple, connection.execute(query)))
        weights = np.random.default_rng(1).normal(size=(1, 2)).astype(np.float32)
        expected = np.float32([[2.0], [1.0], [0.0]]) @ weights
        found = np.stack([np.frombuffer(stored[id_], "<f4") for id_ in ids])
        assert found == pytest.approx(expected)
    finally:
        service.close()


def test_rows_carry_columns_that_only_challengers_know(
    launch: Callable[..., InThread], tmp_path: Path, digits: Digits, spawn: Any
) -> None:
    del digits
    root = tmp_path / "tables"
    age, fault = Column("age"), Column("fault", ("driver", "third party"))
    claims(root, Columns((age, fault)))
    service = launch(tmp_path, bundles=root, policies=None)
    path = "/v1/models/claims"

    def predict(*rows: dict[str, Any]) -> Any:
        answer = service.http.post(f"{path}/predict", json={"inputs": list(rows)})
        assert service.runtime.log.flush()
        assert service.runtime.beside.flush()
        return answer

    try:
        income = Column("income", on_missing="refuse")
        wider = Column("fault", ("driver", "third party", "snow"))
        claims(root, Columns((income, wider, age)))
        assert service.http.post(f"{path}/load").json()["refused"] == {}
        row = {"age": 41.0, "fault": "driver", "income": 3.5}
        refused = predict(row)
        assert (refused.status_code, refused.json()["found"]) == (422, "income"), "no challenger knows it"
        alone = predict({"age": 41.0, "fault": "driver"}).json()["predictions"][0]["probabilities"]
        added = spawn.run(
            "challenger", "add", "new", "--bundle", "2", "--share", "1", "--model", "claims", url=service.url
        )
        assert "Send its columns in the rows too: income" in added.stdout, added.stderr

        answer = predict(
            row, row | {"fault": "snow"}, row | {"income": None}, row | {"income": [1]}, row | {"age": None}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["predictions"][0]["probabilities"] == alone, "the answer is that of the active revision"
        del row["income"]
        assert predict(row).status_code == 200
        assert counts(service, "new", "claims") == {"scored": 3, "inputs": 3}, "null, a list, and nothing are no income"
        tensors = [
            {"name": name, "datatype": datatype, "shape": [2], "data": data}
            for name, datatype, data in (
                *(("age", "FP32", [41.0, 41.0]), ("fault", "BYTES", ["driver", "snow"])),
                ("income", "FP64", [3.5, None]),
            )
        ]
        infer = service.http.post("/v2/models/claims/infer", json={"inputs": tensors})
        assert infer.status_code == 200, infer.text
        tensors[2] |= {"shape": [1, 2]}  # two values of one row
        assert service.http.post("/v2/models/claims/infer", json={"inputs": tensors}).status_code == 200
        assert service.runtime.log.flush()
        assert service.runtime.beside.flush()
        assert counts(service, "new", "claims") == {"scored": 4, "inputs": 6}
        typo = predict(row | {"incone": 1})
        assert (typo.status_code, typo.json()["found"]) == (422, "incone")

        number = service.runtime.challengers.get("claims", "new").number
        with service.runtime.database.connect() as connection:
            query = select(challenger_scores.c.id, challenger_scores.c.logits)
            stored = dict(map(tuple, connection.execute(query.where(challenger_scores.c.challenger == number))))
        weights = np.random.default_rng(3).normal(size=(3, 2)).astype(np.float32)
        expected = np.float32([[3.5, 1, 41], [3.5, 3, 41], [3.5, 1, 0]]) @ weights
        ids = [one["prediction_id"] for one in answer.json()["predictions"]]
        found = np.stack([np.frombuffer(stored[ids[at]], "<f4") for at in (0, 1, 4)])
        assert found == pytest.approx(expected, rel=1e-5), "snow too, which the active revision does not know"

        # A replica that starts without the challenger's bundle accepts the same rows
        service.close()
        shutil.move(root / "claims" / "2", tmp_path / "gone")
        service = launch(tmp_path, bundles=root, policies=None)
        assert predict(row | {"income": 3.5}).status_code == 200
        assert service.http.delete(f"{path}/challengers/new").status_code == 200
        assert predict(row | {"income": 3.5}).status_code == 422
    finally:
        service.close()


def test_a_sample_of_the_groups_is_scored() -> None:
    groups = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100_000)
    tenth, half = (in_sample(groups, share, salt=CHALLENGERS) for share in (0.1, 0.5))
    assert tenth.mean() == pytest.approx(0.1, abs=0.005)
    assert not (tenth & ~half).any(), "a larger share has every group of a smaller one"
    logged = in_sample(groups, 0.5)
    assert logged[tenth].mean() == pytest.approx(0.5, abs=0.025), "independent of what is logged"
    assert (groups[tenth] < 0).mean() == pytest.approx(0.5, abs=0.025), "and of the roles in a recalibration"


def activate(service: InThread, revision: str) -> None:
    """Activate a revision of the claims, and let this process follow."""
    path = "/v1/models/claims/revisions"
    epoch = {"if-match": f'"{service.http.get(path).json()["epoch"]}"'}
    body = {"reason": "it is what the test is about", "accept_change": True}
    answer = service.http.post(f"{path}/{revision}/activate", json=body, headers=epoch)
    assert answer.status_code == 200, answer.text
    service.runtime.models.follow()


def test_a_challenger_with_other_labels_than_a_new_active_bundle_stops_no_monitor(
    launch: Callable[..., InThread], tmp_path: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    del digits
    root = tmp_path / "tables"
    columns = Columns((Column("age"), Column("fault", ("driver", "third party"))))
    claims(root, columns)
    service = launch(tmp_path, bundles=root, policies=None, monitor_maturity_s=MATURITY_S, monitor_interval_s=1e6)
    try:
        service.runtime.monitors.clock = later
        http, path = service.http, "/v1/models/claims"
        for labels in (("honest", "fraud"), ("honest", "fraud", "mistake"), ("fraud", "honest")):
            claims(root, columns, labels)
        assert http.post(f"{path}/load").json()["refused"] == {}
        by_bundle = {one["bundle"]: one["id"] for one in http.get(f"{path}/revisions").json()["items"]}
        with Client(service.url, model="claims") as client:
            client.put_challenger("other", bundle=2, share=1.0)
            opened = service.runtime.models._loader.opened
            with pytest.raises(ApiError, match="other labels"):
                client.put_challenger("third", bundle=3)
            assert service.runtime.models._loader.opened == opened, "a refused one leaves no session"
        for version in (3, 4):  # another K, and the same labels in another order
            activate(service, by_bundle[version])
            service.runtime.monitors.step()
            rows = [{"age": 1.0 + at, "fault": "driver"} for at in range(20)]
            assert http.post(f"{path}/predict", json={"inputs": rows}).status_code == 200
            assert service.runtime.log.flush()
            service.runtime.monitors.step()
            running = service.runtime.monitors.status("claims").monitors
            assert [(one.kind, one.cohorts) for one in running] == [("calibration", 1)]
            found = http.get(f"{path}/challengers/other").json()
            assert (found["scoring"], found["log_loss"]) == ("none", None)
            assert "other labels" in found["problem"]

        # It is not loaded again until something changes
        (refused,) = service.runtime.models.beside("claims")
        monkeypatch.setattr("service.serving.swap.LONGEST_RETRY_S", 0.0)
        service.runtime.models.follow()
        assert service.runtime.models.beside("claims") == (refused,)
        claims(root, columns)
        service.runtime.models.follow()
        assert service.runtime.models.beside("claims") != (refused,)
        activate(service, by_bundle[1])
        assert http.get(f"{path}/challengers/other").json()["problem"] is None
    finally:
        service.close()


def test_a_comparison_that_fails_says_so_and_stops_no_monitor(
    beside: Callable[..., InThread], digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside()
    other = propose_temperature(service.runtime.revisions, 2.0)
    with Client(service.url) as client:
        client.put_challenger("cold", revision=other)
        service.teach(digits.images[:100], digits.labels[:100])
        with monkeypatch.context() as patched:
            patched.setattr(service.runtime.monitors._revisions, "get", lambda *_: 1 / 0)
            failed = compared(service, "cold")
        assert (failed.scored, failed.scoring) == (0, "from the log")
        assert "ZeroDivisionError" in failed.problem
        status = service.runtime.monitors.status("digits").monitors
        assert {one.cohorts for one in status if one.kind != "challenger"} == {1}
        again = compared(service, "cold")
        assert (again.scored, again.problem) == (100, None), "it counts what it has missed"


def test_what_cannot_challenge_is_refused(beside: Callable[..., InThread], digits: Digits) -> None:
    service = beside()
    other = propose_temperature(service.runtime.revisions, 2.0)
    http, path = service.http, "/v1/models/digits/challengers"
    for body, status in (
        ({"revision": "r1"}, 409),  # it is active
        ({"revision": "r99"}, 404),
        ({"bundle": 99}, 404),
        ({}, 422),
        ({"revision": other, "bundle": 1}, 422),
        ({"revision": "7"}, 422),
        ({"revision": other, "share": 0}, 422),
        ({"revision": other, "share": 1.5}, 422),
        ({"revision": other, "shares": 0.5}, 422),
        ([], 422),
    ):
        answer = http.put(f"{path}/mine", json=body)
        assert answer.status_code == status, answer.text
        assert {"title", "status"} <= answer.json().keys()
    neither = http.put(f"{path}/mine", json={}).json()
    assert neither["detail"].endswith("or the version of its bundle (`bundle`).")
    assert neither["remedy"] == 'Send {"revision": "r8"} or {"bundle": 2}.'
    for name in ("%20", "a" * 65, ".hidden", "a%0A"):
        assert http.put(f"{path}/{name}", json={"revision": other}).status_code in (404, 422), name
    assert http.get(f"{path}/nobody").json()["type"] == "/errors/unknown-challenger"
    assert http.delete(f"{path}/nobody").status_code == 404
    assert http.put(f"{path}/mine", json={"revision": other}).status_code == 201
    assert http.put(f"{path}/mine", json={"revision": other}).status_code == 200
    assert http.put(f"{path}/mine", json={"revision": other, "share": 0.5}).status_code == 201
    for number in range(7):
        assert http.put(f"{path}/c{number}", json={"revision": other}).status_code == 201
    full = http.put(f"{path}/c7", json={"revision": other})
    assert (full.status_code, full.json()["expected"]) == (409, "at most 8")
    assert len(http.get(path).json()["items"]) == 8
    assert service.predict(digits.images[:2])


def test_a_service_that_logs_nothing_has_no_challengers(beside: Callable[..., InThread]) -> None:
    service = beside(log_mode="off")
    other = propose_temperature(service.runtime.revisions, 2.0)
    answer = service.http.put("/v1/models/digits/challengers/mine", json={"revision": other})
    assert (answer.status_code, answer.json()["found"]) == (409, "off")


def test_the_terminal_adds_lists_and_removes(service: InThread, spawn: Any) -> None:
    other = propose_temperature(service.runtime.revisions, 2.0)
    assert "candor challenger add" in spawn.run("challenger", "list", url=service.url).stdout  # none yet
    added = spawn.run("challenger", "add", "mine", "--revision", other, url=service.url)
    assert (added.returncode, added.stderr) == (0, "")
    assert "on logged scores" in added.stdout
    listed = spawn.run("challenger", "list", url=service.url)
    assert "from the log" in listed.stdout
    assert json.loads(spawn.run("challenger", "list", "--json", url=service.url).stdout)["items"][0]["name"] == "mine"
    assert spawn.run("challenger", "remove", "mine", url=service.url).returncode == 0
    assert spawn.run("challenger", "remove", "mine", url=service.url).returncode == 4
