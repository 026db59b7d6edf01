"""The schema for editors takes what the service takes, and the file in docs is the one that the code makes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from candor.contract.conditions import CONDITIONS
from candor.contract.policies import Policy, policy_schema
from service.decisions.policy import parse_policy
from service.errors import PolicyError

ROOT = Path(__file__).parents[3]
COSTS = {"false_positive": 5, "false_negative": 100, "review": 1}
FULL: dict[str, Any] = {
    "id": "p",
    "positive": "fraud",
    "bands": [
        {"action": "block", "when": {"min_precision": 0.9}},
        {"action": "review", "when": {"cost": COSTS}},
        {"action": "allow"},
    ],
    "certify": {"delta": 0.05, "looks": "once"},
    "explore": {"share": 0.01, "actions": ["allow"]},
    "on_calibrator_change": "keep_threshold",
    "on_uncertifiable": "fail",
    "on_invalid": "review_all",
    "segments": {"values": ["DE"], "fallback": "review"},
}


def fits(value: Any) -> bool:
    """Whether the schema accepts a document."""
    return Draft202012Validator(policy_schema()).is_valid(value)


def test_the_file_in_docs_is_in_step() -> None:
    written = json.loads((ROOT / "docs" / "reference" / "policy.schema.json").read_text(encoding="utf-8"))
    assert written == policy_schema(), "run: candor policy schema > docs/reference/policy.schema.json"


def test_it_knows_every_field_and_condition() -> None:
    schema = policy_schema()
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == set(Policy.model_fields)
    assert set(schema["$defs"]["When"]["properties"]) == set(CONDITIONS)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "policies").rglob("*.yaml")), ids=lambda path: path.name)
def test_it_takes_the_examples(path: Path) -> None:
    assert fits(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_it_takes_what_is_written_back() -> None:
    assert fits(FULL)
    assert fits(parse_policy(FULL).to_dict())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("id", "no spaces"),
        ("id", 7),
        ("positive", ""),
        ("bands", []),
        ("bands/0/action", None),
        ("bands/0/colour", "red"),
        ("bands/0/when", {}),
        ("bands/0/when", {"min_precison": 0.9}),
        ("bands/0/when", {"min_precision": 1}),
        ("bands/0/when", {"min_precision": 0.9, "min_recall": 0.9}),
        ("bands/0/when", {"min_probability": 1.5}),
        ("bands/0/when", {"max_flag_rate": "2%"}),
        ("bands/1/when/cost", {"false_positive": 5}),
        ("bands/1/when/cost/review", 0),
        ("certify/delta", 1),
        ("certify/delta", 9e-13),
        ("certify/looks", "twice"),
        ("explore/share", 2),
        ("on_uncertifiable", "shrug"),
        ("on_calibrator_change", "shrug"),
        ("on_invalid", "fail"),
        ("segments/values", []),
        ("segments/values", ["DE", "DE"]),
        ("segments/values", ["D" * 201]),
        ("segments/values", ["D\0"]),
        ("explore/actions", "allow"),
        ("segments", {"fallback": "review"}),
        ("colour", "red"),
    ],
)
def test_it_refuses_what_the_service_refuses(path: str, value: Any) -> None:
    document = copy.deepcopy(FULL)
    *parents, last = path.split("/")
    inner: Any = document
    for part in parents:
        inner = inner[int(part)] if isinstance(inner, list) else inner[part]
    inner[last] = value
    with pytest.raises(PolicyError):
        parse_policy(document)
    assert not fits(document)
