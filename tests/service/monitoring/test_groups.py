"""Groups that were counted: the newest ones, and a sample of all."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring import groups
from service.monitoring.calibration import CalibrationMonitor
from service.monitoring.groups import Groups


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "KEPT", 100)
    monkeypatch.setattr(groups, "SAMPLED", 40)


@pytest.mark.usefixtures("small")
def test_of_sampled_groups_no_row_is_taken_for_the_first_that_is_not() -> None:
    rng = np.random.default_rng(1)
    found, seen, estimated, forgotten = Groups(), set[int](), 0, 0
    for _ in range(200):
        group = rng.integers(0, 2_000, 50)
        fresh = found.fresh(group)
        for one, first, drawn in zip(group.tolist(), fresh.tolist(), found.drawn(group).tolist(), strict=True):
            assert not (first and drawn and one in seen)
            assert first or one in seen, "nothing new is taken for known"
            forgotten += first and one in seen
            seen.add(one)
        estimated = len(seen) and found.forgotten
        found = Groups(json.loads(json.dumps(found.to_dict())))
    assert estimated == pytest.approx(forgotten / 10_000, rel=0.2)


@pytest.mark.usefixtures("small")
def test_entities_that_return_for_ever_break_no_calibration_that_holds() -> None:
    """More entities than are remembered, each with a label of its own for ever, drawn with the probability stated."""
    rng, fired = np.random.default_rng(2), 0
    for _ in range(20):
        watch = CalibrationMonitor(floor=1.0, level=0.05, since=0)
        p = rng.uniform(0.2, 0.8, 150).astype(np.float32)
        positive = rng.random(150) < p
        for day in range(60):
            for part in np.array_split(np.arange(150), 3):
                time = day * 150 + part
                of = {"probability": p[part], "score": p[part], "positive": positive[part], "group": part}
                watch.update(ScoredRows(predicted_at=time, **of), through=int(time[-1]) + 1)
        fired += watch.alarm.fired_at is not None
    assert fired <= 4


def test_without_returns_all_rows_count() -> None:
    found = Groups()
    for start in range(0, 50_000, 5_000):
        assert found.fresh(np.arange(start, start + 5_000)).all()
    assert found.forgotten == 0
    assert len(found.to_dict()["sample"]) < 8 / 6 * 8 * groups.SAMPLED + 8


@pytest.mark.parametrize("document", [3, {}, Groups().to_dict() | {"bits": 64}, Groups().to_dict() | {"sample": "?"}])
def test_other_documents_are_refused(document: object) -> None:
    with pytest.raises(InputValueError) as refused:
        Groups(document)
    assert str(refused.value.where).startswith("groups")
