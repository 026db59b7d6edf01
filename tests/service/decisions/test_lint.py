import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from candor.contract.policies import Policy
from service.decisions.binomial import labels_needed
from service.decisions.certify import solve
from service.decisions.lint import Finding, lint
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows

EXPLORE = {"share": 0.001, "actions": ["block", "allow"]}


def policy(*bands: dict[str, Any], **more: Any) -> Policy:
    document = {"id": "p", "positive": "fraud", "bands": [*bands, {"action": "allow"}], "explore": EXPLORE, **more}
    return parse_policy(document)


def block(**when: Any) -> dict[str, Any]:
    return {"action": "block", "when": when}


def review(**when: Any) -> dict[str, Any]:
    return {"action": "review", "when": when}


def draw(n: int, seed: int = 0) -> ScoredRows:
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    return ScoredRows(probability=p, score=p, positive=rng.random(n) < p)


def problems(findings: list[Finding]) -> list[str]:
    return [f"{finding.where}: {finding.message}" for finding in findings if finding.level == "problem"]


def test_each_promise_says_how_many_labels_it_needs() -> None:
    findings = lint(policy(block(min_precision=0.95), review(min_recall=0.9)))
    notes = {finding.where: finding.message for finding in findings}
    assert f"At least {labels_needed(0, 0, 0.05, 0.05 / 2 / 2)} labelled rows" in notes["/bands/0/when/min_precision"]
    assert f"At least {labels_needed(0, 0, 0.1, 0.05 / 2 / 2)} labelled positives" in notes["/bands/1/when/min_recall"]
    assert not problems(findings)


def test_a_fixed_threshold_that_every_row_passes() -> None:
    document = {"id": "p", "bands": [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]}
    found = parse_policy(document)
    assert "No row reaches the bands after 'accept'" in problems(lint(found, classes=2))[0]
    assert not any("No row" in problem for problem in problems(lint(found, classes=3)))


def test_rows_that_no_refit_keeps() -> None:
    wanted = policy(block(min_probability=0.5), on_uncertifiable="keep_previous")
    for classes, found in ((3, 1), (2, 0), (None, 0)):
        said = [finding.level for finding in lint(wanted, classes=classes) if finding.where == "/on_uncertifiable"]
        assert said == ["note"] * found


def test_actions_whose_label_is_never_sought() -> None:
    silent = {"share": 0.0, "actions": []}
    fixed = lint(policy(review(min_probability=0.5), explore=silent))
    assert [finding.level for finding in fixed] == ["note"]
    assert "'allow'" in fixed[0].message
    blind = problems(lint(policy(block(min_precision=0.9), explore=silent)))
    assert len(blind) == 1
    assert "cannot certify the promise" in blind[0]
    assert problems(lint(policy(review(min_recall=0.9), explore=silent)))
    assert not problems(lint(policy(review(min_precision=0.9), explore=silent)))
    assert not problems(lint(policy(review(max_flag_rate=0.1), explore=silent)))


@pytest.mark.parametrize(
    ("queue", "wrong"),
    [({"max_per_day": 5, "random_share": 0.0}, True), ({"max_per_day": 5}, False), ({"random_share": 0.0}, False)],
)
def test_a_queue_without_a_random_share(queue: dict[str, Any], wrong: bool) -> None:
    explored = {"share": 0.001, "actions": ["allow"]}
    found = problems(lint(policy(review(min_probability=0.5), review=queue, explore=explored)))
    assert any(one.startswith("/review/random_share: Labels are sought") for one in found) == wrong


def test_promises_in_each_others_way() -> None:
    found = policy(block(min_recall=0.9), review(max_flag_rate=0.02))
    data = draw(4000)
    stated = problems(lint(found, fit=data, certify_rows=4000))
    assert len(stated) == 1
    assert stated[0].startswith("/bands/1/when/max_flag_rate: No row reaches 'review'")
    # True of what solving gives.
    bands = solve(found, version=1, fit=data, certify=draw(4000, 1), look=1, basis="traffic").bands
    assert bands[0].threshold is not None
    assert bands[1].threshold is not None
    assert bands[1].threshold.probability > bands[0].threshold.probability
    assert not problems(lint(policy(block(max_flag_rate=0.02), review(min_recall=0.9)), fit=data, certify_rows=4000))


def test_a_fixed_threshold_below_a_solved_one_is_fine_and_above_it_is_not() -> None:
    data = draw(4000)
    assert not problems(
        lint(policy(block(min_precision=0.9), review(min_probability=0.2)), fit=data, certify_rows=4000)
    )
    stated = problems(lint(policy(block(min_precision=0.7), review(min_probability=0.9)), fit=data, certify_rows=4000))
    assert "No row reaches 'review'" in stated[0]


@pytest.mark.parametrize(
    ("when", "rows"),
    [({"min_precision": 0.9}, 60), ({"min_recall": 0.99}, 300), ({"max_false_positive_rate": 0.001}, 3000)],
)
def test_promises_that_the_data_could_never_certify(when: dict[str, float], rows: int) -> None:
    stated = problems(lint(policy(block(**when)), fit=draw(2000), certify_rows=rows))
    assert len(stated) == 1
    assert "can never certify" in stated[0]
    assert "at least" in stated[0]
    assert "if none of them is an error" in stated[0]
    assert not problems(lint(policy(block(**when)), fit=draw(2000), certify_rows=100 * rows))


def test_promises_that_no_threshold_keeps() -> None:
    data = draw(2000)
    worthless = replace(data, positive=np.random.default_rng(3).random(2000) < 0.3)
    stated = problems(lint(policy(block(min_precision=0.999), explore=EXPLORE), fit=worthless, certify_rows=10**6))
    assert "More labels will not help" in stated[0] or "can never certify" in stated[0]
    assert problems(lint(policy(block(min_recall=0.9)), fit=replace(data, positive=data.score > 2), certify_rows=9))


def test_segments_are_examined_for_themselves() -> None:
    data = replace(draw(2000), segment=np.repeat(["DE", "FR"], [1900, 100]))
    found = policy(block(min_precision=0.9), segments={"values": ["DE", "FR", "IT"]})
    stated = problems(lint(found, fit=data, certify_rows=2000))
    assert any("'FR'" in problem for problem in stated)
    assert any("'IT'" in problem for problem in stated)
    assert not any("'DE'" in problem for problem in stated)


def test_rows_of_no_segment_are_said_once() -> None:
    segments = {"values": ["DE", "FR"]}
    findings = lint(policy(block(min_precision=0.9), segments=segments), fit=draw(3000), certify_rows=3000)
    assert [finding.level for finding in findings if finding.where == "/segments"] == ["note"]
    assert not [finding for finding in findings if finding.where == "/bands"]


def test_linting_reads_no_certify_label() -> None:
    """It is given none: what it says depends on the fit rows and on a number."""
    data = draw(500)
    once, again = (lint(policy(block(min_precision=0.9)), fit=data, certify_rows=500) for _ in range(2))
    assert once == again


def test_a_second_look_needs_as_many_rows_as_are_said() -> None:
    wanted = policy(block(min_precision=0.95))
    said = next(finding.message for finding in lint(wanted) if finding.where == "/bands/0/when/min_precision")
    rows = [int(number) for number in re.findall(r"\b\d+\b", said)]
    for look, needed in enumerate(rows, start=1):
        for n in (needed - 1, needed):
            p = np.linspace(0.5, 1.0, n, dtype=np.float32)
            right = ScoredRows(probability=p, score=p, positive=np.ones(n, bool))
            solved = solve(wanted, version=1, fit=right, certify=right, look=look, basis="traffic")
            assert solved.review_all == (n < needed), (look, n)
    assert rows == [72, 157]


def test_sets_say_how_many_rows_they_need() -> None:
    document = {"id": "p", "bands": [{"action": "review"}], "set": {"coverage": 0.9}}
    assert not [finding for finding in lint(parse_policy(document)) if finding.where == "/set"]
    (found,) = (finding for finding in lint(parse_policy(document), classes=3) if finding.where == "/set")
    assert found.message == "At least 46 labelled rows of each class certify the sets at a first look."
