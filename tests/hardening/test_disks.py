"""Disks that are full, fail, or may only be read: predictions go on, nothing acknowledged is lost, and it says why."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import ConfigurationError
from tests.hardening.disks import Disk, ext4_disk, small_disk
from tests.waiting import until

LABELS_PER_REQUEST = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as opened:
        yield opened


class Labels:
    """A client that sends labels in batches, and knows which were acknowledged."""

    def __init__(self, service: Any) -> None:
        self.acknowledged: list[str] = []
        self._service = service
        self._sent = 0

    def send(self) -> Any:
        self._sent += 1
        names = [f"{self._sent}/{row}" for row in range(LABELS_PER_REQUEST)]
        answer = self._service.http.post(
            "/feedback", json={"items": [{"reference": name, "label": "1"} for name in names]}
        )
        if answer.status_code == 200:
            self.acknowledged += names
        return answer


def stored(state: Path) -> list[str]:
    """Return what labels name, from a database that is whole."""
    with closing(sqlite3.connect(f"file:{state}?immutable=1", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [target for (target,) in database.execute("SELECT target FROM feedback")]


def refused(answer: Any, cause: str | tuple[str, ...], remedy: str) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"] == "/errors/state-unavailable"
    causes = (cause,) if isinstance(cause, str) else cause  # SQLite says which of its files it touched first
    assert any(each in answer.json()["found"] for each in causes), answer.text
    assert remedy in answer.json()["remedy"]
    assert answer.headers["retry-after"]


def test_a_disk_that_fills_up_and_is_cleared_again(start: Any, digits: Any, disk: Disk) -> None:
    service = start(state=disk.path)
    service.teach(digits.dimmed[:200], digits.labels[:200])
    labels = Labels(service)
    assert labels.send().status_code == 200
    proposal = service.propose_policy()
    disk.fill()
    while (answer := labels.send()).status_code == 200:
        pass  # what the write-ahead log had room for
    refused(answer, "full", "Free disk space")
    refused(service.http.post("/recalibrate"), "full", "Free disk space")
    refused(
        service.move(f"revisions/{proposal}/activate", service.revisions()["epoch"], reason="new", accept_change=True),
        "full",
        "Free disk space",
    )
    assert service.revisions()["active"] == "r1"
    # Of an origin that the log has not met yet: what a failed commit would have numbered must not be remembered.
    during = [row["prediction_id"] for row in service.predict(digits.images)]
    assert service.http.get("/readyz").json()["models"] == {"digits": "r1"}
    until(lambda: service.http.get("/readyz").status_code == 503)
    until(lambda: service.metric("candor_log_depth") == len(during))
    disk.empty()
    until(lambda: service.http.get("/readyz").status_code == 200)
    assert labels.send().status_code == 200
    assert service.activate(proposal)["active"] == proposal
    until(lambda: service.metric("candor_log_depth") == 0)
    assert service.metric("candor_log_dropped_total") == 0
    items = [{"prediction_id": id_, "label": "1"} for id_ in during]
    assert service.http.post("/feedback", json={"items": items}).json()["pending"] == 0
    assert service.recalibrate().status_code == 200
    service.close()
    assert {*labels.acknowledged, *during} <= set(stored(disk.path / "state.db"))


def test_an_upload_whose_columns_do_not_fit_is_told_to_come_again(start: Any, disk: Disk) -> None:
    service = start(uploads=disk.path)
    rows = 100_000
    body = io.BytesIO()
    np.savez_compressed(body, label=np.full(rows, "7"), logits=np.zeros((rows, 10), np.float64))
    disk.fill(but=1 << 20)  # for the body, but not for 4 MB of logits
    answer = service.http.post(
        "/v1/models/digits/labelled-sets", content=body.getvalue(), headers={"content-type": "application/x-npz"}
    )
    assert (answer.status_code, answer.json()["type"]) == (503, "/errors/unavailable"), answer.text
    assert "Free disk space" in answer.json()["remedy"]
    assert service.http.get("/v1/models/digits/labelled-sets").json() == {"items": []}


def test_where_predictions_must_be_durable_they_wait_for_room_no_longer_than_their_deadline(
    start: Any, digits: Any, disk: Disk
) -> None:
    service = start(state=disk.path, log_mode="sync", deadline_s=0.3)
    body = {"inputs": digits.images[:200].tolist()}
    until(lambda: service.http.post("/predict", json=body).status_code == 200)  # on a busy machine not at once
    disk.fill()
    while (answer := service.http.post("/predict", json=body)).status_code == 200:
        pass
    assert answer.status_code == 503, answer.text
    disk.empty()
    until(lambda: service.http.post("/predict", json=body).status_code == 200)


def test_a_start_on_a_full_disk_says_what_to_do(start: Any, disk: Disk) -> None:
    url = f"sqlite:///{disk.path}/state.db"  # as a URL, no state is laid there beforehand
    disk.fill()
    with pytest.raises(ConfigurationError) as fresh:
        start(state=url)
    disk.empty()
    start(state=disk.path).close()
    disk.fill()
    with pytest.raises(ConfigurationError) as again:
        start(state=disk.path)
    assert "Free disk space" in str(fresh.value.remedy)
    assert "Free disk space" in str(again.value.remedy)
    disk.empty()
    assert start(state=disk.path).http.get("/readyz").status_code == 200


def test_a_start_on_a_disk_that_may_only_be_read_says_so(start: Any, disk: Disk) -> None:
    start(state=disk.path).close()
    disk.read_only()
    with pytest.raises(ConfigurationError, match="Read-only file system") as caught:
        start(state=disk.path)
    assert "for writing" in str(caught.value.remedy)
    disk.read_only(False)
    assert start(state=disk.path).http.get("/readyz").status_code == 200


def test_a_disk_that_turns_read_only_under_the_service(start: Any, digits: Any, tmp_path: Path) -> None:
    with ext4_disk(tmp_path / "disk", tmp_path / "image") as disk:
        url = f"sqlite:///{disk.path}/state.db"  # a state that is laid there beforehand is not on the disk for sure
        service = start(state=url)
        labels = Labels(service)
        for _ in range(5):
            assert labels.send().status_code == 200
        proposal = service.propose_policy()
        disk.fail()
        refused(labels.send(), ("I/O error", "readonly database"), "Check the disk")
        moved = service.move(f"revisions/{proposal}/activate", 1, reason="new")
        refused(moved, ("I/O error", "readonly database"), "Check the disk")
        assert len(service.predict(digits.images[:5])) == 5
        service.close()
        with pytest.raises(ConfigurationError, match="Read-only file system"):
            start(state=url)
        disk.mend()
        again = start(state=url)
        assert again.revisions()["active"] == "r1"
        again.close()
        assert sorted(stored(disk.path / "state.db")) == sorted(labels.acknowledged)
