"""The labels of a multi-label model share delta: the promises of all labels hold together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from service.decisions.certify import solve
from service.decisions.policy import check_shared, parse_policy
from service.decisions.rows import ScoredRows
from service.errors import PolicyError

DELTA = 0.1
LABELS = 5
WORLDS = 150


def policy(**certify: Any) -> Any:
    bands = [{"action": "hide", "when": {"min_precision": 0.8}}, {"action": "show"}]
    given = {"id": "moderation", "positive": "present", "bands": bands}
    return parse_policy({**given, "certify": {"delta": DELTA, "looks": "once", **certify}})


def broken(labels: int, draw: np.random.Generator) -> int:
    """Return in how many worlds any label has a false certificate; precision is just under the promise everywhere.

    The labels are independent, which makes errors in several labels at once rarest: the least favourable case.
    """
    wanted, false = policy(labels=labels), 0
    for _ in range(WORLDS):
        certified = False
        for _ in range(LABELS):
            scores = draw.random(800).astype(np.float32)
            rows = ScoredRows(probability=scores, score=scores, positive=draw.random(800) < 0.7999)
            one, other = (rows.take(np.arange(start, start + 400)) for start in (0, 400))
            solved = solve(wanted, version=1, fit=one, certify=other, look=1, basis="reference", seed=0)
            certified |= any(one["valid"] for one in solved.certified.values())
        false += certified
    return false


def test_the_error_over_all_labels_is_at_most_delta() -> None:
    draw = np.random.default_rng(1)
    shared, alone = broken(LABELS, draw), broken(1, draw)
    assert shared <= binom.ppf(0.999, WORLDS, DELTA)
    assert alone > binom.ppf(0.999, WORLDS, DELTA)  # the world is one in which sharing matters


def test_a_certificate_of_a_label_names_its_part_of_delta() -> None:
    draw = np.random.default_rng(2)
    scores = draw.random(4000).astype(np.float32)
    rows = ScoredRows(probability=scores, score=scores, positive=draw.random(4000) < scores)
    solved = solve(policy(labels=4), version=1, fit=rows, certify=rows, look=1, basis="reference", seed=0)
    (certificate,) = solved.certified.values()
    assert certificate["valid"]
    assert certificate["delta"] == DELTA / 4


def test_a_policy_that_does_not_share_delta_is_refused() -> None:
    with pytest.raises(PolicyError, match="one of 3 labels") as error:
        check_shared(policy(labels=2), 3)
    assert "labels: 3" in str(error.value.remedy)
    check_shared(policy(labels=3), 3)
    check_shared(policy(labels=4), 3)  # safe: it promises more
    check_shared(policy(), 1)
    check_shared(parse_policy({"id": "x", "bands": [{"action": "review"}]}), 3)  # promises nothing
    with pytest.raises(PolicyError):
        policy(labels=0)
