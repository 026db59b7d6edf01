"""Why so few of many labelled rows certify: groups, and probabilities with which labels were sought."""

from __future__ import annotations

from typing import Any

import numpy as np

from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows

DAY_US = 86_400_000_000
POLICY = parse_policy(
    {
        "id": "p",
        "positive": "bad",
        "bands": [{"action": "block", "when": {"min_precision": 0.9}}, {"action": "allow"}],
        "certify": {"per": "group"},
    }
)


def reason(rows: int, policy: Policy = POLICY, **columns: Any) -> str:
    """Return why a promise that 80 % of the rows keep is not certified."""
    p = np.full(rows, 0.8, np.float32)
    scored = ScoredRows(probability=p, score=p, positive=np.arange(rows) % 5 > 0, **columns)
    certificate = solve(policy, version=1, fit=scored, certify=scored, look=1, basis="traffic").bands[0].certificate
    assert certificate is not None
    assert certificate.reason is not None
    return certificate.reason


def test_rows_of_the_same_group_are_said_to_count_once() -> None:
    said = reason(6617, group=np.arange(6617) % 9)
    assert "among 9 rows" in said
    assert said.endswith("; of 6,617 labelled rows at or above the threshold, one of each of 9 groups counts")
    assert "group" not in reason(500)


def test_a_rarer_exploration_long_ago_suggests_since() -> None:
    old = np.arange(2000) < 100
    propensity = np.where(old, 0.01, 1.0)
    times = DAY_US * np.where(old, 1, 40) + np.arange(2000) * (DAY_US // 1000)
    said = reason(2000, propensity=propensity, predicted_at=times)
    assert "thinned to the smallest probability with which a label was sought, 1.00%" in said
    assert said.endswith(": since 1970-02-11T00:00:00.000000Z it is at least 100.00%, so recalibrate with `since`")
    once = parse_policy(POLICY.to_dict() | {"certify": {"per": "group", "looks": "once"}})
    assert "since" not in reason(2000, once, propensity=propensity, predicted_at=times), (
        "it certifies on no such window"
    )
    mixed = reason(2000, propensity=np.where(np.arange(2000) % 20 == 0, 0.01, 1.0), predicted_at=times)
    assert "since" not in mixed, "no time has only rows that were sought often"


def test_since_is_not_suggested_where_a_chosen_window_would_show_less() -> None:
    """Without the rows that were explored less, 2.4 times as many would count; a chosen window requires 3.2 times."""
    old = np.arange(2000) < 300
    times = DAY_US * 41 + (np.arange(2000) - 300) * (DAY_US // 1000)
    said = reason(2000, propensity=np.where(old, 0.24, 1.0), predicted_at=times)
    assert "24.00%" in said
    assert "since" not in said
