"""Shares of actions before and after: on known rows, few rows, and segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrators import CALIBRATORS
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.traffic import MOST_SEGMENTS, exceeding, mixes

LABELS = ("bad", "good")


def decided(rows: Rows, share: float, **changes: Any) -> Calibrated:
    """Return rows that a policy reviews below a probability of "bad"."""
    document = {
        "id": "p",
        "positive": "bad",
        "bands": [{"action": "block", "when": {"min_probability": share}}, {"action": "allow"}],
    }
    policy = parse_policy(document | changes)
    identity = CALIBRATORS["identity"]().fit(rows.logits, np.arange(len(rows)) % 2)
    scored = Calibrated.of(identity, LABELS, rows).scored(policy)
    solved = solve(policy, version=1, fit=scored, certify=scored, look=1, basis="traffic")
    return Calibrated.of(identity, LABELS, rows, {"p": solved})


def rows_of(count: int, segments: list[str | None] | None = None) -> Rows:
    """Return rows whose probabilities of "bad" are spread evenly over (0, 1)."""
    p = (np.arange(count) + 0.5) / count
    logits = np.stack([np.log(p), np.log(1 - p)], axis=1).astype(np.float32)
    given: dict[str, Any] = {} if segments is None else {"segment": np.array(segments, dtype=np.object_)}
    return Rows(group=np.arange(count), logits=logits, **given)


def test_shares_are_counted_on_the_same_rows() -> None:
    rows = rows_of(1000)
    before, after = decided(rows, 0.9), decided(rows, 0.7)
    mix = mixes(before, after, 0.1)["p"]
    assert mix.actions["block"].before == pytest.approx(0.1)
    assert mix.actions["block"].after == pytest.approx(0.3)
    assert (mix.rows, mix.largest, mix.exceeds, mix.segments) == (1000, pytest.approx(0.2), True, ())
    (said,) = exceeding({"p": mix}, before.policies, after.policies, 0.1)
    assert "from 10.0% to 30.0% (1,000 recent rows; limit: 10 points)" in said
    same = mixes(before, after, 0.2)["p"]
    assert not same.exceeds, "a change of the limit does not exceed it"
    assert exceeding({"p": same}, before.policies, after.policies, 0.2) == ()


@pytest.mark.parametrize(("rows", "exceeds"), [(5, False), (8, False), (60, True)])
def test_few_rows_exceed_the_limit_only_where_chance_does_not_explain_it(rows: int, exceeds: bool) -> None:
    few = rows_of(rows)
    mix = mixes(decided(few, 0.9), decided(few, 0.7), 0.1)["p"]
    assert mix.largest >= 0.1
    assert mix.exceeds == exceeds


def test_all_rows_to_review_exceed_every_limit() -> None:
    rows = rows_of(1000)
    bands = [{"action": "review", "when": {"min_probability": 0.001}}, {"action": "allow"}]
    before = decided(rows, 0.0, bands=bands)
    after = decided(rows, 0.0, bands=[{"action": "review"}])
    mix = mixes(before, after, 0.1)["p"]
    assert mix.largest < 0.01
    assert mix.exceeds
    assert not mixes(after, after, 0.1)["p"].exceeds


def test_a_segment_exceeds_the_limit_where_the_whole_does_not() -> None:
    # The 150 rows of "small" lie between the two thresholds, and so change; few others do.
    segments: list[str | None] = ["large"] * 4000
    segments[2800:2950] = ["small"] * 150
    segments[:50] = ["tiny"] * 50
    segments[3990:] = [None] * 10
    rows = rows_of(4000, segments)
    before, after = decided(rows, 0.7375), decided(rows, 0.70)
    mix = mixes(before, after, 0.1)["p"]
    assert not mix.exceeds
    assert [part.segment for part in mix.segments] == ["small", "large", None]
    assert [part.rows for part in mix.segments] == [150, 3790, 60]
    assert [part.exceeds for part in mix.segments] == [True, False, False]
    (said,) = exceeding({"p": mix}, before.policies, after.policies, 0.1)
    assert "for segment 'small' from 0.0% to 100.0% (150 recent rows" in said


def test_many_segments_are_named_up_to_a_limit() -> None:
    rows = rows_of(6000, [f"s{row % 60}" for row in range(6000)])
    mix = mixes(decided(rows, 0.9), decided(rows, 0.85), 0.1)["p"]
    assert len(mix.segments) == MOST_SEGMENTS + 1
    assert mix.segments[-1].segment is None
    assert sum(part.rows for part in mix.segments) == 6000


def test_no_row_changes_nothing() -> None:
    rows = rows_of(10)
    before, after = decided(rows, 0.9), decided(rows, 0.1)
    nothing = np.arange(0)
    assert mixes(before.take(nothing), after.take(nothing), 0.1) == {}
