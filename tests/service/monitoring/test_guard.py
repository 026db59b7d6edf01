"""A guard rolls back when the traffic changes more than allowed, and not for noise, few rows, or repeated groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from candor import Client, ConflictError
from candor.contract.monitoring import Monitoring
from service.decisions.levels import level_of
from service.monitoring.guard import FIRST_LOOK, LEVEL, breach
from service.state.database import now_us
from service.state.tables import activations

from ..conftest import Digits, InThread

WINDOW_S = 3600.0
BANDS = [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]


@pytest.mark.parametrize(("share", "change"), [(0.02, 0.1), (0.3, 0.1), (0.5, 0.0), (0.05, 0.02)])
def test_a_change_of_the_limit_rolls_back_at_most_as_often_as_the_level_says(share: float, change: float) -> None:
    """Worlds exactly at the limit, each tested at every look: more than LEVEL at the one-sided 0.1 % level fails."""
    random, worlds, fired = np.random.default_rng(7), 300, 0
    sizes = np.unique((FIRST_LOOK * 1.25 ** np.arange(20)).astype(int))
    for _ in range(worlds):
        before = np.cumsum(random.random(sizes[-1]) < share)
        after = np.cumsum(random.random(sizes[-1]) < share + change)
        fired += any(
            breach(
                {"p": {"block": int(before[rows - 1]), "allow": int(rows - before[rows - 1])}},
                {"p": {"block": int(after[rows - 1]), "allow": int(rows - after[rows - 1])}},
                change,
                level_of(LEVEL, look + 1) / 8,
            )
            is not None
            for look, rows in enumerate(sizes)
        )
    assert fired <= 10  # P(Binomial(300, 0.01) > 10) < 0.001


def test_a_large_change_is_found_within_a_hundred_rows() -> None:
    level = level_of(LEVEL, 8) / 8
    before = {"p": {"block": 2, "allow": 98}}
    assert breach(before, {"p": {"block": 60, "allow": 40}}, 0.1, level) is not None
    assert breach(before, {"p": {"block": 2, "allow": 1}}, 0.1, level) is None, "three rows show nothing"
    assert breach({}, {"p": {"block": 60}}, 0.1, level) is None
    assert breach({"p": {"allow": 5}}, {"p": {"block": 500}}, 0.1, level) is None, "nor do five before"


@pytest.fixture
def service(request: pytest.FixtureRequest) -> InThread:
    state = {}
    if getattr(request, "param", None) == "postgresql":
        address: str = request.getfixturevalue("postgresql_url")
        state["state"] = address.replace("postgresql://", "postgresql+psycopg://")
    start: Callable[..., InThread] = request.getfixturevalue("start")
    found = start(monitor_interval_s=1e6, **state)
    found.activate(put(found))
    served_since(found, WINDOW_S)
    return found


def put(service: Any, **changes: Any) -> str:
    document = {"positive": "top", "bands": BANDS} | changes
    answer = service.http.put("/v1/models/digits/policies/plain", json=document)
    assert answer.status_code == 201, answer.text
    revision: str = answer.json()["id"]
    return revision


def predict(service: InThread, images: Any, **fields: Any) -> None:
    body = {"inputs": images.tolist()} | fields
    answer = service.http.post("/predict?policy=plain", json=body)
    assert answer.status_code == 200, answer.text
    assert service.runtime.log.flush()


def served_since(service: InThread, seconds: float) -> None:
    """Let revisions so far have been activated so long ago."""
    with service.runtime.database.begin() as connection:
        connection.execute(update(activations).values(at=now_us() - int(seconds * 1e6)))


def noise(rows: int) -> Any:
    """Return images of noise: the model is not sure of any."""
    return np.random.default_rng(3).integers(0, 40, (rows, 8, 8, 1), dtype=np.uint8)


def guard(service: InThread) -> Any:
    return Monitoring.model_validate(service.http.get("/v1/models/digits/monitoring").json(), extra="forbid").guard


@pytest.mark.parametrize("service", ["sqlite", "postgresql"], indirect=True)
def test_a_guard_rolls_back_by_itself(service: InThread, digits: Digits) -> None:
    predict(service, digits.images[:200])
    assert guard(service) is None
    revision = put(service, bands=[{"action": "accept", "when": {"min_probability": 0.52}}, {"action": "review"}])
    with Client(service.url, model="digits") as client:
        moved = client.activate(revision, epoch=client.revisions().epoch, guard={"window": WINDOW_S})
        assert moved.guard is not None
        assert (moved.guard.state, moved.guard.previous, moved.guard.max_change) == ("watching", "r2", 0.1)
        assert client.audit(limit=1).items[0].detail["guard"] == {"window": WINDOW_S, "max_change": 0.1}
    predict(service, digits.images[200:400])
    service.runtime.monitors.step()
    assert (guard(service).state, guard(service).looks) == ("watching", 1)
    assert service.revisions()["active"] == revision
    flood = noise(1)[[0] * 200]
    predict(service, flood, groups=["bot"] * 200)  # one group: one decision
    service.runtime.monitors.step()
    assert guard(service).state == "watching"
    predict(service, noise(250))
    service.runtime.monitors.step()
    found = guard(service)
    assert (found.state, service.revisions()["active"]) == ("rolled_back", "r2")
    assert found.reason.startswith("Policy 'plain' gave 'accept' to ")
    assert sum(found.after["plain"].values()) == 451
    entry = service.http.get("/v1/models/digits/audit?limit=1").json()["items"][0]
    assert (entry["action"], entry["by"], entry["subject"]) == ("rollback", "guard", "r2")
    assert (entry["detail"]["cause"], entry["detail"]["reason"]) == ("guard", found.reason)
    service.runtime.monitors.step()
    assert service.revisions()["active"] == "r2", "it rolls back once"


def test_a_guard_compares_no_longer_than_the_previous_revision_was_active(service: InThread, digits: Digits) -> None:
    predict(service, digits.images[:200])
    revision = put(service, bands=[{"action": "accept", "when": {"min_probability": 0.52}}, {"action": "review"}])
    served_since(service, 1e-3)
    service.activate(revision, guard={"window": WINDOW_S})
    predict(service, noise(250))
    service.runtime.monitors.step()
    assert service.revisions()["active"] == revision, "the decisions of a moment are no measure of an hour"


def test_a_guard_passes_at_the_end_of_its_window_and_ends_with_another_move(service: InThread, digits: Digits) -> None:
    predict(service, digits.images[:100])
    revision = put(service, bands=[{"action": "accept", "when": {"min_probability": 0.52}}, {"action": "review"}])
    service.activate(revision, guard={"window": WINDOW_S, "max_change": 0.2})
    predict(service, digits.images[:100])
    service.runtime.monitors.clock = lambda: now_us() + int(2 * WINDOW_S * 1e6)
    service.runtime.monitors.step()
    assert (guard(service).state, guard(service).looks) == ("passed", 1)
    predict(service, noise(250))
    service.runtime.monitors.step()
    assert service.revisions()["active"] == revision, "its window is over"
    service.runtime.monitors.clock = now_us
    service.rollback()
    service.activate(revision, guard={"window": WINDOW_S, "max_change": 0.99})
    service.rollback()
    assert guard(service).state == "ended"
    predict(service, noise(250))
    service.runtime.monitors.step()
    assert guard(service).state == "ended"


def test_a_guard_that_would_fire_at_once_or_see_nothing_is_refused(
    service: InThread, digits: Digits, start: Callable[..., InThread], tmp_path: Path
) -> None:
    predict(service, digits.images[:200])
    loud = put(service, bands=[{"action": "accept", "when": {"min_probability": 0.999}}, {"action": "review"}])
    accepted = {"accept_change": True, "reason": "more care"}
    epoch = service.revisions()["epoch"]
    with Client(service.url, model="digits") as client:
        with pytest.raises(ConflictError, match="The guard would roll back"):
            client.activate(loud, epoch=epoch, guard={"window": 60}, **accepted)
        for wrong in ({"window": 0}, {"window": 1e9}, {"max_change": 0.1}, {"window": 60, "max_change": 1.0}):
            answer = service.move(f"revisions/{loud}/activate", epoch, guard=wrong, **accepted)
            assert answer.status_code == 422, answer.text
    assert service.revisions()["epoch"] == epoch
    other = tmp_path / "silent"
    other.mkdir()
    silent = start(state=other, log_mode="off")
    revision = silent.propose_policy()
    answer = silent.move(f"revisions/{revision}/activate", silent.revisions()["epoch"], guard={"window": 60})
    assert (answer.status_code, answer.json()["found"]) == (409, "CANDOR_LOG_MODE=off")


def test_a_guard_survives_a_restart(start: Callable[..., InThread], service: InThread, digits: Digits) -> None:
    predict(service, digits.images[:200])
    revision = put(service, bands=[{"action": "accept", "when": {"min_probability": 0.52}}, {"action": "review"}])
    service.activate(revision, guard={"window": WINDOW_S})
    predict(service, noise(250))
    url = service.runtime.settings.database_url
    service.close()
    again = start(database_url=url, monitor_interval_s=1e6)
    assert again.revisions()["active"] == revision
    again.runtime.monitors.step()
    assert (guard(again).state, again.revisions()["active"]) == ("rolled_back", "r2")
