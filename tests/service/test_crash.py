"""kill -9 at many moments: what was acknowledged is there after the restart."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.state import audit
from service.state.database import Database
from service.state.jobs import JobStore
from service.state.labelled import load_labelled_rows
from service.state.revisions import RevisionStore
from service.state.window import Window
from tests.children import children_of
from tests.waiting import PATIENCE_S, until

KILLS = 3


@pytest.fixture
def state(tmp_path: Path) -> Any:
    """Open the state that a killed service left behind."""
    opened = []

    def run() -> Database:
        opened.append(Database.open(f"sqlite:///{tmp_path}/state.db"))
        return opened[-1]

    yield run
    for database in opened:
        database.close()


def until_it_dies(work: Callable[[], None]) -> None:
    """Call `work` again and again; the killed service's connection errors end it."""
    try:
        while True:
            work()
    except httpx.TransportError:
        pass


def test_acknowledged_feedback_outlives_kill_9(spawn: Any, digits: Any, state: Any) -> None:
    acknowledged: list[str] = []
    for round_ in range(KILLS):
        service = spawn()
        enough = threading.Event()

        def send(service: Any = service, round_: int = round_, enough: threading.Event = enough) -> None:
            names = [f"{round_}/{len(acknowledged) + offset}" for offset in range(3)]
            items = [{"reference": name, "label": "1"} for name in names]
            answer = service.http.post("/feedback", json={"items": items})
            if answer.status_code == 200:
                acknowledged.extend(names)
            if len(acknowledged) >= (round_ + 1) * (20 + 7 * round_):
                enough.set()

        sender = threading.Thread(target=until_it_dies, args=(send,))
        sender.start()
        assert enough.wait(PATIENCE_S)
        service.kill()
        sender.join(PATIENCE_S)
    database = state()
    window = Window("digits", digits.bundle.model_digest)
    with database.connect() as connection:
        rows = load_labelled_rows(connection, window, label_names=digits.bundle.manifest.labels)
    assert len(acknowledged) == len(set(acknowledged))
    # A batch may be stored and its answer lost in the crash: one more batch each time, never one fewer, never half.
    assert len(acknowledged) <= rows.pending <= len(acknowledged) + 3 * KILLS
    assert rows.pending % 3 == 0


def test_an_answered_activation_outlives_kill_9(spawn: Any, digits: Any) -> None:
    active = "r1"
    for round_ in range(KILLS):
        service = spawn()
        assert service.revisions()["active"] == active
        proposal = service.propose_policy("default", (round_ + 1) / 10)
        active = service.activate(proposal)["active"]
        if round_ % 2:
            active = service.rollback()["active"]
        service.kill()
    service = spawn()
    assert service.revisions()["active"] == active
    answer = service.http.post("/predict", json={"inputs": digits.images[:1].tolist()}).json()
    assert answer["revision"] == active


def test_moves_that_were_cut_off_happened_whole_or_not_at_all(spawn: Any, state: Any) -> None:
    service = spawn()
    proposals = [service.propose_policy("default", share / 100) for share in range(1, 31)]
    answered: list[str] = []
    half_way = threading.Event()

    def move(left: list[str] = proposals) -> None:
        answered.append(service.activate(left[len(answered)])["active"])
        if len(answered) == 12:
            half_way.set()

    mover = threading.Thread(target=until_it_dies, args=(move,))
    mover.start()
    assert half_way.wait(PATIENCE_S)
    service.kill()
    mover.join(PATIENCE_S)
    again = spawn()
    listed = again.revisions()
    assert listed["active"] in (answered[-1], proposals[len(answered)])
    assert again.http.get("/readyz").json()["models"] == {"digits": listed["active"]}
    again.kill()
    database = state()
    moves = [e.subject for e in reversed(audit.read(database, "digits", limit=1000)) if e.action == "activate"]
    pointer = RevisionStore(database).pointer("digits")
    assert pointer is not None
    assert moves[1 : len(answered) + 1] == answered
    assert moves[-1] == pointer.active


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_refit_that_was_interrupted_runs_again_and_ends(
    spawn: Any, digits: Any, state: Any, how: signal.Signals
) -> None:
    service = spawn()
    service.teach(digits.dimmed[:900], digits.labels[:900])
    until(lambda: service.metric("candor_log_written_total") >= 900)
    # `auto` fits dozens of candidates, so that the signal comes long before the end.
    job = service.http.post("/recalibrate", json={"mode": "propose", "calibrator": "auto"})
    assert job.status_code == 202
    location = job.headers["location"]
    service.job(location, lambda job: job["state"] != "queued")
    if how is signal.SIGKILL:
        # Between fork and exec, the refit's process would hold the lock of the state a moment longer.
        service.job(location, lambda job: job["step"] > 0)
        service.kill()
    else:  # Ctrl-C reaches every process of the terminal, the refit's too
        os.killpg(service.popen.pid, how)
        service.popen.wait(PATIENCE_S)
    database = state()
    assert [unfinished.id for unfinished in JobStore(database).unfinished()] == [job.json()["job"]]
    database.close()
    again = spawn()
    found = again.job(location)
    assert found["state"] == "done", found
    assert found["result"]["revision"] == "r2"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux' /proc")
def test_a_refit_whose_process_alone_was_interrupted_runs_again(spawn: Any, digits: Any) -> None:
    service = spawn()
    service.teach(digits.dimmed[:900], digits.labels[:900])
    until(lambda: service.metric("candor_log_written_total") >= 900)
    location = service.http.post("/recalibrate", json={"mode": "propose", "calibrator": "auto"}).headers["location"]
    service.job(location, lambda job: job["step"] > 0)
    os.kill(children_of(service.popen.pid)[0], signal.SIGINT)
    found = service.job(location)
    assert found["state"] == "done", found
    assert found["result"]["revision"] == "r2"
