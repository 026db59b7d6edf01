"""A promise in rows per day: that of a flag rate, of the rows of a day."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from candor.contract.policies import Policy
from service.dashboard import words
from service.decisions.certify import solve
from service.decisions.lint import lint
from service.decisions.per_day import of_rows_per_day
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.standing import standing
from service.errors import PolicyError

PER_DAY = {"max_review_per_day": 500}
EXPLORED = {"share": 0.01, "actions": ["allow"]}


def document(when: dict[str, Any] = PER_DAY, **more: Any) -> dict[str, Any]:
    return {"id": "p", "positive": "fraud", "bands": [{"action": "review", "when": when}, {"action": "allow"}], **more}


def policy(when: dict[str, Any] = PER_DAY, **more: Any) -> Policy:
    return parse_policy(document(when, **more))


def drawn(rng: np.random.Generator, n: int, **columns: NDArray[Any]) -> ScoredRows:
    score = rng.random(n).astype(np.float32)
    return ScoredRows(probability=score, score=score, positive=rng.random(n) < score, **columns)


@pytest.mark.parametrize("explore", [{}, {"explore": EXPLORED}])
@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("of_group", [1, 2])
def test_it_is_the_flag_rate_of_so_many_rows(explore: dict[str, Any], look: int, of_group: int) -> None:
    rng = np.random.default_rng(5)
    fit, certify = (drawn(rng, n, group=first + np.arange(n) // of_group) for n, first in ((400, 0), (900, 1000)))
    rest: dict[str, Any] = {"version": 1, "fit": fit, "certify": certify, "look": look, "basis": "traffic", "seed": 3}
    rate = solve(policy({"max_flag_rate": 500 / 3210}, **explore), **rest)
    given = solve(policy(rows_per_day=3210, **explore), **rest)
    measured = solve(policy(**explore), rows_per_day=3210, **rest)
    of_a_day = {"per_day": 500, "rows_per_day": 3210}
    for found in (given, measured):
        assert [band.threshold for band in found.bands] == [band.threshold for band in rate.bands]
        certificate, same = found.bands[0].certificate, rate.bands[0].certificate
        assert certificate is not None
        assert same is not None
        assert certificate.valid
        assert certificate == same.model_copy(update=of_a_day)
    assert (given.policy.rows_per_day, measured.policy.rows_per_day) == (3210, None)
    assert measured.rows_per_day == 3210
    # A kept threshold is tested against the share of the new number of rows.
    kept = solve(policy(on_calibrator_change="keep_threshold"), rows_per_day=6420, keep=measured, **rest)
    assert kept.bands[0].certificate is not None
    assert not kept.bands[0].certificate.valid
    assert (kept.bands[0].certificate.at_most, kept.bands[0].threshold) == (500 / 6420, measured.bands[0].threshold)


def test_certificates_are_false_at_most_delta_of_the_time_with_the_rows_of_the_day_measured() -> None:
    """The rows of a day vary, are counted on the day that certifies, and set the share that is tested."""
    rng = np.random.default_rng(19)
    wanted = policy({"max_review_per_day": 30}, certify={"looks": "once"})
    worlds, violations = 1500, 0
    for _ in range(worlds):
        rows = int(rng.poisson(300))
        fit, certify = drawn(rng, 60), drawn(rng, rows)
        found = solve(wanted, version=1, fit=fit, certify=certify, look=1, basis="traffic", rows_per_day=rows)
        threshold = found.bands[0].threshold
        violations += threshold is not None and 1 - threshold.probability > 30 / rows
    assert 0.01 * worlds < violations <= binom.isf(0.001, worlds, 0.05), violations


@pytest.mark.parametrize(
    ("more", "where", "says"),
    [
        ({"segments": {"values": ["DE"]}}, "/segments", "all segments"),
        ({"certify": {"looks": "anytime", "planned": 500}}, "/certify/looks", "rows of a day change"),
        ({"certify": {"per": "amount"}}, "/certify/per", "each amount, and people review rows"),
        ({"certify": {"per": "group"}}, "/certify/per", "each group, and people review rows"),
        ({"certify": {"wrong_labels": 0.01}}, "/certify/per", "each group, and people review rows"),
        ({"rows_per_day": 500}, "/rows_per_day", "limits nothing"),
        ({"rows_per_day": 0}, "/rows_per_day", "from 1 to"),
        ({"rows_per_day": 50_000, "explore": EXPLORED}, "/bands/0/when/max_review_per_day", "Exploration alone"),
    ],
)
def test_what_does_not_go_with_it_is_refused_with_the_reason(more: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says) as refused:
        policy(**more)
    assert refused.value.where == where
    assert refused.value.expected is not None


def test_rows_of_a_day_without_a_promise_about_them_are_refused() -> None:
    with pytest.raises(PolicyError, match="No band promises") as refused:
        policy({"max_flag_rate": 0.05}, rows_per_day=10_000)
    assert refused.value.where == "/rows_per_day"


@pytest.mark.parametrize("number", [0, -5, 2.5, "500", True, 10_000_001])
def test_a_promise_that_is_not_a_number_of_rows_is_refused(number: Any) -> None:
    with pytest.raises(PolicyError) as refused:
        policy({"max_review_per_day": number})
    assert refused.value.where == "/bands/0/when/max_review_per_day"


def test_of_two_promises_in_rows_the_stricter_comes_first() -> None:
    bands = [{"action": action, "when": {"max_review_per_day": n}} for action, n in (("call", 40), ("review", 500))]
    assert parse_policy(document() | {"bands": [*bands, {"action": "allow"}]}).most_per_day == 500
    with pytest.raises(PolicyError, match="leaves this band no rows"):
        parse_policy(document() | {"bands": [*reversed(bands), {"action": "allow"}]})


def test_linting_and_solving_need_the_rows_of_a_day() -> None:
    rows = drawn(np.random.default_rng(1), 100)
    for refused in (
        lambda: lint(policy()),
        lambda: solve(policy(), version=1, fit=rows, certify=rows, look=1, basis="reference"),
    ):
        with pytest.raises(PolicyError, match="The rows of a day are unknown") as error:
            refused()
        assert error.value.where == "/rows_per_day"
        assert "Give `rows_per_day`" in str(error.value.remedy)
    assert [finding.message for finding in lint(policy(rows_per_day=10_000)) if "certify this" in finding.message] == [
        finding.message for finding in lint(policy({"max_flag_rate": 0.05})) if "certify this" in finding.message
    ]


def test_days_with_fewer_rows_than_promised_leave_one_in_a_hundred() -> None:
    assert of_rows_per_day(policy(), 3).rows_per_day == 506
    assert of_rows_per_day(policy(), 506).tolerance(0) < 0.99
    assert of_rows_per_day(policy(), 507).rows_per_day == 507
    with pytest.raises(PolicyError, match="Exploration alone"):
        of_rows_per_day(policy(explore=EXPLORED), 50_000)


def test_a_certificate_stays_only_where_a_day_has_as_many_rows() -> None:
    rng = np.random.default_rng(5)
    old = solve(
        policy(), version=1, fit=drawn(rng, 400), certify=drawn(rng, 900), look=1, basis="traffic", rows_per_day=3000
    )
    edited = policy(on_invalid="review_all")
    assert standing(old, of_rows_per_day(edited, 3000)) == {(None, 0): old.bands[0]}
    assert standing(old, of_rows_per_day(edited, 3001)) == {}
    assert standing(old, policy({"max_review_per_day": 499}, rows_per_day=3000)) == {}


def test_the_dashboard_says_both_numbers() -> None:
    assert (
        words.condition(policy({"max_review_per_day": 1_200_000}).condition(0)) == "rows per day ≤ 1\u202f200\u202f000"
    )
    watched = {"metric": "flag_rate", "at_least": None, "at_most": 0.05}
    watched["per_day"] = {"promised": 500, "assumed": 10_000}
    assert words.promise(watched) == "flag rate ≤ 0.05 (500 of 10\u202f000 rows per day)"
