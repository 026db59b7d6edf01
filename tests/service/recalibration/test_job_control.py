"""Jobs that are listed, cancelled, and kept after a dry run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from candor import Client, ConflictError, JobFailedError
from candor.contract.jobs import Job, JobPage, ProposedJob
from candor.contract.recalibration import Recalibration
from candor.contract.revisions import Revision
from service.decisions.unattended import Limits
from service.recalibration.execution import Execution, limits_of
from service.settings import Settings
from service.state import audit
from service.state.keys import KeyStore
from service.state.monitors import ALARM
from tests.waiting import PATIENCE_S, until

from ..conftest import BIN, refit_processes


def started(service: Any) -> str:
    location: str = service.http.post("/recalibrate").headers["location"]
    service.job(location, lambda job: job["step"] == 4)
    return location


def test_a_running_job_is_cancelled_and_its_looks_stay_spent(used: Any, slow: Any) -> None:
    slow()
    location = started(used)
    waiting = used.http.post("/recalibrate").headers["location"]
    attempts = used.metric("candor_recalibrations_total", outcome="cancelled")
    job = used.http.delete(location).json()
    assert (job["state"], job["looks"]) == ("cancelled", {"gate": 1, "certify": {"auto-read": 1}})
    assert job["summary"].endswith("those looks stay used.")
    Job.model_validate(job, extra="forbid")
    # A job that waits ends at once and has cost nothing; the one before has made way for nothing else.
    other = used.http.delete(waiting).json()
    assert (other["state"], other["looks"]) == ("cancelled", other["looks"])
    for path in (location, waiting):
        refused = used.http.delete(path)
        assert (refused.status_code, refused.json()["type"]) == (409, "/errors/job-state")
        assert used.http.get(path).json()["state"] == "cancelled"
    until(lambda: not refit_processes(), "the child lives on")
    assert used.metric("candor_recalibrations_total", outcome="cancelled") == attempts + 2
    listed = used.http.get("/v1/jobs", params={"state": "cancelled", "limit": 1, "model": "digits"}).json()
    assert [item["job"] for item in listed["items"]] == [waiting.rpartition("/")[2]]
    rest = used.http.get("/v1/jobs", params={"before": listed["next"], "limit": 1}).json()
    assert [item["job"] for item in rest["items"]] == [location.rpartition("/")[2]]
    JobPage.model_validate(rest, extra="forbid")
    assert used.http.get("/v1/jobs", params={"model": "nobody"}).json() == {"items": [], "next": None}
    assert used.http.delete("/v1/jobs/j9999").status_code == 404


def test_a_job_that_has_shown_nothing_costs_nothing(used: Any, slow: Any) -> None:
    slow(False)
    with Client(used.url) as client:
        job = client.start_recalibration()
        used.job(f"/v1/jobs/{job.job}", lambda found: found["step"] == 4)
        ended = client.cancel(job.job)
        assert (ended.state, ended.looks) == ("cancelled", None)
        assert ended.summary == "Cancelled before it looked at gate or certify rows: no look is used."
        with pytest.raises(JobFailedError, match="no look is used"):
            client.wait(job.job)
        with pytest.raises(ConflictError):
            client.cancel(job.job)
        assert client.jobs(limit=1).items[0].summary == ended.summary


def test_another_replica_stops_what_it_runs(
    launch: Callable[..., Any], digits: Any, postgresql_url: str, slow: Any
) -> None:
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    one, other = launch(state), launch(state)
    try:
        one.teach(digits.dimmed[:400], digits.labels[:400])
        slow()
        location = started(one)
        assert other.http.delete(location).json()["state"] == "cancelled"
        running = (one.runtime.jobs._running, other.runtime.jobs._running)
        until(lambda: not any(running) and not refit_processes(), "it runs on")
        assert one.http.get(location).json()["state"] == "cancelled"
    finally:
        one.close()
        other.close()


def test_ctrl_c_cancels(used: Any, slow: Any) -> None:
    slow()
    environment = {**os.environ, "CANDOR_URL": used.url}
    command = subprocess.Popen(
        ["env", "--default-signal=INT", BIN / "candor", "recalibrate"],  # shells ignore it in the background
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    newest = "/v1/jobs?limit=1&state=running"
    page = used.job(newest, lambda found: bool(found["items"]) and found["items"][0]["step"] == 4)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    assert "looks stay used" in said
    assert used.http.get(f"/v1/jobs/{page['items'][0]['job']}").json()["state"] == "cancelled"


def test_progress_counts_its_steps(used: Any) -> None:
    seen: list[Job] = []
    with Client(used.url) as client:
        job = client.start_recalibration()
        client.wait(job.job, progress=seen.append)
    steps = [found.step for found in seen]
    assert steps == sorted(steps)
    assert (seen[-1].steps, seen[-1].looks is not None) == (6, True)


@pytest.mark.usefixtures("refits_here")
def test_a_dry_run_becomes_a_proposal_without_another_look(used: Any) -> None:
    dry = used.recalibrate().json()
    Recalibration.model_validate(dry, extra="forbid")
    before = used.runtime.jobs._store.page(limit=1)[0].looks
    path = f"/v1/jobs/{dry['job']}/propose"
    kept = used.http.post(path)
    assert kept.status_code == 201
    found = kept.json()
    ProposedJob.model_validate(found, extra="forbid")
    assert used.http.post(path).json() == found  # once is enough
    revision = used.http.get(kept.headers["location"]).json()
    Revision.model_validate(revision, extra="forbid")
    assert revision["report"]["gate"] == dry["gate"]
    assert revision["calibrator"] == revision["report"]["calibrator"]["after"]
    assert revision["state"] == ("proposed" if dry["gate"]["passed"] else "refused")
    assert used.runtime.jobs._store.page(limit=1)[0].looks == before
    last = next(entry for entry in used.http.get("/v1/models/digits/audit").json()["items"])
    assert (last["action"], last["subject"]) == ("propose", revision["id"])


@pytest.mark.usefixtures("refits_here")
def test_what_is_no_dry_run_or_stands_on_old_ground_is_not_kept(used: Any) -> None:
    proposed = used.recalibrate(mode="propose").json()
    refused = used.http.post(f"/v1/jobs/{proposed['job']}/propose")
    assert (refused.status_code, refused.json()["found"]) == (409, "propose")
    dry = used.recalibrate().json()
    used.activate(used.propose_policy("other"))
    stale = used.http.post(f"/v1/jobs/{dry['job']}/propose")
    assert stale.status_code == 409
    assert stale.json()["expected"] == f"{dry['base']} at epoch {dry['epoch']}"
    used.rollback()


@pytest.mark.usefixtures("refits_here")
def test_a_replica_that_lags_proposes_on_what_is_in_service(
    start: Callable[..., Any], digits: Any, postgresql_url: str
) -> None:
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    elsewhere = state.rpartition("/")[0] + "/postgres"  # its notices do not reach the replica, as behind a pooler
    one = start(state=state)
    behind = start(state=state, poll_interval_s=1e6, database_direct_url=elsewhere)
    one.teach(digits.dimmed[:300], digits.labels[:300])
    one.activate(one.propose_policy("other"))
    dry = one.recalibrate(calibrator="temperature").json()
    assert behind.runtime.models.get("digits").served.revision.id == "r1"
    kept = behind.http.post(f"/v1/jobs/{dry['job']}/propose")
    assert kept.status_code == 201, kept.text
    found = one.http.get(f"/v1/models/digits/revisions/{kept.json()['revision']}").json()
    assert (found["parent"], dry["base"]) == ("r2", "r2")


@pytest.mark.usefixtures("refits_here")
def test_jobs_on_the_command_line(used: Any, spawn: Any) -> None:
    candor = partial(spawn.run, url=used.url)
    dry = used.recalibrate().json()
    assert dry["job"] in candor("jobs", "list").stdout
    assert f'"job": "{dry["job"]}"' in candor("jobs", "show", dry["job"]).stdout
    assert candor("jobs", "cancel", dry["job"]).returncode == 4
    kept = candor("jobs", "propose", dry["job"])
    assert "revision r" in kept.stdout
    revision = kept.stdout.split()[1].strip(":")
    assert "rejected" in candor("reject", revision, "--reason", "only looking").stdout
    audited = candor("audit", "--limit", "3").stdout
    assert "reject" in audited
    assert "only looking" in audited


def test_scopes(start: Callable[..., Any], digits: Any) -> None:
    service = start()
    store = KeyStore(service.runtime.database)
    _, text = store.create("reader", ["predict"])
    service.application._access.refresh()
    service.http.headers["authorization"] = f"Bearer {text}"
    for method, path in (
        ("DELETE", "/v1/jobs/j1"),
        ("POST", "/v1/jobs/j1/propose"),
        ("POST", "/v1/models/digits/revisions/r1/reject"),
        ("GET", "/v1/models/digits/audit"),
    ):
        assert service.http.request(method, path, json={"reason": "x"} if "reject" in path else None).status_code == 403
    assert service.http.get("/v1/jobs").status_code == 200


@pytest.mark.usefixtures("refits_here")
def test_an_alarm_while_a_recalibration_runs_leaves_it_to_a_person(
    start: Callable[..., Any], digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(limit_action_change=1.0)
    service.teach(digits.dimmed, digits.labels)
    keep = Execution._keep

    def alarmed(execution: Execution, *given: Any, **named: Any) -> Any:
        with service.runtime.database.begin() as connection:
            audit.append(connection, model="digits", by="monitor", action=ALARM, subject="calibration")
        return keep(execution, *given, **named)

    monkeypatch.setattr(Execution, "_keep", alarmed)
    done = service.recalibrate(mode="activate").json()
    assert (done["gate"]["unattended"], done["state"]) == (True, "proposed")
    assert "was made before the alarm" in done["summary"]
    path, epoch = f"revisions/{done['revision']}/activate", service.revisions()["epoch"]
    assert "before the alarm" in service.move(path, epoch).json()["detail"]


def test_caps_hold_unless_they_are_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_of(Settings()) == Limits() == Limits(flipped=0.1, flag_rate_ratio=3.0, probability_change=0.1)
    for name in ("FLIPPED", "FLAG_RATE_RATIO", "PROBABILITY_CHANGE"):
        monkeypatch.setenv(f"CANDOR_LIMIT_{name}", "none")
    assert limits_of(Settings()) == Limits(flipped=None, flag_rate_ratio=None, probability_change=None)


@pytest.mark.usefixtures("refits_here")
def test_a_cap_that_breaks_takes_a_person_with_a_reason(start: Callable[..., Any], digits: Any) -> None:
    service = start(limit_flipped=0.9)
    service.teach(digits.dimmed, digits.labels)
    loose = service.recalibrate(limits={"flipped": 0.95})
    assert (loose.status_code, loose.json()["where"]) == (422, "/limits/flipped")
    assert "CANDOR_LIMIT_FLIPPED" in loose.json()["expected"]
    done = service.recalibrate(mode="activate", limits={"probability_change": 0.0, "flag_rate_ratio": 50}).json()
    caps = {cap["name"]: cap for cap in done["gate"]["caps"] if cap["policy"] in (None, "auto-read")}
    assert (caps["flipped"]["at_most"], caps["flag_rate"]["at_most"]) == (0.9, None)
    assert (caps["probability_change"]["at_most"], caps["probability_change"]["holds"]) == (0.0, False)
    assert (done["gate"]["passed"], done["state"]) == (True, "proposed")
    assert "robabilities may change by up to" in done["gate"]["unattended_reason"]
    path, epoch = f"revisions/{done['revision']}/activate", service.revisions()["epoch"]
    refused = service.move(path, epoch)
    assert (refused.status_code, "breaks a cap" in refused.json()["detail"]) == (409, True)
    assert service.move(path, epoch, reason="the lamp was changed", accept_change=True).status_code == 200
