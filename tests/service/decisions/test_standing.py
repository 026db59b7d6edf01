"""What a policy leaves as it is stays certified, and is not tested again."""

from typing import Any

import numpy as np
import pytest

from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.decisions.standing import standing
from service.decisions.voided import claims, key_of, overlaid

BANDS: list[dict[str, Any]] = [
    {"action": "accept", "when": {"min_precision": 0.95}},
    {"action": "look", "when": {"max_flag_rate": 0.5}},
    {"action": "review"},
]


def policy(**fields: Any) -> Policy:
    return parse_policy({"id": "p", "bands": BANDS} | fields)


def rows(seed: int, n: int = 2000, good: float = 0.99) -> ScoredRows:
    rng = np.random.default_rng(seed)
    score = rng.random(n).astype(np.float32)
    segment = np.where(rng.random(n) < 0.5, "DE", "FR").astype(object)
    return ScoredRows(probability=score, score=score, positive=rng.random(n) < good, segment=segment)


def solved(wanted: Policy, **options: Any) -> SolvedPolicy:
    given = {"version": 1, "fit": rows(0), "certify": rows(1), "look": 1, "basis": "traffic"}
    return solve(wanted, **given | options)


OLD = solved(policy())


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({}, {0, 1}),
        ({"on_invalid": "review_all"}, {0, 1}),
        ({"bands": [BANDS[1], BANDS[0], BANDS[2]]}, {0, 1}),
        ({"bands": [{"action": "accept", "when": {"min_precision": 0.9}}, *BANDS[1:]]}, {1}),
        ({"bands": [{"action": "pass", "when": {"min_precision": 0.95}}, *BANDS[1:]]}, {1}),
        ({"explore": {"share": 0.1, "actions": ["review"]}}, {0}),  # it leaves less of the flag rate
        ({"positive": "cat"}, set()),
        ({"segments": {"values": ["DE"]}}, set()),
        ({"certify": {"delta": 0.01}}, set()),
        ({"certify": {"delta": 0.2}}, {0, 1}),
    ],
)
def test_a_promise_stays_if_neither_it_nor_its_rows_change(change: dict[str, Any], stays: set[int]) -> None:
    assert {index for _, index in standing(OLD, policy(**change))} == stays


def test_a_third_promise_leaves_each_less_than_all_looks_at_one_may_use() -> None:
    once = solved(policy(certify={"looks": "once"}))
    third = {"action": "more", "when": {"min_recall": 0.5}}
    wanted = policy(bands=[*BANDS[:2], third, BANDS[2]], certify={"looks": "once"})
    assert not standing(once, wanted)
    assert not standing(OLD, policy(bands=[*BANDS[:2], third, BANDS[2]]))


def test_a_late_look_does_not_stand_for_a_smaller_delta() -> None:
    ninth = solved(policy(), look=9)
    assert {certificate.delta for certificate in (band.certificate for band in ninth.bands) if certificate} <= {
        0.025 / 90
    }
    assert standing(ninth, policy(on_uncertifiable="fail"))
    assert not standing(ninth, policy(certify={"delta": 0.04}))


@pytest.mark.parametrize("earlier", [{"over": "look"}, {"looks": "once"}])
def test_looks_that_each_had_all_of_delta_do_not_stand_for_a_year(earlier: dict[str, Any]) -> None:
    """Whoever recalibrates until one of them certifies has spent more than a year has."""
    old = solved(policy(certify=earlier))
    assert not standing(old, policy())
    assert len(standing(old, policy(certify=earlier, on_invalid="review_all"))) == 2
    assert len(standing(OLD, policy(certify={"over": "look"}))) == 2


def test_what_stays_is_not_tested() -> None:
    wanted = policy(on_uncertifiable="fail")
    hopeless = {"certify": rows(2, good=0.5), "look": 9, "version": 2}
    kept = solved(wanted, **hopeless, stays=standing(OLD, wanted))
    assert (kept.bands[:2], kept.review_all, kept.version) == (OLD.bands[:2], False, 2)


def test_segments_keep_their_own() -> None:
    wanted = policy(segments={"values": ["DE", "FR"]})
    old = solved(wanted)
    more = policy(segments={"values": ["DE", "IT"]})
    assert {segment for segment, _ in standing(old, more)} == {"DE"}
    kept = solved(more, certify=rows(2, good=0.5), stays=standing(old, more))
    assert (kept.segments["DE"].certified, kept.segments["IT"].certified) == (True, False)


def test_an_alarm_voids_a_certificate_in_later_versions_too() -> None:
    wanted = policy(on_invalid="review_all")
    later = solved(wanted, version=5, stays=standing(OLD, wanted))
    claim = next(claims(OLD))
    key = key_of(OLD, claim.action, claim.segment, claim.certificate, model_digest="d")
    after = overlaid({"p": later}, "d", {key: "alarm"})["p"]
    assert after.review_all
    assert [claim.action for claim in claims(after)] == ["look"]
    assert {index for _, index in standing(after, policy())} == {1}
