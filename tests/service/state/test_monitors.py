"""Monitors in the state: begun once, counted once, ended, and never forgotten where they voided something."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from service.monitoring.calibration import CalibrationMonitor
from service.state import audit
from service.state.cohorts import cohort_end
from service.state.database import Database
from service.state.jobs import JobStore
from service.state.monitors import Counted, MonitorStore, StoredEstimates, StoredMonitor, Watched
from service.state.revisions import RevisionStore
from service.state.window import Window

from .conftest import DIGEST, prediction_id
from .test_revisions import propose

DOCUMENT = CalibrationMonitor(floor=1.0, level=0.5, since=0).to_dict()
CALIBRATION = Watched("calibration", "calibration", "c")
PROMISE = Watched("certificate", "auto/accept", "p", "key-1")


@pytest.fixture
def store(database: Database) -> MonitorStore:
    """With r1 in service at epoch 1."""
    revisions = RevisionStore(database)
    propose(revisions)
    revisions.activate("pets", "r1", expected_epoch=None, by="start")
    return MonitorStore(database)


def follow(store: MonitorStore, *watched: Watched, epoch: int = 1) -> list[StoredMonitor]:
    running = store.follow("pets", epoch, "r1", [(one, DOCUMENT) for one in watched], 0.05)
    assert running is not None
    return running


def counted(before: StoredMonitor, **changes: Any) -> Counted:
    through = before.through + 10
    document = before.document | {"through": through, "rows": before.document["rows"] + 1}
    fields = {"document": document, "evidence": 0.5, "through": through, "rows": True, "fired_at": None}
    return Counted(before, **(fields | changes))


def test_each_monitor_begins_once_and_takes_its_share_of_alpha(store: MonitorStore, database: Database) -> None:
    first = follow(store, CALIBRATION, PROMISE)
    assert follow(store, CALIBRATION, PROMISE) == first
    assert [(one.kind, one.place, one.document["level"]) for one in first] == [
        ("calibration", 1, 0.025),
        ("certificate", 1, 0.025),
    ]
    with database.connect() as connection:
        at = connection.exec_driver_sql("SELECT at FROM activations").scalar_one()
    assert {one.since for one in first} == {one.through for one in first} == {at}
    (left,) = follow(store, CALIBRATION)
    assert left == first[0]
    again = follow(store, CALIBRATION, PROMISE)
    assert [(one.name, one.place) for one in again] == [("calibration", 1), ("auto/accept", 2)]
    assert again[1].document["level"] == pytest.approx(0.05 / 6)


def test_a_pointer_that_has_moved_on_begins_nothing(store: MonitorStore) -> None:
    assert store.follow("pets", 7, "r1", [(CALIBRATION, DOCUMENT)], 0.05) is None
    assert store.of("pets") == []


def test_replicas_that_begin_together_begin_one_monitor_each(store: MonitorStore, other: Database) -> None:
    stores = [store, MonitorStore(other)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda which: follow(stores[which % 2], CALIBRATION, PROMISE), range(6)))
    assert all(one == found[0] for one in found)


def test_a_cohort_is_counted_once_and_all_monitors_of_it_or_none(store: MonitorStore) -> None:
    calibration, promise = follow(store, CALIBRATION, PROMISE)
    assert store.count("pets", [counted(calibration), counted(promise)]) is True
    once = store.of("pets")
    assert [one.cohorts for one in once] == [1, 1]
    assert [one.through for one in once] == [calibration.through + 10] * 2
    assert store.count("pets", [counted(once[1]), counted(calibration)]) is False, "counted from where it was before"
    assert store.of("pets") == once
    follow(store, CALIBRATION)
    assert store.count("pets", [counted(once[1])]) is False, "ended"


def test_an_alarm_voids_its_certificate_for_good_and_is_in_the_audit_log(
    store: MonitorStore, database: Database
) -> None:
    (promise,) = follow(store, PROMISE)
    assert store.voided() == {}
    document = promise.document | {"peak": 4.0}
    assert store.count("pets", [counted(promise, fired_at=promise.since + 3, document=document)])
    assert store.voided() == {"pets": {"key-1": "alarm"}}
    follow(store)
    assert store.voided() == {"pets": {"key-1": "alarm"}}
    (kept,) = store.of("pets")
    assert (kept.fired_at, kept.ended_at is None) == (promise.since + 3, False)
    (entry,) = [entry for entry in audit.read(database, "pets") if entry.action == "alarm"]
    assert (entry.by, entry.subject) == ("monitor", "auto/accept")
    assert entry.detail["evidence"] == 4.0
    other = replace(PROMISE, kind="propensity", subject="audited", certificate="key-2")
    (audited,) = follow(store, other)
    assert store.count("pets", [counted(audited, fired_at=audited.since, document=audited.document | {"peak": 4.0})])
    assert store.voided() == {"pets": {"key-1": "alarm", "key-2": "propensity"}}


def test_an_alarm_and_its_refit_are_written_together_and_once(store: MonitorStore, database: Database) -> None:
    (calibration,) = follow(store, CALIBRATION)
    assert store.count("pets", [counted(calibration, refit={"mode": "propose"})])
    assert JobStore(database).unfinished() == []
    (now,) = store.of("pets")
    fired = counted(now, refit={"mode": "propose"}, fired_at=now.through)
    assert store.count("pets", [fired])
    assert store.count("pets", [fired]) is False
    (job,) = JobStore(database).unfinished()
    assert (job.model, job.request, job.by) == ("pets", {"mode": "propose"}, "monitor")
    (alarmed,) = store.of("pets")
    assert alarmed.job == job.id
    assert store.voided() == {}, "only a certificate is voided"


def test_estimates_are_those_of_the_last_time(store: MonitorStore) -> None:
    assert store.estimates("pets") is None
    for at in (1, 2):
        store.estimated("pets", StoredEstimates("r1", at, {"x": at / 3}))
    assert store.estimates("pets") == StoredEstimates("r1", 2, {"x": 2 / 3})


def test_a_cohort_is_cut_by_times_alone(database: Database, logged: Callable[..., list[str]]) -> None:
    for number in range(6):
        logged([prediction_id(2 * number), prediction_id(2 * number + 1)], created_at=100 + number)
    window = Window("pets", DIGEST)

    def ends(since: int, until: int, rows: int) -> int:
        with database.connect() as connection:
            return cohort_end(connection, window, since_us=since, until_us=until, rows=rows)

    assert ends(100, 200, 50) == 200
    assert ends(100, 200, 4) == 102
    assert ends(100, 102, 4) == 102
    assert ends(100, 200, 1) == 101, "rows of one microsecond stay together"
    assert ends(103, 200, 2) == 104
    assert ends(150, 200, 1) == 200
