"""The monitors of a running service: what they find, what it does, and that nothing is counted twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update
from structlog.testing import capture_logs

from candor import Client
from service.monitoring.thread import Monitors
from service.state import audit
from service.state.database import now_us
from service.state.monitors import MonitorStore
from service.state.tables import monitors, predictions
from service.times import DAY_US, iso
from tests.waiting import WAIT, until

from ..conftest import Digits, InThread

pytestmark = pytest.mark.usefixtures("refits_here")
MATURITY_S = 3600.0
CAREFUL = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}],
    "explore": {"share": 1.0, "actions": ["accept"]},
    "on_invalid": "review_all",
}


@pytest.fixture
def watched(start: Callable[..., InThread]) -> Callable[..., InThread]:
    """Start services whose monitors count when a test says so, at once, as if a label's time had passed."""

    def run(**changes: Any) -> InThread:
        service = start(monitor_maturity_s=MATURITY_S, monitor_interval_s=1e6, **changes)
        service.runtime.monitors.clock = later
        return service

    return run


def later() -> int:
    return now_us() + int(MATURITY_S * 1e6)


def wrong(labels: list[str], share: float) -> list[str]:
    """Return labels of which a share names another digit."""
    drawn = np.random.default_rng(5).random(len(labels)) < share
    return [str((int(label) + 1) % 10) if other else label for label, other in zip(labels, drawn, strict=True)]


def monitoring(service: InThread) -> dict[str, Any]:
    response = service.http.get("/v1/models/digits/monitoring")
    assert response.status_code == 200, response.text
    return response.json()


def certificate(service: InThread) -> dict[str, Any]:
    """Return what an answer says of the certificate of accept."""
    body = {"inputs": np.zeros((1, 8, 8, 1), np.uint8).tolist()}
    answer = service.http.post("/predict?policy=auto-read", json=body).json()
    return answer["policy"]["certified"]["accept"]


def put_careful(service: InThread, **changes: Any) -> None:
    response = service.http.put("/v1/models/digits/policies/auto-read", json=CAREFUL | changes)
    assert response.status_code == 201, response.text
    service.activate(response.json()["id"])


def decisions_v2(service: InThread, digits: Digits) -> set[str]:
    tensor = {"name": "input", "shape": [50, 8, 8, 1], "datatype": "UINT8", "data": digits.images[:50].tolist()}
    wanted = {"inputs": [tensor], "parameters": {"policy": "auto-read"}, "outputs": [{"name": "decision"}]}
    response = service.http.post("/v2/models/digits/infer", json=wanted)
    assert response.status_code == 200, response.text
    return set(response.json()["outputs"][0]["data"])


def test_a_promise_that_breaks_is_taken_out_of_the_answers_until_it_is_solved_anew(
    watched: Callable[..., InThread], digits: Digits
) -> None:
    service = watched()
    bands = [{"action": "accept", "when": {"min_precision": 0.85}}, {"action": "review"}]
    put_careful(service, bands=bands, certify={"per": "group"})  # images are sent twice below
    service.teach(digits.images[:500], digits.labels[:500])
    assert service.runtime.monitors.step() is False
    quiet = monitoring(service)
    (found,) = [one for one in quiet["certificates"] if one["name"] == "auto-read/accept"]
    assert found["valid"] is True
    assert found["monitor"]["rows"] > 300
    assert found["monitor"]["fired_at"] is None
    assert found["monitor"]["evidence"] < 0
    assert quiet["alarm"]["fired"] is False
    assert quiet["no_drift"] == "The model takes no table columns."
    assert certificate(service)["valid"] is True
    assert "accept" in decisions_v2(service, digits)

    service.teach(digits.images[500:900], wrong(digits.labels[500:900], 0.4))
    service.runtime.monitors.step()
    until(lambda: certificate(service)["valid"] is False)
    assert certificate(service)["reason"] == "alarm"
    assert decisions_v2(service, digits) == {"review"}
    assert {row["decision"]["action"] for row in service.predict(digits.images[:50], policy="auto-read")} == {"review"}
    assert service.revisions()["active"] == "r2", "an alarm makes no revision"
    shown = service.http.get("/v1/models/digits/policies/auto-read").json()
    assert shown["review_all"] is True
    (found,) = [one for one in monitoring(service)["certificates"] if one["name"] == "auto-read/accept"]
    assert (found["valid"], found["reason"]) == (False, "alarm")
    assert found["monitor"]["fired_at"] is not None
    assert found["monitor"]["peak"] >= found["monitor"]["fires_at"]
    labels = {"model": "digits", "policy": "auto-read", "action": "accept"}
    assert service.metric("candor_certificate_valid", **labels) == 0
    alarms = [entry for entry in audit.read(service.runtime.database, "digits") if entry.action == "alarm"]
    assert "auto-read/accept" in {entry.subject for entry in alarms}

    # A revision that solves the policy on labels from after the burst heals it. A window from midnight costs little.
    assert service.runtime.log.flush()
    with service.runtime.database.begin() as connection:
        connection.execute(update(predictions).values(created_at=predictions.c.created_at - 2 * DAY_US))
    midnight = iso(now_us() // DAY_US * DAY_US)
    for _ in range(2):
        service.teach(digits.images[:900], digits.labels[:900])
    source = {"feedback": {"since": midnight}}
    healed = service.recalibrate(mode="propose", calibrator="unchanged", source=source)
    assert healed.json()["policies"]["auto-read"]["certified"]["accept"]["valid"] is True
    service.activate(healed.json()["revision"])
    assert certificate(service)["valid"] is True
    assert "accept" in decisions_v2(service, digits)
    service.runtime.monitors.step()
    (found,) = [one for one in monitoring(service)["certificates"] if one["name"] == "auto-read/accept"]
    assert found["propensity"]["fired_at"] is None, "a certificate on traffic has its propensities audited"
    service.rollback()
    assert certificate(service)["reason"] == "alarm", "what is void stays so, wherever it comes back"


def test_reference_rows_do_not_heal_what_the_traffic_has_broken(
    watched: Callable[..., InThread], digits: Digits
) -> None:
    service = watched()
    put_careful(service)
    service.teach(digits.images[:66], wrong(digits.labels[:66], 0.6))  # too few to certify anything themselves
    service.runtime.monitors.step()
    until(lambda: certificate(service)["valid"] is False)
    for _ in range(2):  # nor the second time, when a revision says so that is in service
        refitted = service.recalibrate(mode="propose", calibrator="unchanged").json()
        found = refitted["policies"]["auto-read"]["certified"]["accept"]
        assert (found["valid"], found["basis"]) == (False, "reference")
        assert found["reason"].startswith("alarm: the traffic broke this promise")
        service.activate(refitted["revision"])
        assert decisions_v2(service, digits) == {"review"}


def break_promise(service: InThread, digits: Digits) -> None:
    """Let labels contradict what is accepted, and the monitors count them."""
    service.teach(digits.images[:300], wrong(digits.labels[:300], 0.5))
    service.runtime.monitors.step()


def test_what_was_proposed_before_an_alarm_takes_a_reason(watched: Callable[..., InThread], digits: Digits) -> None:
    service = watched()
    put_careful(service)
    before = service.propose_policy("before")
    service.teach(digits.images[600:750], digits.labels[600:750])
    job = service.http.post("/recalibrate", json={}, headers=WAIT).json()["job"]
    break_promise(service, digits)
    until(lambda: certificate(service)["valid"] is False)
    after = service.propose_policy("after")
    epoch = service.revisions()["epoch"]
    kept = service.http.post(f"/v1/jobs/{job}/propose")
    assert kept.status_code == 201, kept.text
    for early in (before, kept.json()["revision"]):
        refused = service.move(f"revisions/{early}/activate", epoch)
        assert (refused.status_code, refused.json()["where"]) == (409, "/reason")
    assert "was made before the alarm of" in service.move(f"revisions/{before}/activate", epoch).json()["detail"]
    answer = service.move(f"revisions/{after}/activate", epoch)
    assert answer.status_code == 200, answer.text
    assert service.activate(before, reason="it is about something else")["active"] == before


def test_an_alarm_reaches_every_replica_and_outlives_them(
    watched: Callable[..., InThread], digits: Digits, postgresql_url: str
) -> None:
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    one = watched(state=state)
    put_careful(one, on_invalid="keep")
    other = watched(state=state)
    break_promise(one, digits)
    for service in (one, other):
        until(lambda service=service: certificate(service)["valid"] is False)
        assert certificate(service)["reason"] == "alarm"
        # This policy keeps the threshold of a certificate that is lost.
        assert "accept" in decisions_v2(service, digits)
    before = monitoring(other)
    other.runtime.monitors.step()
    after = monitoring(other)
    assert after["certificates"] == before["certificates"], "what one replica has counted, another does not count again"
    assert other.metric("candor_monitor_evidence", monitor="calibration") == after["alarm"]["monitor"]["evidence"]
    assert (
        watched(state=state).runtime.models.get("digits").served.policies["auto-read"].certified["accept"]["reason"]
        == "alarm"
    )


def test_a_promise_that_is_withdrawn_and_made_again_is_not_healed_by_reference_rows(
    watched: Callable[..., InThread], digits: Digits
) -> None:
    service = watched()
    put_careful(service)
    break_promise(service, digits)
    until(lambda: certificate(service)["valid"] is False)
    put_careful(service, bands=[{"action": "accept", "when": {"min_probability": 0.8}}, {"action": "review"}])
    put_careful(service, bands=[{"action": "accept", "when": {"min_precision": 0.89}}, {"action": "review"}])
    made_again = certificate(service)
    since = {"feedback": {"since": iso(now_us())}}
    service.teach(digits.images[300:366], digits.labels[300:366])  # too few to certify anything themselves
    recalibrated = service.recalibrate(calibrator="unchanged", source=since).json()["policies"]["auto-read"]
    for found in (made_again, recalibrated["certified"]["accept"]):
        assert (found["valid"], found["basis"]) == (False, "reference")
        assert found["reason"].startswith("alarm: the traffic broke this promise")


@pytest.mark.parametrize("name", ["auto-read", "as-good"])
def test_no_other_policy_gets_from_reference_rows_what_the_traffic_has_broken(
    watched: Callable[..., InThread], digits: Digits, name: str
) -> None:
    service = watched()
    put_careful(service)
    break_promise(service, digits)
    until(lambda: certificate(service)["valid"] is False)
    edited = CAREFUL | {"bands": [{"action": "accept", "when": {"min_precision": 0.89}}, {"action": "review"}]}
    put = service.http.put(f"/v1/models/digits/policies/{name}", json=edited)
    assert put.status_code == 201, put.text
    found = service.http.get(f"/v1/models/digits/revisions/{put.json()['id']}").json()["policies"][name]
    assert found["bands"][0]["certificate"]["valid"] is False
    assert found["bands"][0]["certificate"]["reason"].startswith("alarm: the traffic broke this promise")


def test_a_stop_between_two_cohorts_changes_nothing(
    watched: Callable[..., InThread], digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = watched()
    put_careful(service)
    store = MonitorStore(service.runtime.database)
    service.teach(digits.images[:200], digits.labels[:200])
    service.runtime.monitors.step()
    first = store.of("digits")
    service.teach(digits.images[200:400], wrong(digits.labels[200:400], 0.5))
    with monkeypatch.context() as patch:  # as a power cut before the commit would
        patch.setattr(audit, "append", crash)
        service.runtime.monitors.step()
    assert store.of("digits") == first
    again = Monitors(service.runtime.settings, service.runtime.database, service.runtime.models, clock=later)
    again.step()
    counted = {one.name: one for one in store.of("digits")}
    assert counted["auto-read/accept"].fired_at is not None
    assert counted["calibration"].document["rows"] == 400
    assert [one.cohorts for one in counted.values()] == [2] * len(counted)
    assert again.step() is False
    again.clock = lambda: now_us() - DAY_US  # the clock is set back to the right time
    with capture_logs() as logs:
        assert [again.step(), again.step()] == [False, False]
    told = [(one["event"], one["until"]) for one in logs if "until" in one]
    assert told == [("monitors wait, a clock was ahead", iso(max(one.through for one in store.of("digits"))))]
    assert {one.name: one.document["rows"] for one in store.of("digits")} == {
        name: one.document["rows"] for name, one in counted.items()
    }


def crash(*_: Any, **__: Any) -> None:
    raise RuntimeError("the light went out")


def test_monitors_go_on_where_an_activation_changes_nothing_for_them(
    watched: Callable[..., InThread], digits: Digits
) -> None:
    service = watched()
    put_careful(service)
    service.teach(digits.images[:200], digits.labels[:200])
    service.runtime.monitors.step()
    first = {one.name: one for one in MonitorStore(service.runtime.database).of("digits")}
    places = {name: one.place for name, one in first.items()}
    assert places == {"calibration": 1, "calibration/0": 1, "auto-read/accept": 1}  # flag-zero is about 0
    assert first["auto-read/accept"].document["level"] == pytest.approx(0.05 / 2)

    service.activate(service.propose_policy("other"))
    service.runtime.monitors.step()
    assert {one.name: one.id for one in MonitorStore(service.runtime.database).of("digits")} == {
        name: one.id for name, one in first.items()
    }

    put_careful(service, bands=[{"action": "accept", "when": {"min_precision": 0.85}}, {"action": "review"}])
    service.runtime.monitors.step()
    second = {one.name: one for one in MonitorStore(service.runtime.database).of("digits")}
    assert second["calibration"].id == first["calibration"].id
    assert (second["auto-read/accept"].place, second["auto-read/accept"].document["rows"]) == (2, 0)

    service.rollback()
    service.runtime.monitors.step()
    third = {one.name: one for one in MonitorStore(service.runtime.database).of("digits")}
    assert third["auto-read/accept"].place == 3, "what comes back begins again, with its own share of alpha"
    assert third["auto-read/accept"].since > second["auto-read/accept"].since
    assert third["auto-read/accept"].document["level"] == pytest.approx(0.05 / 12)


def test_a_calibration_that_is_off_asks_for_one_refit(watched: Callable[..., InThread], digits: Digits) -> None:
    service = watched(alarm_refit="propose")
    for _ in range(2):
        service.teach(digits.dimmed[:900], digits.labels[:900])
        service.runtime.monitors.step()
    alarm = monitoring(service)["alarm"]
    assert alarm["fired"] is True
    assert service.metric("candor_calibration_alarm", model="digits") == 1
    until(lambda: service.http.get(f"/v1/jobs/{alarm['job']}").json()["state"] == "done")
    result = service.http.get(f"/v1/jobs/{alarm['job']}").json()["result"]
    assert result["mode"] == "propose"
    assert result["state"] in {"proposed", "refused"}  # as the gate finds, on what was labelled when it began
    entries = audit.read(service.runtime.database, "digits", limit=1000)
    assert [(entry.by, entry.subject) for entry in entries if entry.action == "recalibrate"] == [
        ("monitor", alarm["job"])
    ]
    assert [entry.subject for entry in entries if entry.action == "alarm"].count("calibration") == 1
    assert service.revisions()["active"] == "r1", "an alarm proposes, people decide"

    service.activate(result["revision"])
    service.runtime.monitors.step()
    renewed = monitoring(service)["alarm"]
    assert (renewed["fired"], renewed["job"], renewed["monitor"]["place"]) == (False, None, 2)


def test_a_class_is_watched_for_itself_and_in_each_segment(
    watched: Callable[..., InThread], digits: Digits, spawn: Any
) -> None:
    """In the south, half of the nines are labelled 4: P(9) is off there, and confidences are off by little."""
    service = watched(alarm_refit="propose")
    segments = {"values": ["north", "south"]}
    put = service.http.put("/v1/models/digits/policies/auto-read", json=CAREFUL | {"segments": segments})
    service.activate(put.json()["id"])
    nine = {"positive": "9", "bands": [{"action": "flag", "when": {"min_probability": 0.5}}, {"action": "allow"}]}
    put = service.http.put("/v1/models/digits/policies/nines", json=nine | {"segments": segments})
    service.activate(put.json()["id"])
    truth = np.array(digits.labels[:900])
    few = (truth == "9") & (np.arange(900) % 2 == 0)
    teach(service, digits.images[:900], np.where(few, "4", truth).tolist(), "south")
    teach(service, digits.images[900:1500], digits.labels[900:1500], "north")
    assert all(one["monitor"] is None for one in monitoring(service)["calibration"])
    service.runtime.monitors.step()

    found = monitoring(service)
    watches = {one["name"]: one for one in found["calibration"]}
    assert [*watches] == [
        *("calibration/0", "calibration/9"),
        *("calibration/top/north", "calibration/top/south", "calibration/9/north", "calibration/9/south"),
    ]
    assert [(one["label"], one["segment"]) for one in watches.values()][-1] == ("9", "south")
    evidence = {name: one["monitor"]["evidence"] for name, one in watches.items()}
    assert evidence["calibration/9/south"] > max(evidence["calibration/9/north"], evidence["calibration/0"])
    assert watches["calibration/9/south"]["monitor"]["rows"] < watches["calibration/9"]["monitor"]["rows"]
    fired = {name for name, one in watches.items() if one["fired"]}
    assert fired == {"calibration/9", "calibration/9/south"}
    assert not found["alarm"]["fired"]
    assert service.metric("candor_calibration_alarm", model="digits") == 0
    assert service.metric("candor_class_calibration_alarm", monitor="calibration/9/south") == 1
    assert watches["calibration/9/south"]["job"] is None
    job = watches["calibration/9"]["job"]
    until(lambda: service.http.get(f"/v1/jobs/{job}").json()["state"] == "done")
    shown = spawn.run("monitor", url=service.url)
    assert [line.split()[:4] for line in shown.stdout.splitlines() if line.startswith("calibration/9/south")] == [
        ["calibration/9/south", "within", "0.02", "alarm"]
    ]
    assert f"recalibration {job} has started" in shown.stdout
    assert "The calibration is off in segments: calibration/9/south" in shown.stdout


def test_alarms_of_one_drift_ask_for_one_recalibration(watched: Callable[..., InThread], digits: Digits) -> None:
    """Whether they go off in one cohort or in several; the names of parts do not collide."""
    service = watched(alarm_refit="propose")
    for name, positive, values in (("a", "0", ["1/south"]), ("b", "9", ["south"]), ("c", "9", ["south", "x"])):
        bands = [{"action": "flag", "when": {"min_probability": 0.5}}, {"action": "allow"}]
        document = {"positive": positive, "bands": bands, "segments": {"values": values}}
        put = service.http.put(f"/v1/models/digits/policies/{name}", json=document)
        service.activate(put.json()["id"])
    for start in range(0, 900, 100):
        service.teach(digits.dimmed[start : start + 100], digits.labels[start : start + 100])
        service.runtime.monitors.step()
    found = monitoring(service)
    fired = [one for one in (found["alarm"], *found["calibration"]) if one["fired"]]
    assert len(fired) > 1
    assert sum(one["job"] is not None for one in fired) == 1
    (job,) = (one["job"] for one in fired if one["job"] is not None)
    listed = service.http.get("/v1/jobs", params={"model": "digits"}).json()
    assert [one["job"] for one in listed["items"]] == [job]
    service.job(f"/v1/jobs/{job}")
    names = [one["name"] for one in found["calibration"]]
    assert len(set(names)) == len(names) == 5
    assert "calibration/0/1%2Fsouth" in names


def test_rows_with_wrong_propensities_are_left_out_of_later_recalibrations(
    watched: Callable[..., InThread], digits: Digits
) -> None:
    service = watched()
    put_careful(service)
    service.teach(digits.images[:600], digits.labels[:600])
    service.activate(service.recalibrate(mode="propose", calibrator="unchanged").json()["revision"])
    service.teach(digits.images[600:700], digits.labels[600:700])
    service.runtime.monitors.step()
    audits = monitors.c.kind == "propensity"
    with service.runtime.database.begin() as connection:  # as if its evidence had sufficed
        assert connection.execute(update(monitors).where(audits).values(fired_at=monitors.c.since)).rowcount
        through = connection.scalar(select(monitors.c.through).where(audits))
    refused = service.recalibrate(mode="dry_run").json()
    assert refused["found"] == f"0 labelled predictions of the active model since {iso(through)}"
    chosen = service.recalibrate(mode="dry_run", source={"feedback": {"since": iso(0)}}).json()["rows"]
    assert (chosen["left_out_before"], chosen["fit"] + chosen["certify"] + chosen["gate"]) == (None, 700)
    service.teach(digits.images[700:1000], digits.labels[700:1000])
    found = service.recalibrate(mode="dry_run").json()["rows"]
    assert (found["left_out_before"], found["fit"] + found["certify"] + found["gate"]) == (iso(through), 300)


def test_estimates_tell_what_labels_say(watched: Callable[..., InThread], digits: Digits) -> None:
    service = watched()
    assert monitoring(service)["estimates"] is None
    service.teach(digits.images[:400], digits.labels[:400])
    service.predict(digits.images[400:500])  # without a policy: no label is sought
    assert service.runtime.log.flush()
    service.runtime.monitors.step()
    found = monitoring(service)["estimates"]["labelled"]
    assert (found["rows"], found["sought"], found["labelled"]) == (500, 400, 400)
    assert found["seekable_share"] == pytest.approx(0.8)
    rates = {label: digits.labels[:400].count(label) / 400 for label in set(digits.labels)}
    assert {label: rate["value"] for label, rate in found["base_rate"].items()} == pytest.approx(rates)
    low, high = found["accuracy"]["interval"]
    assert 0.8 < low < found["accuracy"]["value"] < high <= 1
    assert 0 < found["delay_s"]["median"] < 60
    (reviewers,) = monitoring(service)["estimates"]["delays"]
    assert (reviewers["source"], reviewers["labels"]) == ("reviewer", 400)
    assert 0 < reviewers["median_s"] <= reviewers["q95_s"] <= reviewers["curve"][-1][0]
    assert service.metric("candor_labelled_accuracy") == found["accuracy"]["value"]
    assert service.metric("candor_mean_confidence") == found["mean_confidence"]["value"]
    assert service.metric("candor_base_rate", label="7") == found["base_rate"]["7"]["value"]
    # The clock is an hour ahead, so that nothing is recent.
    assert monitoring(service)["estimates"]["recent"]["estimated_accuracy"] is not None
    assert service.metric("candor_estimated_accuracy") > 0.8


def test_segments_are_watched_each_for_itself(watched: Callable[..., InThread], digits: Digits) -> None:
    service = watched()
    document = CAREFUL | {"segments": {"values": ["north", "south"]}}
    put = service.http.put("/v1/models/digits/policies/auto-read", json=document)
    service.activate(put.json()["id"])
    for segment in ("north", "south"):
        teach(service, digits.images[:900], digits.labels[:900], segment)
    solved = service.recalibrate(mode="propose", calibrator="unchanged").json()
    service.activate(solved["revision"])
    teach(service, digits.images[:300], wrong(digits.labels[:300], 0.5), "south")
    teach(service, digits.images[:300], digits.labels[:300], "north")
    service.runtime.monitors.step()
    until(lambda: any(not one["valid"] for one in monitoring(service)["certificates"]))
    found = {one["segment"]: one["valid"] for one in monitoring(service)["certificates"] if one["segment"]}
    assert found == {"north": True, "south": False}
    actions = {
        segment: {
            row["decision"]["action"]
            for row in service.predict(digits.images[:50], segment=segment, policy="auto-read")
        }
        for segment in ("north", "south")
    }
    assert actions["south"] == {"review"}
    assert "accept" in actions["north"]


def teach(service: InThread, images: Any, labels: list[str], segment: str) -> None:
    rows = service.predict(images, policy="auto-read", segment=segment)
    items = [{"prediction_id": row["prediction_id"], "label": label} for row, label in zip(rows, labels, strict=True)]
    assert service.http.post("/feedback", json={"items": items}).status_code == 200
    assert service.runtime.log.flush()


def test_the_terminal_and_the_client_show_the_same(
    watched: Callable[..., InThread], digits: Digits, spawn: Any
) -> None:
    service = watched()
    put_careful(service)
    with Client(service.url) as client:
        assert client.monitoring().estimates is None
        break_promise(service, digits)
        until(lambda: any(one.reason == "alarm" for one in client.monitoring().certificates))
        found = client.monitoring()
    assert found.document == monitoring(service)
    assert next(one for one in found.certificates if one.reason == "alarm").monitor is not None
    assert found.estimates is not None
    assert found.estimates.labelled.accuracy is not None
    shown = spawn.run("monitor", url=service.url)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert any(line.endswith(": alarm") for line in shown.stdout.splitlines())
    assert f"{found.estimates.labelled.labelled} of {found.estimates.labelled.sought} sought" in shown.stdout
    assert json.loads(spawn.run("monitor", "--json", url=service.url).stdout) == found.document
