"""Certificates that allow for wrong labels: the worst allocation, the level, and what such policies refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.binomial import labels_needed, p_value
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.standing import standing
from service.decisions.wrong_labels import WrongLabels
from service.errors import PolicyError

SHARE = 0.02


def policy(name: str = "min_precision", promise: float = 0.9, wrong: float | None = SHARE, **more: Any) -> Policy:
    bands = [{"action": "accept", "when": {name: promise}}, {"action": "review"}]
    certify = {"looks": "once", "per": "group"} | ({} if wrong is None else {"wrong_labels": wrong})
    return parse_policy({"id": "p", "bands": bands, "certify": certify} | more)


@pytest.mark.parametrize("metric", ["recall", "false_positive_rate"])
def test_the_worst_allocation_is_the_worst_of_all(metric: Metric) -> None:
    """Each wrong label hides an error or shows a row too many; every division among the two is tried."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 60))
        errors, wrong, q = int(rng.integers(0, n + 1)), int(rng.integers(0, 12)), float(rng.uniform(0.01, 0.99))
        rows, counted = WrongLabels(wrong / 100, 100).worst(metric, np.array([n]), np.array([errors]), q)
        every = [
            float(p_value(np.array(errors + a), np.array(n + a - min(b, n - errors)), q))
            for a in range(wrong + 1)
            for b in range(wrong + 1 - a)
        ]
        assert float(p_value(counted, rows, q)[0]) == pytest.approx(max(every), abs=1e-12)


def test_a_flagged_row_needs_no_label_and_a_precision_counts_each_wrong_label_as_an_error() -> None:
    wrong = WrongLabels(0.29, 100)
    n, errors = np.array([10, 200]), np.array([3, 5])
    assert wrong.count == 29
    assert [part.tolist() for part in wrong.worst("flag_rate", n, errors, 0.1)] == [[10, 200], [3, 5]]
    assert [part.tolist() for part in wrong.worst("selective_risk", n, errors, 0.1)] == [[10, 200], [10, 34]]


@pytest.mark.parametrize("metric", ["precision", "recall", "false_positive_rate"])
def test_needed_labels_are_the_fewest(metric: Metric) -> None:
    """Ever more rows are tried: with one more, a further label may be wrong, and the test may fail again."""
    rng = np.random.default_rng(6)
    cases = [(0.01, 0, 0, 0, 0.05, 0.025), (0.02, 0, 0, 0, 0.05, 0.025), (0.02, 400, 300, 20, 0.1, 0.05)]
    for _ in range(20):
        n, tolerance = int(rng.integers(0, 200)), float(rng.uniform(0.1, 0.7))
        share = float(rng.uniform(0.001, 0.6)) * tolerance
        errors = int(rng.binomial(n, tolerance))
        cases.append((share, n + int(rng.integers(0, 50)), n, errors, tolerance, float(rng.choice([0.05, 0.025, 0.3]))))
    for share, sought, n, errors, tolerance, level in cases:
        for more in range(100_000):
            later = WrongLabels(share, sought + more)
            rows, counted = later.worst(metric, np.array([n + more]), np.array([errors]), tolerance)
            if p_value(counted, rows, tolerance)[0] <= level:
                break
        assert WrongLabels(share, sought).needed(metric, n, errors, tolerance, level) == more
        assert more >= labels_needed(n, errors, tolerance, level)


def draw(rng: np.random.Generator, n: int, name: str) -> ScoredRows:
    """Rows of a world whose promise of 0.9 (a false-positive rate of 0.1) is broken by a hair wherever it may break.

    A precision is 0.8999 everywhere. Of positives, 10.01 % have the lowest of three scores; of negatives, the highest.
    """
    u = rng.random(n)
    if name == "min_precision":
        score = u.astype(np.float32)
        return ScoredRows(probability=score, score=score, positive=rng.random(n) < 0.8999)
    ends = (0.1001, 0.5) if name == "min_recall" else (0.5, 0.8999)
    score = np.array([0.1, 0.5, 0.9], np.float32)[np.searchsorted(ends, u, side="right")]
    return ScoredRows(probability=score, score=score, positive=rng.random(n) < 0.5)


def spoilt(rows: ScoredRows, name: str) -> ScoredRows:
    """Change 2 % of the labels where they hide the most errors: the best-scored ones (of a recall, the lowest)."""
    errors = rows.positive & (rows.score < 0.3) if name == "min_recall" else ~rows.positive
    which = np.flatnonzero(errors)
    which = which[np.argsort(-rows.score[which], kind="stable")][: int(SHARE * len(rows))]
    positive = rows.positive.copy()
    positive[which] = ~positive[which]
    return replace(rows, positive=positive)


def is_false(name: str, threshold: float) -> bool:
    """Tell whether a certified threshold breaks the promise of its world."""
    return {"min_precision": True, "min_recall": threshold > 0.3, "max_false_positive_rate": threshold < 0.95}[name]


@pytest.mark.parametrize("name", ["min_precision", "min_recall", "max_false_positive_rate"])
def test_an_adversary_who_places_the_wrong_labels_certifies_at_most_delta_falsely(name: str) -> None:
    rng, worlds = np.random.default_rng(5), 200
    promise = 0.1 if name == "max_false_positive_rate" else 0.9
    false = {SHARE: 0, None: 0}
    for _ in range(worlds):
        fit, certify = draw(rng, 200, name), spoilt(draw(rng, 600, name), name)
        for wrong in false:
            wanted = policy(name, promise, wrong)
            found = solve(wanted, version=1, fit=fit, certify=certify, look=1, basis="traffic").bands[0].threshold
            false[wrong] += found is not None and is_false(name, found.probability)
    assert false[SHARE] <= binom.isf(0.001, worlds, 0.05), false
    assert false[SHARE] >= worlds * 0.005, "the test is not merely blind"
    assert false[None] > 0.2 * worlds, "taking the labels as right certifies falsely in most worlds"


def test_certificates_say_what_they_allow_for() -> None:
    score = np.random.default_rng(1).random(1000).astype(np.float32)
    rows = ScoredRows(probability=score, score=score, positive=score > 0.005)
    found = solve(policy(), version=1, fit=rows, certify=rows, look=1, basis="traffic").bands[0].certificate
    assert found is not None
    assert (found.valid, found.wrong_labels, found.per, found.errors) == (
        True,
        SHARE,
        "group",
        int((score <= 0.005).sum()),
    )
    # Of 100 rows, those of 2 % of 2,000 labels could all be errors.
    few = replace(rows, segment=np.where(np.arange(1000) < 100, "DE", "FR").astype(object))
    wanted = policy(segments={"values": ["DE"]})
    refused = (
        solve(wanted, version=1, fit=few, certify=few, look=1, basis="traffic").segments["DE"].bands[0].certificate
    )
    assert refused is not None
    assert not refused.valid
    assert "20 of the labels may be wrong" in str(refused.reason)
    trusting = policy(segments={"values": ["DE"]}, wrong=None)
    assert solve(trusting, version=1, fit=few, certify=few, look=1, basis="traffic").segments["DE"].certified


def test_a_kept_threshold_is_tested_with_the_same_allowance() -> None:
    score = np.random.default_rng(2).random(400).astype(np.float32)
    rows = ScoredRows(probability=score, score=score, positive=score > 0.05)
    for wrong, valid in ((None, True), (0.06, False)):
        wanted = policy(wrong=wrong, on_calibrator_change="keep_threshold")
        old = solve(wanted, version=1, fit=rows, certify=replace(rows, positive=score > 0), look=1, basis="traffic")
        kept = solve(wanted, version=1, fit=rows, certify=rows, look=1, basis="traffic", keep=old)
        assert kept.bands[0].threshold == old.bands[0].threshold
        assert kept.bands[0].stands == valid


def test_a_certificate_stays_only_if_it_allows_for_as_much() -> None:
    score = np.random.default_rng(3).random(2000).astype(np.float32)
    rows = ScoredRows(probability=score, score=score, positive=score >= 0)
    old = solve(policy(), version=1, fit=rows, certify=rows, look=1, basis="traffic")
    assert len(standing(old, policy(wrong=0.01))) == len(standing(old, policy(wrong=None))) == 1
    assert not standing(old, policy(wrong=0.03))


@pytest.mark.parametrize(
    ("change", "where", "said"),
    [
        ({"certify": {"wrong_labels": 0.1}}, "/certify/wrong_labels", "as many labels may be wrong"),
        ({"certify": {"wrong_labels": 0.02, "per": "row"}}, "/certify/per", "count each group once"),
        (
            {"certify": {"wrong_labels": 0.02, "looks": "anytime", "planned": 9}},
            "/certify/wrong_labels",
            "take labels as",
        ),
        ({"certify": {"wrong_labels": 0.02}, "set": {"coverage": 0.9}}, "/set", "take labels as right"),
    ],
)
def test_what_cannot_allow_for_wrong_labels_is_refused(change: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as refused:
        policy(**change)
    assert refused.value.where == where
