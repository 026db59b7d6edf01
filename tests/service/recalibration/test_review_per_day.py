"""A promise in rows per day over HTTP: measured when it is solved, measured anew by a recalibration, watched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import delete, select, update
from typer.testing import CliRunner

from candor import Client
from service.cli import app
from service.state import traffic
from service.state.database import now_us
from service.state.tables import daily_rows, predictions

pytestmark = pytest.mark.usefixtures("refits_here")
URL = "/v1/models/digits/policies/queue"
DAY = 86_400_000_000
BANDS = [{"action": "review", "when": {"max_review_per_day": 60}}, {"action": "accept"}]
POLICY: dict[str, Any] = {"positive": "7", "bands": BANDS}


def lay_on_days(service: Any, days: dict[int, int]) -> None:
    """Move predictions to earlier days, by days ago: so many rows each, and all others to ten days ago."""
    noon = now_us() // DAY * DAY + DAY // 2
    with service.runtime.database.begin() as connection:
        connection.execute(update(predictions).values(created_at=noon - 10 * DAY))
        ids = list(connection.scalars(select(predictions.c.id).order_by(predictions.c.id)))
        for ago, rows in days.items():
            chosen, ids = ids[:rows], ids[rows:]
            moved = update(predictions).where(predictions.c.id.in_(chosen))
            connection.execute(moved.values(created_at=noon - ago * DAY))
        connection.execute(delete(daily_rows))
    service.runtime.models.traffic._days.clear()  # what is counted does not change but here
    service.runtime.models.traffic._counted.clear()


def held(solved: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = solved["bands"][0]["certificate"]
    return found


def test_a_service_measures_what_a_day_is(on_both: Any, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = on_both
    used = service.looks()
    refused = service.http.put(URL, json=POLICY)
    assert (refused.status_code, refused.json()["where"]) == (422, "/rows_per_day")
    assert "no whole day (UTC) of traffic" in refused.text
    assert service.looks() == used
    given = service.http.put(URL, json={**POLICY, "rows_per_day": 150})
    assert (given.status_code, held(given.json()["policy"])["at_most"]) == (201, 0.4)

    service.teach(digits.images[:720], digits.labels[:720])
    lay_on_days(service, {3: 20, 2: 100, 1: 80})
    put = service.http.put(URL, json=POLICY)
    assert put.status_code == 201, put.text
    certificate = held(put.json()["policy"])
    assert (certificate["valid"], certificate["basis"]) == (True, "reference"), certificate
    assert (certificate["per_day"], certificate["rows_per_day"], certificate["at_most"]) == (60, 100, 0.6)
    assert "rows_per_day" not in put.json()["policy"]["policy"]
    assert service.http.put(URL, json=POLICY).json()["id"] == put.json()["id"]
    service.activate(put.json()["id"])

    client = Client(service.url)
    (watched,) = (one for one in client.monitoring().certificates if one.policy == "queue@2")
    assert watched.per_day is not None
    assert (watched.per_day.promised, watched.per_day.assumed, watched.per_day.measured) == (60, 100, 100)
    assert watched.per_day.warning is None

    # The traffic grows: what is certified stays a share, and the count is said to be broken.
    lay_on_days(service, {3: 20, 2: 100, 1: 400})
    monkeypatch.setattr(traffic, "MOST_PER_DAY", 300)  # yesterday is a large day, counted in the background
    monkeypatch.setattr(traffic, "_AT_ONCE_US", DAY // 2)
    (watched,) = (one for one in client.monitoring().certificates if one.policy == "queue@2")
    assert (watched.per_day and watched.per_day.measured) == 100
    service.runtime.monitors.clock = lambda: now_us() + DAY // 24
    service.runtime.monitors.step()
    (watched,) = (one for one in client.monitoring().certificates if one.policy == "queue@2")
    assert (watched.valid, watched.per_day.measured) == (True, 400)
    warning = "had 400 rows, more than the 100 on which 60 rows per day rest: up to 240 of them"
    assert warning in str(watched.per_day.warning)
    page = service.http.get("/dashboard/models/digits").text
    assert warning in page
    assert "rows per day ≤ 60" in page
    assert "60 of 100 rows per day" in page
    done = CliRunner().invoke(app, ["monitor", "--url", service.url])
    assert warning in done.stdout, done.output

    # A change beside the promise measures nothing and uses no look.
    used = service.looks()
    edited = service.http.put(URL, json={**POLICY, "on_invalid": "review_all"})
    assert (held(edited.json()["policy"]), service.looks()) == (certificate, used)

    recalibrated = service.recalibrate(mode="propose", calibrator="unchanged").json()
    after = recalibrated["policies"]["queue"]["certified"]["review"]
    assert (after["valid"], after["per_day"], after["rows_per_day"]) == (True, 60, 400), after
    assert (after["at_most"], after["basis"]) == (0.15, "traffic")
    service.activate(recalibrated["revision"])
    solved = client.policy("queue")
    assert solved.bands[0].certificate is not None
    assert solved.bands[0].certificate.rows_per_day == 400
    assert solved.bands[0].threshold is not None
    answer = client.predict(digits.images[:200], policy="queue")
    assert answer.policy is not None
    assert answer.policy.certified["review"].per_day == 60
    (watched,) = (one for one in client.monitoring().certificates if one.policy == "queue@2")
    assert watched.per_day is not None
    assert watched.per_day.warning is None

    # It is tried on traffic like any other policy.
    document = {**POLICY, "bands": [{"action": "review", "when": {"max_review_per_day": 40}}, {"action": "accept"}]}
    tried = service.http.post(f"{URL}/simulate", json={"document": document, "rows": 400}).json()
    assert (tried["certified"]["review"]["per_day"], tried["certified"]["review"]["at_most"]) == (40, 0.1)
    replayed = service.http.post(f"{URL}/backtest", json={"document": document})
    assert replayed.status_code == 200, replayed.text

    # Without a whole day in the last week, the number in force stays; other class frequencies are solved with it too.
    lay_on_days(service, {})
    (watched,) = (one for one in client.monitoring().certificates if one.policy == "queue@2")
    assert watched.per_day is not None
    assert (watched.per_day.measured, watched.per_day.warning) == (None, None)
    again = service.recalibrate(mode="dry_run", calibrator="unchanged").json()
    assert again["policies"]["queue"]["certified"]["review"]["rows_per_day"] == 400
    shift = {"mode": "propose", "target": {"7": 0.5}, "source": {"7": 0.1}}
    shifted = service.http.post("/v1/models/digits/prior-shift", json=shift)
    assert shifted.status_code == 201, shifted.text
    revision = service.http.get(f"/v1/models/digits/revisions/{shifted.json()['revision']}").json()
    assert held(revision["policies"]["queue"])["rows_per_day"] == 400
    client.close()


def test_a_recalibration_on_days_that_exploration_alone_fills_is_refused(service: Any, digits: Any) -> None:
    service.teach(digits.images[:400], digits.labels[:400])
    lay_on_days(service, {3: 20, 2: 100})
    put = service.http.put(URL, json={**POLICY, "explore": {"share": 0.3, "actions": ["accept"]}})
    assert put.status_code == 201, put.text
    service.activate(put.json()["id"])
    lay_on_days(service, {3: 20, 2: 100, 1: 200})
    used = service.looks()
    refused = service.recalibrate(mode="propose", calibrator="unchanged")
    assert refused.status_code == 422, refused.text
    assert "flags 30.0% of the rows, 60 of 200 per day under policy 'queue'" in refused.text
    assert service.looks() == used


def test_commands_without_a_service_need_the_rows_of_a_day(digits: Any, tmp_path: Path) -> None:
    file, bundle = tmp_path / "queue.yaml", ["--bundle", str(digits.bundle.path)]
    file.write_text(yaml.safe_dump({"id": "queue", **POLICY}))
    for command in (["lint", str(file)], ["solve", str(file), *bundle], ["simulate", str(file), *bundle]):
        done = CliRunner().invoke(app, ["policy", *command])
        assert done.exit_code == 2, done.output
        assert "The rows of a day are unknown" in done.stderr
        assert "Give `rows_per_day`" in done.stderr
    file.write_text(yaml.safe_dump({"id": "queue", **POLICY, "rows_per_day": 150}))
    assert CliRunner().invoke(app, ["policy", "lint", str(file)]).exit_code == 0
    done = CliRunner().invoke(app, ["policy", "solve", str(file), *bundle])
    assert done.exit_code == 0, done.output
    assert "flag rate of at most 40%, 60 of 150 rows per day" in done.stdout.replace("\n", " ")
