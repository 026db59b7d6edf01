"""Input drift of a running service: which column, since when, and where one reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from candor import Client
from service.cli import app
from service.monitoring.drift import DriftTests
from service.state import audit
from service.state.database import now_us
from service.state.drift import DriftStore
from tests.service.conftest import InThread
from tests.service.imported_models import driver_rows, drivers

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("drift")
    drivers(made)
    return made


@pytest.fixture
def served(start: Callable[..., InThread], root: Path) -> InThread:
    """A service whose tests run when a test says so, an hour later each time."""
    service = start(bundles=root, default_model="drivers", policies=None, monitor_interval_s=1e6, drift_window_s=3600)
    hours: Iterator[int] = iter(range(1000))
    service.runtime.drift.clock = lambda: now_us() + next(hours) * HOUR_US
    return service


def send(service: InThread, inputs: np.ndarray) -> None:
    for part in np.array_split(inputs, 4):
        response = service.http.post("/v1/models/drivers/predict?top=0", json={"inputs": part.tolist()})
        assert response.status_code == 200, response.text


def told(service: InThread) -> dict[str, Any]:
    found: dict[str, Any] = service.http.get("/v1/models/drivers/monitoring").json()
    return found


def alarms(service: InThread) -> dict[str, bool]:
    return {column["name"]: column["alarm"] for column in told(service)["drift"]["columns"]}


def test_the_alarm_names_the_column_that_drifts_until_it_is_as_before(served: InThread) -> None:
    assert told(served)["drift"] is None
    assert told(served)["no_drift"] == "The first window has not begun."
    served.runtime.drift.step()
    send(served, driver_rows(1200))
    served.runtime.drift.step()
    assert alarms(served) == {"age": False, "fault": False}
    quiet = told(served)["drift"]
    assert (quiet["windows"], quiet["tested"]["rows"], quiet["open"]["rows"], quiet["level"]) == (1, 1200, 0, 0.025)

    send(served, driver_rows(1200, older_by=6))
    served.runtime.drift.step()
    drift = told(served)["drift"]
    assert alarms(served) == {"age": True, "fault": False}
    age = drift["columns"][0]
    assert age["psi"] > 0.2 > 0.02 > age["psi_without_drift"]
    assert age["evidence"] > 20
    assert sum(share["traffic"] for share in age["bins"]) == pytest.approx(1)
    assert served.metric("candor_column_drift_alarm", model="drivers", column="age") == 1
    assert served.metric("candor_column_drift_alarm", model="drivers", column="fault") == 0
    assert served.metric("candor_column_psi", model="drivers", column="age") == age["psi"]
    (entry,) = [entry for entry in audit.read(served.runtime.database, "drivers") if entry.action == "alarm"]
    assert (entry.by, entry.subject, entry.detail["columns"]) == ("monitor", "inputs", ["age"])
    with Client(served.url, model="drivers") as client:
        assert client.monitoring().document == told(served)
    shown = CliRunner().invoke(app, ["monitor", "--url", served.url, "--model", "drivers"])
    assert "input drift: age (2 windows tested)" in shown.output

    page = served.http.get("/dashboard/models/drivers").text
    assert re.search(r'age</bdi></th><td>\s*<span class="badge alarm">.*?<bdi class="name">&gt; ', page, re.DOTALL)

    send(served, driver_rows(1200))
    served.runtime.drift.step()
    assert alarms(served) == {"age": False, "fault": False}
    assert served.metric("candor_column_drift_alarm", model="drivers", column="age") == 0


def test_a_window_waits_for_rows_and_time_and_outlives_the_process(start: Callable[..., InThread], root: Path) -> None:
    settings = {"bundles": root, "default_model": "drivers", "policies": None, "monitor_interval_s": 1e6}
    service = start(drift_window_s=3600, **settings)
    service.runtime.drift.step()
    send(service, driver_rows(900))
    service.runtime.drift.step()
    assert told(service)["drift"]["measured"]["rows"] == 900
    service.runtime.drift.clock = lambda: now_us() + 2 * HOUR_US
    service.runtime.drift.step()
    assert told(service)["drift"]["windows"] == 0, "900 rows are too few"
    service.close()
    again = start(drift_window_s=3600, **settings)
    send(again, driver_rows(300))
    again.runtime.drift.step()
    drift = told(again)["drift"]
    assert (drift["windows"], drift["open"]["rows"]) == (0, 1200), "an hour has not passed"
    again.runtime.drift.clock = lambda: now_us() + 2 * HOUR_US
    again.runtime.drift.step()
    assert told(again)["drift"]["windows"] == 1


def test_a_replica_that_is_overtaken_adds_its_rows_to_what_it_finds(
    served: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = served.runtime
    first, second = (DriftTests(runtime.settings, runtime.database, runtime.models) for _ in range(2))
    first.step()
    change = DriftStore.change

    def overtaken(*arguments: Any) -> bool:
        monkeypatch.undo()
        send(served, driver_rows(200))
        second.step()
        return change(*arguments)

    monkeypatch.setattr(DriftStore, "change", overtaken)
    send(served, driver_rows(300))
    first.step()
    assert told(served)["drift"]["open"]["rows"] == 500


def test_every_bundle_with_another_profile_takes_its_share_of_alpha(
    start: Callable[..., InThread], tmp_path: Path
) -> None:
    drivers(tmp_path / "bundles")
    service = start(bundles=tmp_path / "bundles", default_model="drivers", policies=None, monitor_interval_s=1e6)
    service.runtime.drift.step()
    drivers(tmp_path / "bundles", older_by=1)
    response = service.http.post("/v1/models/drivers/load")
    assert response.status_code == 200, response.text
    service.runtime.models.activate("drivers", "r2", expected_epoch=1, by="test", reason="test")
    assert told(service)["no_drift"] == "The first window has not begun."
    service.runtime.drift.step()
    drift = told(service)["drift"]
    assert (drift["place"], drift["level"]) == (2, pytest.approx(0.05 / 6))
    service.runtime.drift.step()
    assert told(service)["drift"] == drift


def test_the_tests_can_be_turned_off(start: Callable[..., InThread], root: Path) -> None:
    service = start(bundles=root, default_model="drivers", policies=None, drift_window_s=0)
    service.runtime.drift.step()
    assert (told(service)["drift"], told(service)["no_drift"]) == (None, "CANDOR_DRIFT_WINDOW_S is 0.")
