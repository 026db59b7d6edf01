"""POST …/policies/{policy}/backtest against a running service."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from sqlalchemy import select
from typer.testing import CliRunner

from bundle.split import FIT, roles
from candor import Client
from service.cli import app
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows, ScoredRows
from service.operations import backtests
from service.operations.backtests import _solved, _split
from service.state.deciders import fitted_at
from service.state.tables import predictions

COST = {"false_positive": 5, "false_negative": "1 + amount", "review": 1}
MONEY = {
    "positive": "7",
    "bands": [
        {"action": "block", "when": {"cost": COST}},
        {"action": "review", "when": {"cost": COST}},
        {"action": "allow"},
    ],
    "explore": {"share": 1.0, "actions": ["block", "allow"]},
}


def test_a_policy_is_replayed_on_later_rows_beside_what_was_in_force(service: Any, digits: Any, tmp_path: Any) -> None:
    put = service.http.put("/v1/models/digits/policies/money", json=MONEY)
    service.activate(put.json()["id"], reason="for the test")
    with Client(service.url, model="digits") as client:
        for part in (slice(0, 80), slice(80, 240)):
            decide(service, client, digits, part)
        before = kept(service)
        found = client.backtest("money")
        with service.runtime.database.connect() as connection:
            group = np.array(connection.scalars(select(predictions.c.cluster).order_by("created_at")).all())
        assert found.solving == (roles(group[:80]) == FIT).sum()
        later = group[80:][roles(group[80:]) == FIT]
        assert 0 < found.judged == found.labelled == (~np.isin(later, group[:80])).sum()
        assert found.warnings == ()
        assert (found.unidentified, found.awaited, found.without_amount, found.capped) == (0, 0, 0, 0)
        assert found.then == found.now  # costs do not depend on rows that solve
        assert found.now is not None
        assert sum(found.then.actions.values()) == found.judged
        caught, missed = found.then.caught.value, found.then.missed.value
        assert caught is not None
        assert missed is not None
        assert found.then.prevented.value == pytest.approx(50 * caught)
        assert found.then.lost.value == pytest.approx(50 * missed)
        assert found.lower[-1].rows == found.judged
        assert client.backtest("money", until="2020-01-01T00:00:00Z").window is None
        strict = {
            "positive": "7",
            "bands": [{"action": "block", "when": {"min_precision": 0.999}}, {"action": "allow"}],
        }
        other = client.backtest("money", strict)
        assert other.review_all
        assert other.then.actions == {"review": other.judged}
        assert kept(service) == before  # nothing is kept, and no row that certifies or gates is shown

        other = client.backtest("new", {"bands": [MONEY["bands"][0], {"action": "accept"}], "positive": "7"})
        assert other.now is None  # it decided nothing yet
        beside = client.backtest(
            "new", {"bands": [MONEY["bands"][0], {"action": "accept"}], "positive": "7"}, against="money"
        )
        assert beside.now == found.now  # what "money" left is left, whatever its name

        decide(service, client, digits, slice(240, 300))
        bands = [{"action": "review", "when": {"min_probability": 1e-6}}, {"action": "allow"}]
        queue = client.backtest("new", {"positive": "7", "bands": bands, "review": {"max_per_day": 100}})
        assert queue.warnings[-1].startswith("People would see about 0 of the"), "the later rows span seconds"

    file = tmp_path / "money.yaml"
    file.write_text(yaml.safe_dump(MONEY | {"id": "money"}))
    shown = CliRunner().invoke(app, ["policy", "backtest", str(file), "--model", "digits", "--url", service.url])
    assert shown.exit_code == 0, shown.output
    assert "prevented" in shown.output


def test_labels_that_came_after_the_split_solve_nothing(service: Any, digits: Any) -> None:
    service.activate(service.http.put("/v1/models/digits/policies/money", json=MONEY).json()["id"], reason="test")
    with Client(service.url, model="digits") as client:
        first = client.predict(digits.images[:80], policy="money", amounts=[5.0] * 80)
        decide(service, client, digits, slice(80, 240))
        tell(service, client, first, digits.labels[:80])
        found = client.backtest("money")
    assert [warning for warning in found.warnings if f"{found.solving} labels of earlier rows" in warning]


def test_rows_are_judged_from_the_fit_of_the_calibrator_on_or_a_warning_says_why_not() -> None:
    time = np.arange(100) * 10
    rows = Rows(group=np.arange(100), predicted_at=time, label=np.ones(100, np.int64))
    assert _split(rows, None) == _split(rows, 400) == (500, [])
    assert _split(rows, 700) == (700, [])
    split, (warning,) = _split(rows, 900)
    assert split == 500
    assert "may have used labels" in warning


def test_a_proposed_policy_has_the_calibrator_of_its_parent(service: Any) -> None:
    store, active = service.runtime.revisions, service.runtime.revisions.get("digits", "r1")
    fields = {
        name: getattr(active, name)
        for name in ("model", "bundle_id", "bundle_version", "model_digest", "calibrator", "policies", "by", "gate")
    }
    refit = store.propose(**fields, parent="r1", cause="recalibrate", created_at=5_000)
    edited = store.propose(**fields, parent=refit.id, cause="policy")
    with service.runtime.database.connect() as connection:
        assert fitted_at(connection, "digits", "r1") is None
        assert fitted_at(connection, "digits", edited.id) == 5_000


def test_fit_rows_choose_thresholds_with_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    p = np.linspace(0, 1, 200).astype(np.float32)
    propensity = np.where(p < 0.5, 0.01, 0.5)
    group = np.random.default_rng(0).integers(0, 2**62, 200)
    earlier = ScoredRows(probability=p, score=p, positive=p > 0.7, propensity=propensity, group=group)
    seen: list[ScoredRows] = []
    monkeypatch.setattr(backtests, "solve", lambda _, *, fit, **rest: seen.append(fit))
    _solved(parse_policy({"id": "money", **MONEY}), earlier, 0, None)
    assert set(seen[0].weight.tolist()) == {2.0, 20.0}


def decide(service: Any, client: Client, digits: Any, part: slice) -> None:
    """Decide rows under `money`, and label them."""
    answer = client.predict(digits.images[part], policy="money", amounts=[50.0] * (part.stop - part.start))
    tell(service, client, answer, digits.labels[part])


def tell(service: Any, client: Client, answer: Any, labels: Any) -> None:
    """Label predictions."""
    rows = zip(answer.predictions, labels, strict=True)
    client.feedback([{"prediction_id": row.prediction_id, "label": label} for row, label in rows])
    assert service.runtime.log.flush()


def kept(service: Any) -> tuple[Any, int]:
    """Return the revisions, and the number of recorded looks."""
    return service.revisions(), service.looks()


def test_what_cannot_be_replayed_is_refused(service: Any) -> None:
    url = "/v1/models/digits/policies/{}/backtest"
    assert service.http.post(url.format("nobody"), json={}).status_code == 404
    for body in ({"rows": 0}, {"rows": 10**9}, {"since": "x"}, {"document": {"bands": []}}, {"extra": 1}):
        assert service.http.post(url.format("mine"), json=body).status_code in (400, 422), body
    unknown = service.http.post(url.format("mine"), json={"document": {**MONEY, "positive": "eleven"}})
    assert unknown.json()["where"] == "/document/positive"
    backwards = {"document": MONEY, "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
    assert service.http.post(url.format("mine"), json=backwards).json()["where"] == "/since"
