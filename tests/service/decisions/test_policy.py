import math

import pytest

from service.decisions.policy import CONDITIONS, Band, Certify, Condition, Explore, Policy
from service.errors import PolicyError

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
    "on_uncertifiable": "fail",
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
    policy = Policy.from_dict(DOCUMENT)
    assert policy.to_dict() == DOCUMENT
    assert Policy.from_dict(policy.to_dict()) == policy
    assert policy.bands[0] == Band("accept", Condition("min_precision", 0.95))
    assert policy.bands[0].when is not None
    assert policy.bands[0].when.certified
    assert policy.bands[1].when is not None
    assert not policy.bands[1].when.certified


def test_defaults_are_written_out() -> None:
    policy = Policy.from_dict({"id": "flag", "positive": "7", "bands": [{"action": "allow"}]})
    assert (policy.certify, policy.explore, policy.on_uncertifiable) == (Certify(), Explore(), "review_all")
    assert Policy.from_dict(policy.to_dict()) == policy


def test_propensity_is_certain_for_review_and_the_share_where_explored() -> None:
    policy = Policy.from_dict(changed("explore/actions", ["accept"]))
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
        ("bands/0/when", {"min_recall": 0.9}, "/bands/0/when/min_recall"),
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
        ("certify/looks", "twice", "/certify/looks"),
        ("certify/alpha", 0.05, "/certify/alpha"),
        ("explore/share", 1.01, "/explore/share"),
        ("explore/share", 0.0, "/explore"),
        ("explore/actions", ["allow"], "/explore/actions"),
        ("explore/actions", "accept", "/explore/actions"),
        ("explore/actions", [], "/explore"),
        ("on_uncertifiable", "keep_previous", "/on_uncertifiable"),
        ("on_uncertifiable", ["fail"], "/on_uncertifiable"),
        ("segments", {}, "/segments"),
    ],
)
def test_refusals_name_the_field(path: str, value: object, where: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        Policy.from_dict(changed(path, value))
    assert refusal.value.where == where
    assert refusal.value.expected is not None


@pytest.mark.parametrize("name", ["id", "bands"])
def test_required_fields(name: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        Policy.from_dict({key: value for key, value in DOCUMENT.items() if key != name})
    assert refusal.value.where == f"/{name}"


def test_a_document_that_is_no_object() -> None:
    with pytest.raises(PolicyError):
        Policy.from_dict(["accept"])  # type: ignore[arg-type]


def test_an_unknown_condition_lists_the_known() -> None:
    with pytest.raises(PolicyError, match="min_precision, min_probability"):
        Policy.from_dict(changed("bands/0/when", {"cost": 3}))
    assert set(CONDITIONS) == {"min_probability", "min_precision"}


def test_a_promise_of_one_says_what_to_do() -> None:
    with pytest.raises(PolicyError) as refusal:
        Policy.from_dict(changed("bands/0/when", {"min_precision": 1}))
    assert "0.99" in (refusal.value.remedy or "")


def test_the_positive_class_must_be_a_label() -> None:
    Policy.from_dict(DOCUMENT).check_labels(("0", "1"))
    policy = Policy.from_dict(changed("positive", "fraud"))
    policy.check_labels(("ok", "fraud"))
    with pytest.raises(PolicyError) as refusal:
        policy.check_labels(("0", "1"))
    assert refusal.value.where == "/positive"
    assert refusal.value.expected == ["top", "0", "1"]


def test_a_label_that_is_called_top_makes_top_ambiguous() -> None:
    labels = ("top", "bottom")
    with pytest.raises(PolicyError, match="it may mean that class or the predicted label") as refusal:
        Policy.from_dict(DOCUMENT).check_labels(labels)
    assert refusal.value.where == "/positive"
    assert refusal.value.expected == ["bottom"]
    Policy.from_dict(changed("positive", "bottom")).check_labels(labels)
