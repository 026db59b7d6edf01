"""Why a row got its probability: computed when a case is opened, and kept with its end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from calibrators import CALIBRATORS, Calibrator
from candor import Client
from candor.contract.cases import Reasons
from service.cases.contents import input_of, logits_of
from service.cases.reasons import MOST_SHOWN, reasons_of
from service.cli import app
from service.operations.cases import get_case

from .conftest import NAMES


def waiting(running: Any) -> list[str]:
    return [case["id"] for case in running.http.get("/v1/models/cards/cases").json()["items"]]


def total(reasons: Reasons) -> float:
    return reasons.base + sum(one.log_odds for one in reasons.contributions) + reasons.other + reasons.residual


def of(running: Any, case: str, calibrator: Calibrator, positive: str = "fraud") -> Reasons:
    served, database = running.runtime.models.get("cards").served, running.runtime.database
    example, logits = input_of(database, served, case), logits_of(database, 2, case)
    assert example is not None
    assert logits is not None
    found = reasons_of(served, calibrator, positive, example, logits)
    assert found is not None
    return found


@pytest.mark.parametrize("library", ["reviewing", "reviewing_xgboost"])
def test_a_case_says_why(library: str, request: pytest.FixtureRequest) -> None:
    reviewing = request.getfixturevalue(library)
    for case in waiting(reviewing)[:3]:
        found = get_case(reviewing.runtime, reviewing.runtime.models.get("cards"), case)
        why = found.reasons
        assert why is not None
        assert (why.label, why.against) == ("fraud", "fine")
        assert why.log_odds == pytest.approx(np.log(found.probability / (1 - found.probability)), abs=1e-5)
        assert total(why) == pytest.approx(why.log_odds, abs=1e-12)
        assert abs(why.residual) < 1e-6
        assert len(why.contributions) == MOST_SHOWN
        sizes = [abs(one.log_odds) for one in why.contributions]
        assert sizes == sorted(sizes, reverse=True)
        assert {one.column for one in why.contributions} < set(NAMES)


def test_temperature_scales_what_the_library_says(reviewing: Any) -> None:
    (case, *_) = waiting(reviewing)
    rows = reviewing.runtime.models.get("cards").served.bundle.reference.fit
    plain = of(reviewing, case, CALIBRATORS["identity"]().fit(rows.logits, rows.labels))
    served = reviewing.runtime.models.get("cards").served
    warm = of(reviewing, case, served.calibrator)
    assert plain.factor == pytest.approx(1.0)
    for one, other in zip(plain.contributions, warm.contributions, strict=True):
        assert (one.column, one.log_odds * warm.factor) == (other.column, pytest.approx(other.log_odds))


@pytest.mark.parametrize("name", ["platt", "beta", "isotonic", "histogram", "venn_abers", "quadratic"])
def test_the_parts_of_any_calibrator_add_up(reviewing: Any, name: str) -> None:
    served = reviewing.runtime.models.get("cards").served
    rows = served.bundle.reference.fit
    calibrator = CALIBRATORS[name]().fit(rows.logits, rows.labels)
    for case in waiting(reviewing)[:4]:
        for positive in ("fraud", "fine", "top"):
            found = of(reviewing, case, calibrator, positive)
            assert total(found) == pytest.approx(found.log_odds, abs=1e-9)
            if name == "platt":
                assert abs(found.residual) < 1e-6


def test_reasons_are_kept_with_the_end_of_a_case(reviewing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled, skipped, by_feedback, *_ = waiting(reviewing)
    path = "/v1/models/cards/cases"
    before = {case: reviewing.http.get(f"{path}/{case}").json()["reasons"] for case in (labelled, skipped)}
    assert reviewing.http.get(path).json()["items"][0]["reasons"] is None  # a list computes nothing
    assert reviewing.http.post(f"{path}/{labelled}/label", json={"label": "fraud"}).json()["reasons"] is not None
    assert reviewing.http.post(f"{path}/{skipped}/skip", json={"reason": "no"}).json()["reasons"] is not None
    body = {"items": [{"prediction_id": by_feedback, "label": "fine"}]}
    assert reviewing.http.post("/feedback", json=body).status_code == 200

    def computed(*_: Any) -> None:
        raise AssertionError("reasons are kept, and not computed again")

    monkeypatch.setattr("service.operations.cases.reasons_of", computed)
    with Client(reviewing.url, model="cards") as client:
        for case, why in before.items():
            kept = client.case(case).reasons
            assert kept is not None
            assert kept.document == why
    args = ["cases", "export", "--state", "labelled", "--url", reviewing.url, "--model", "cards"]
    lines = CliRunner().invoke(app, args).stdout.splitlines()
    exported = {case["id"]: case["reasons"] for case in map(json.loads, lines)}
    assert exported[labelled] == before[labelled]
    assert exported[by_feedback] is None  # nobody opened it


def test_the_page_of_a_case_shows_them(reviewing: Any) -> None:
    case = waiting(reviewing)[-1]
    page = reviewing.http.get(f"/dashboard/models/cards/cases/{case}")
    assert page.status_code == 200
    why = reviewing.http.get(f"/v1/models/cards/cases/{case}").json()["reasons"]
    assert "Why fraud" in page.text
    assert f"{why['contributions'][0]['log_odds']:+.3f}" in page.text
