import hashlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from candor.contract.certificates import Certificate, SolvedBand, SolvedSegment, Threshold
from service.decisions.decide import decide
from service.decisions.policy import parse_policy
from service.decisions.solved import SolvedPolicy
from service.decisions.voided import claims, key_of, overlaid

DIGEST = "d" * 64
CERTIFICATE = Certificate(
    metric="precision",
    at_least=0.9,
    at_most=None,
    delta=0.05,
    n=400,
    errors=12,
    looks=1,
    basis="reference",
    window=None,
    valid=True,
)
BANDS = [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "block"}]


def bands(certificate: Certificate) -> tuple[SolvedBand, ...]:
    return SolvedBand(action="accept", threshold=Threshold.at(0.5, -math.inf), certificate=certificate), SolvedBand(
        action="block", threshold=None, certificate=None
    )


def policy(**changes: Any) -> SolvedPolicy:
    return SolvedPolicy(parse_policy({"id": "p", "bands": BANDS, **changes}), 3, bands(CERTIFICATE), False)


def keys(solved: SolvedPolicy) -> list[str]:
    return [key_of(solved, one.action, one.segment, one.certificate, model_digest=DIGEST) for one in claims(solved)]


def above(solved: SolvedPolicy, segments: list[str] | None = None) -> list[str]:
    p = np.full(len(segments or [""]), 0.7, np.float32)
    return [solved.actions[index] for index in decide(solved, p, p, segments)]


@pytest.mark.parametrize(("on_invalid", "action"), [("keep", "accept"), ("review_all", "review")])
def test_a_voided_certificate_says_so_and_the_policy_says_what_becomes_of_its_rows(
    on_invalid: str, action: str
) -> None:
    solved = policy(on_invalid=on_invalid)
    (key,) = keys(solved)
    marked = overlaid({"p": solved}, DIGEST, {key: "alarm"})["p"]
    assert (marked.certified["accept"]["valid"], marked.certified["accept"]["reason"]) == (False, "alarm")
    assert above(solved) == ["accept"]
    assert above(marked) == [action]
    assert keys(marked) == []
    assert key_of(marked, "accept", None, marked.bands[0].certificate or CERTIFICATE, model_digest=DIGEST) == key
    assert overlaid({"p": marked}, DIGEST, {key: "alarm"})["p"] is marked


def test_what_is_not_voided_stays_the_same_object() -> None:
    policies = {"p": policy()}
    assert overlaid(policies, DIGEST, {}) is policies
    assert overlaid(policies, DIGEST, {"another": "alarm"}) is policies
    other = policy(on_invalid="review_all")
    both = policies | {"q": replace(other, bands=bands(CERTIFICATE.model_copy(update={"looks": 2})))}
    changed = overlaid(both, DIGEST, dict.fromkeys(keys(both["q"]), "propensity"))
    assert changed["p"] is both["p"]
    assert changed["q"].certified["accept"]["reason"] == "propensity"


def test_a_certificate_is_known_by_what_it_says_and_not_by_the_threshold_that_carries_it() -> None:
    solved = policy()
    moved = replace(
        solved, bands=(solved.bands[0].model_copy(update={"threshold": Threshold.at(0.6, 1.0)}), solved.bands[1])
    )
    anew = replace(solved, bands=bands(CERTIFICATE.model_copy(update={"looks": 2})))
    assert keys(moved) == keys(solved)  # the same rows under a calibrator that keeps their order
    assert keys(anew) != keys(solved)
    assert keys(replace(solved, version=4)) == keys(solved), "an edit that leaves it as it is"
    assert keys(replace(solved, bands=bands(CERTIFICATE.model_copy(update={"per": "row"})))) != keys(solved)


def test_what_an_earlier_service_voided_stays_void() -> None:
    later = {"per", "groups", "group_limit", "wrong_labels", "per_day", "rows_per_day"}
    written = CERTIFICATE.model_dump(mode="json", exclude=later)
    said = [DIGEST, "p", 2, "accept", None, written]
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    marked = overlaid({"p": policy()}, DIGEST, {key: "alarm"})["p"]
    assert marked.certified["accept"]["reason"] == "alarm"


@pytest.mark.parametrize(("on_invalid", "action"), [("keep", "accept"), ("review_all", "block")])
def test_of_segments_one_is_voided_and_gets_the_fallback(on_invalid: str, action: str) -> None:
    segments = {"values": ["DE", "FR"], "fallback": "block"}
    solved = replace(
        policy(segments=segments, on_invalid=on_invalid),
        bands=(
            SolvedBand(action="accept", threshold=None, certificate=None),
            SolvedBand(action="block", threshold=None, certificate=None),
        ),
        review_all=True,
        segments={
            value: SolvedSegment(bands=bands(CERTIFICATE.model_copy(update={"segment": value})), certified=True)
            for value in ("DE", "FR")
        },
    )
    key = keys(solved)[1]
    marked = overlaid({"p": solved}, DIGEST, {key: "alarm"})["p"]
    assert above(marked, ["DE", "FR", "IT"]) == ["accept", action, "block"]
    assert marked.parts["DE"].certified["accept"]["valid"] is True
    assert marked.parts["FR"].certified["accept"]["reason"] == "alarm"
