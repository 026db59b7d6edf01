import json
import math
from pathlib import Path
from typing import Any

import pytest

from candor.contract.conditions import CONDITIONS, Band, Condition, When
from candor.contract.fields import LONGEST_SEGMENT
from candor.contract.policies import Certify, Explore, Policy
from service.decisions.policy import check_labels, parse_policy
from service.errors import PolicyError
from service.inference.names import LONGEST_NAME
from service.state.database import now_us
from service.times import duration_us, iso

WRITTEN = json.loads((Path(__file__).parent / "written_policies.json").read_text(encoding="utf-8"))
DOCUMENT = {
    "id": "auto-read",
    "positive": "top",
    "bands": [
        {"action": "accept", "when": {"min_precision": 0.95}},
        {"action": "review", "when": {"min_probability": 0.3}},
        {"action": "block"},
    ],
    "certify": {"delta": 0.1, "looks": "once"},
    "explore": {"share": 0.01, "actions": ["accept", "block"]},
    "on_calibrator_change": "keep_threshold",
    "on_uncertifiable": "fail",
    "on_invalid": "review_all",
}


def changed(path: str, value: object) -> dict[str, object]:
    """Return the document with one field replaced, e.g. "bands/0/when"."""
    import copy

    document = copy.deepcopy(DOCUMENT)
    *parents, last = path.split("/")
    inner: object = document
    for part in parents:
        inner = inner[int(part)] if isinstance(inner, list) else inner[part]  # type: ignore[index]
    inner[int(last) if isinstance(inner, list) else last] = value  # type: ignore[index]
    return document


def test_reads_and_writes_the_same_document() -> None:
    policy = parse_policy(DOCUMENT)
    assert policy.to_dict() == DOCUMENT
    assert parse_policy(policy.to_dict()) == policy
    assert policy.bands[0] == Band(action="accept", when=When(min_precision=0.95))
    assert policy.bands[0].condition == Condition("min_precision", 0.95)
    assert [index for index, _ in policy.promises()] == [0]


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case["document"]["id"])
def test_documents_are_written_as_by_earlier_versions(case: dict[str, Any]) -> None:
    policy = parse_policy(case["document"])
    assert json.dumps(policy.to_dict(), ensure_ascii=False) == case["written"]
    assert parse_policy(json.loads(case["written"])) == policy


def test_defaults_are_written_out() -> None:
    policy = parse_policy({"id": "flag", "positive": "7", "bands": [{"action": "allow"}]})
    assert (policy.certify, policy.explore, policy.on_uncertifiable) == (Certify(), Explore(), "review_all")
    assert (policy.on_calibrator_change, policy.on_invalid) == ("resolve", "keep")
    assert parse_policy(policy.to_dict()) == policy


def test_propensity_is_certain_for_review_and_the_share_where_explored() -> None:
    policy = parse_policy(changed("explore/actions", ["accept"]))
    assert [policy.propensity(action) for action in ("accept", "review", "block")] == [0.01, 1.0, 0.0]


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("id", "", "/id"),
        ("id", "no spaces", "/id"),
        ("positive", 7, "/positive"),
        ("bands", [], "/bands"),
        ("bands", {"action": "accept"}, "/bands"),
        ("bands/0", "accept", "/bands/0"),
        ("bands/0/action", None, "/bands/0/action"),
        ("bands/0/colour", "red", "/bands/0/colour"),
        ("bands/0/when", {"min_precison": 0.9}, "/bands/0/when/min_precison"),
        ("bands/0/when", {"min_recal": 0.9}, "/bands/0/when/min_recal"),
        ("bands/0/when", {"min_recall": 1}, "/bands/0/when/min_recall"),
        ("bands/0/when", {"max_flag_rate": 0}, "/bands/0/when/max_flag_rate"),
        ("bands/0/when", {"max_flag_rate": 0.01}, "/bands/0/when/max_flag_rate"),  # explored: 0.01
        ("bands/0/when", {"max_false_positive_rate": -0.1}, "/bands/0/when/max_false_positive_rate"),
        ("bands/0/when", {"max_selective_risk": math.nan}, "/bands/0/when/max_selective_risk"),
        ("bands/1/when", {"max_selective_risk": 0.05}, "/bands/1/when/max_selective_risk"),
        ("bands/0/when", {"cost": 3}, "/bands/0/when/cost"),
        ("bands/0/when", {"cost": {"false_positive": 1}}, "/bands/0/when/cost/false_negative"),
        ("bands/0/when", {"cost": {"false_positive": 0, "false_negative": 1}}, "/bands/0/when/cost/false_positive"),
        (
            "bands/0/when",
            {"cost": {"false_positive": 1, "false_negative": math.inf}},
            "/bands/0/when/cost/false_negative",
        ),
        ("bands/0/when", {"cost": {"false_positive": 1, "false_negative": 1, "time": 1}}, "/bands/0/when/cost/time"),
        ("bands/1/when", {"cost": {"false_positive": 1, "false_negative": 9}}, "/bands/1/when/cost/review"),
        (
            "bands/1/when",
            {"cost": {"false_positive": 1, "false_negative": 9, "review": 10}},
            "/bands/1/when/cost/review",
        ),
        ("bands/0/when", {}, "/bands/0/when"),
        ("bands/0/when", {"min_precision": 0.9, "min_probability": 0.5}, "/bands/0/when"),
        ("bands/0/when", {"min_precision": 1.0}, "/bands/0/when/min_precision"),
        ("bands/0/when", {"min_precision": 0}, "/bands/0/when/min_precision"),
        ("bands/0/when", {"min_precision": "0.9"}, "/bands/0/when/min_precision"),
        ("bands/0/when", {"min_precision": True}, "/bands/0/when/min_precision"),
        ("bands/0/when", {"min_precision": math.nan}, "/bands/0/when/min_precision"),
        ("bands/1/when", {"min_probability": 1.5}, "/bands/1/when/min_probability"),
        ("bands/1/when", {"min_probability": 0.0}, "/bands/1/when/min_probability"),
        ("bands/1/when", {"min_probability": 10**400}, "/bands/1/when/min_probability"),
        ("bands/1/when", {"min_probability": -(10**400)}, "/bands/1/when/min_probability"),
        ("bands/1/when", {"min_probability": math.inf}, "/bands/1/when/min_probability"),
        ("bands/1/when", {"min_precision": 0.95}, "/bands/1/when/min_precision"),
        ("bands/1/when", {"min_precision": 0.99}, "/bands/1/when/min_precision"),
        ("bands/1/when", None, "/bands/1"),
        ("bands/1/action", "accept", "/bands/1/action"),
        ("bands/2/when", {"min_probability": 0.1}, "/bands/2/when"),
        ("certify/delta", 0.0, "/certify/delta"),
        ("certify/delta", 1, "/certify/delta"),
        ("certify/delta", 9e-13, "/certify/delta"),
        ("certify/delta", 5e-324, "/certify/delta"),
        ("certify/looks", "twice", "/certify/looks"),
        ("certify/alpha", 0.05, "/certify/alpha"),
        ("explore/share", 1.01, "/explore/share"),
        ("explore/share", 0.0, "/explore"),
        ("explore/actions", ["allow"], "/explore/actions"),
        ("explore/actions", "accept", "/explore/actions"),
        ("explore/actions", [], "/explore"),
        ("on_uncertifiable", "keep_previous", "/on_uncertifiable"),  # the document says keep_threshold
        ("on_uncertifiable", "hope", "/on_uncertifiable"),
        ("on_calibrator_change", "keep_rows", "/on_calibrator_change"),
        ("on_invalid", "fail", "/on_invalid"),
        ("on_invalid", None, "/on_invalid"),
        ("on_uncertifiable", ["fail"], "/on_uncertifiable"),
        ("segments", {}, "/segments/values"),
        ("segments", {"values": []}, "/segments/values"),
        ("segments", {"values": ["DE", 7]}, "/segments/values/1"),
        ("segments", {"values": ["DE", "DE"]}, "/segments/values"),
        ("segments", {"values": ["DE", "F" * 201]}, "/segments/values/1"),
        ("segments", {"values": ["D\0"]}, "/segments/values/0"),
        ("segments", {"values": ["DE"], "fallback": "allow"}, "/segments/fallback"),
        ("segments", {"values": ["DE"], "field": "country"}, "/segments/field"),
        ("colour", "red", "/colour"),
    ],
)
def test_refusals_name_the_field(path: str, value: object, where: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(changed(path, value))
    assert refusal.value.where == where
    assert refusal.value.expected is not None
    assert refusal.value.remedy


def test_actions_to_explore_that_are_no_list_are_not_called_unknown() -> None:
    with pytest.raises(PolicyError, match="Expected a list"):
        parse_policy(changed("explore/actions", "accept"))


def test_an_empty_list_asks_for_an_item() -> None:
    with pytest.raises(PolicyError, match="The list is empty") as refusal:
        parse_policy(changed("bands", []))
    assert refusal.value.expected == "at least one item"
    assert refusal.value.remedy == "Add an item."


def test_a_segment_is_what_a_request_can_name() -> None:
    assert LONGEST_SEGMENT == LONGEST_NAME
    longest = "D" * LONGEST_SEGMENT
    policy = parse_policy(changed("segments", {"values": [longest]}))
    assert policy.segments is not None
    assert policy.segments.values == (longest,)


@pytest.mark.parametrize("name", ["id", "bands"])
def test_required_fields(name: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy({key: value for key, value in DOCUMENT.items() if key != name})
    assert refusal.value.where == f"/{name}"


def test_a_document_that_is_no_object() -> None:
    with pytest.raises(PolicyError):
        parse_policy(["accept"])  # type: ignore[arg-type]


def test_an_unknown_condition_lists_the_known() -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(changed("bands/0/when", {"costs": 3}))
    assert refusal.value.expected == sorted(CONDITIONS)


def test_a_promise_of_one_says_what_to_do() -> None:
    with pytest.raises(PolicyError) as refusal:
        parse_policy(changed("bands/0/when", {"min_precision": 1}))
    assert "0.99" in (refusal.value.remedy or "")


def test_the_positive_class_must_be_a_label() -> None:
    check_labels(parse_policy(DOCUMENT), ("0", "1"))
    policy = parse_policy(changed("positive", "fraud"))
    check_labels(policy, ("ok", "fraud"))
    with pytest.raises(PolicyError) as refusal:
        check_labels(policy, ("0", "1"))
    assert refusal.value.where == "/positive"
    assert refusal.value.expected == ["top", "0", "1"]


def test_a_label_that_is_called_top_makes_top_ambiguous() -> None:
    labels = ("top", "bottom")
    with pytest.raises(PolicyError, match="could mean that class or the predicted label") as refusal:
        check_labels(parse_policy(DOCUMENT), labels)
    assert refusal.value.where == "/positive"
    assert refusal.value.expected == ["bottom"]
    check_labels(parse_policy(changed("positive", "bottom")), labels)


COSTS = {"false_positive": 5, "false_negative": 100, "review": 1}


def bands(*conditions: dict[str, object], **more: object) -> Policy:
    """Return a policy of these conditions; the last of them is the review's."""
    actions = [*(f"act-{i}" for i in range(len(conditions) - 1)), "review"]
    written = [{"action": action, "when": when} for action, when in zip(actions, conditions, strict=True)]
    return parse_policy({"id": "p", "positive": "fraud", "bands": [*written, {"action": "allow"}], **more})


def test_costs_are_the_thresholds_of_least_expected_cost() -> None:
    policy = bands({"cost": COSTS}, {"cost": COSTS})
    block, review = (band.condition.value for band in policy.bands[:2] if band.condition)
    assert (block, review) == (pytest.approx(0.8), pytest.approx(0.01))
    for p in (0.0, 0.009, 0.011, 0.5, 0.79, 0.81, 1.0):
        cost = {"act-0": (1 - p) * 5, "review": 1.0, "allow": p * 100}
        decided = "act-0" if p >= block else "review" if p >= review else "allow"
        assert cost[decided] == min(cost.values())
    assert parse_policy(policy.to_dict()) == policy
    assert not list(policy.promises())


def test_without_a_review_acting_is_weighed_against_letting_go() -> None:
    when = {"cost": {"false_positive": 1, "false_negative": 4}}
    policy = parse_policy({"id": "p", "bands": [{"action": "block", "when": when}, {"action": "allow"}]})
    assert policy.bands[0].condition is not None
    assert policy.bands[0].condition.value == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"min_precision": 0.9}, {"min_precision": 0.8}),
        ({"min_precision": 0.9}, {"max_selective_risk": 0.2}),
        ({"max_selective_risk": 0.1}, {"max_selective_risk": 0.2}),
        ({"min_recall": 0.5}, {"min_recall": 0.9}),
        ({"max_false_positive_rate": 0.001}, {"max_false_positive_rate": 0.01}),
        ({"max_flag_rate": 0.01}, {"max_flag_rate": 0.02}),
        ({"min_probability": 0.9}, {"cost": COSTS}),
    ],
)
def test_of_one_family_the_stricter_comes_first(first: dict[str, object], second: dict[str, object]) -> None:
    policy = bands(first, second)
    assert parse_policy(policy.to_dict()) == policy
    with pytest.raises(PolicyError, match="leaves this band no rows") as refusal:
        bands(first, first)
    assert refusal.value.where == f"/bands/1/when/{next(iter(first))}"
    if "cost" not in second:
        with pytest.raises(PolicyError, match="leaves this band no rows"):
            bands(second, first)


def test_a_flag_rate_counts_what_is_explored_below_it() -> None:
    explored = {"explore": {"share": 0.01, "actions": ["allow"]}}
    policy = bands({"min_precision": 0.9}, {"max_flag_rate": 0.02}, **explored)
    left = policy.tolerance(1)
    assert left + 0.01 * (1 - left) == pytest.approx(0.02)
    assert policy.tolerance(0) == pytest.approx(0.1)
    above = bands({"min_precision": 0.9}, {"max_flag_rate": 0.02}, explore={"share": 0.01, "actions": ["act-0"]})
    assert above.tolerance(1) == 0.02


def test_claims_are_promises_in_segments() -> None:
    conditions = {"min_precision": 0.9}, {"max_flag_rate": 0.1}
    assert bands(*conditions).claims == 2
    policy = bands(*conditions, segments={"values": ["DE", "FR", "IT"], "fallback": "allow"})
    assert policy.claims == 6
    assert policy.fallback == "allow"
    assert parse_policy(policy.to_dict()) == policy
    assert bands({"min_probability": 0.5}).claims == 0


@pytest.mark.parametrize(
    ("review", "where"),
    [
        ({"max_per_day": 0}, "/review/max_per_day"),
        ({"max_per_day": True}, "/review/max_per_day"),
        ({"max_per_day": 10**30}, "/review/max_per_day"),
        ({"random_share": float("nan")}, "/review/random_share"),
        ({"priority": "x"}, "/review/priority"),
        ({"due": "0h"}, "/review/due"),
        ({"due": "1000000w"}, "/review/due"),
        ({"due": 24}, "/review/due"),
        ({"dues": "1h"}, "/review/dues"),
        ([], "/review"),
    ],
)
def test_a_queue_that_cannot_work_is_refused(review: Any, where: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy({"id": "a", "bands": [{"action": "review"}], "review": review})
    assert caught.value.where == where


def test_the_longest_due_time_is_a_date() -> None:
    document = {"id": "a", "bands": [{"action": "review"}], "review": {"due": "99999w"}}
    terms = parse_policy(document).review
    assert terms is not None
    assert iso(now_us() + duration_us(terms.due)) < "9999"


def test_labels_that_arise_by_themselves_are_certain_and_need_no_exploration() -> None:
    everything = parse_policy(changed("explore", {}) | {"labels": {"mature_in": "60d"}})
    assert {everything.propensity(action) for action in ("accept", "block", "review")} == {1.0}
    assert everything.to_dict()["labels"] == {"mature_in": "60d", "actions": []}
    some = parse_policy(changed("explore/actions", ["block"]) | {"labels": {"mature_in": "60d", "actions": ["accept"]}})
    assert [some.propensity(action) for action in ("accept", "block")] == [1.0, 0.01]
    with pytest.raises(PolicyError) as refused:
        parse_policy(changed("explore/actions", ["accept", "block"]) | {"labels": {"mature_in": "60d"}})
    assert refused.value.where == "/explore/actions"
    assert "accept, block arise by themselves" in str(refused.value)
    with pytest.raises(PolicyError) as unknown:
        parse_policy(changed("explore", {}) | {"labels": {"mature_in": "60d", "actions": ["alow"]}})
    assert unknown.value.where == "/labels/actions"
    with pytest.raises(PolicyError) as nobody:
        check_labels(
            parse_policy(changed("explore", {}) | {"labels": {"mature_in": "1d", "silence": "none"}}), ("a", "fraud")
        )
    assert nobody.value.where in ("/labels/silence", "/positive")
