"""Trends: what the page says of a rare class is what the log holds, and it reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from service.dashboard.trends import DAYS
from service.operations.trends import Trends, trends
from tests.service.conftest import Digits, InThread

SEVEN = {"positive": "7", "bands": [{"action": "flag", "when": {"min_probability": 0.5}}, {"action": "review"}]}
EXPLORE = {"share": 1, "actions": ["flag"]}


@pytest.fixture(scope="module")
def taught(
    launch: Callable[..., InThread], digits: Digits, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InThread]:
    """A service with a policy about sevens, whose labels are sought of every row; half of them have arrived."""
    running = launch(tmp_path_factory.mktemp("taught"), policies=None, monitor_maturity_s=2 * 86_400)
    put = running.http.put("/v1/models/digits/policies/seven", json=SEVEN | {"explore": EXPLORE})
    running.activate(put.json()["id"])
    answers = running.predict(digits.images[:400], policy="seven")
    items = [
        {"prediction_id": one["prediction_id"], "label": label}
        for one, label in zip(answers[:200], digits.labels, strict=False)
    ]
    assert running.http.post("/feedback", json={"items": items}).status_code == 200
    assert running.runtime.log.flush()
    yield running
    running.close()


def read(service: InThread, positive: str | None = None, days: int = 1) -> Trends:
    return trends(service.runtime, service.runtime.models.get("digits"), positive, days, [0] * 23 + [400])


def test_points_say_what_was_predicted_and_labelled(taught: InThread, digits: Digits) -> None:
    found = read(taught, "7")
    assert (found.rows, found.sought, found.cut) == (400, 400, False)
    point = next(point for point in found.points[::-1] if point.labelled is not None)
    sevens = [label == "7" for label in digits.labels[:200]]
    assert point.labelled is not None
    assert point.labelled.value == pytest.approx(np.mean(sevens))
    assert point.labelled.low < np.mean(sevens) < point.labelled.high
    assert point.labelled.arrived == pytest.approx(0.5)
    probabilities = taught.predict(digits.images[:400], policy="seven")
    mean = np.mean([one["probabilities"]["7"] for one in probabilities])
    assert point.mean == pytest.approx(mean, abs=1e-4)
    assert [revision for _, revision in found.marks] == ["r1", taught.revisions()["active"]]
    assert found.positives == sum(sevens)
    assert sum(rate.rows for rate in found.reliability) == found.labelled == 200
    assert found.curve is not None
    assert found.curve.recall[-1] == 1
    assert found.curve.precision[-1] == pytest.approx(np.mean(sevens))
    assert 0.5 <= found.delay[-1][1] <= 200 / 256  # of the first request at most; the other labels are still to come
    assert sum(map(sum, found.hours.values())) == pytest.approx(400)
    assert found.hours.keys() == {"flag", "review"}


def test_a_long_time_leaves_out_rows_without_mature_labels(taught: InThread) -> None:
    assert not read(taught, "7").mature
    found = read(taught, "7", days=7)
    assert (found.mature, found.labelled, found.reliability, found.curve) == (True, 0, (), None)


def test_the_class_is_that_of_a_policy(taught: InThread) -> None:
    assert read(taught).positive == "7"


@pytest.mark.parametrize("path", ["?positive=7&days=1", "?positive=top&days=1", "?positive=0&days=90", ""])
def test_every_choice_is_a_page(taught: InThread, path: str) -> None:
    page = taught.http.get(f"/dashboard/models/digits/trends{path}")
    assert page.status_code == 200, page.text
    assert "Base rate and mean probability" in page.text


def test_label_delay_is_shown_by_source(taught: InThread) -> None:
    taught.runtime.monitors.step()
    page = taught.http.get("/dashboard/models/digits/trends").text
    assert "Label delay by source" in page
    assert "labels.mature_in" in page
    assert "Time until a label from client arrives" in page


def test_a_model_without_predictions_has_trends(service: InThread) -> None:
    for days in DAYS:
        page = service.http.get(f"/dashboard/models/digits/trends?days={days}")
        assert page.status_code == 200, page.text
        assert "No sought label has arrived" in page.text
        legend = page.text.partition('id="rate-heading"')[2].partition("<svg")[0]
        assert [legend.count(f"swatch {one}") for one in ("right", "second", "third")] == [1, 1, 1]


def test_what_is_not_on_the_page_is_refused(service: InThread) -> None:
    for query, status in (("days=0", 422), ("days=x", 422), ("positive=nobody", 422), ("positive=%00", 422)):
        assert service.http.get(f"/dashboard/models/digits/trends?{query}").status_code == status, query
    service.http.post("/v1/models/digits/unload")
    assert service.http.get("/dashboard/models/digits/trends").status_code == 503
