"""The schema for editors takes what the service takes, and the file in docs is the one that the code makes."""

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.decisions.conditions import CONDITIONS
from service.decisions.policy import FIELDS, Policy
from service.decisions.schema import policy_schema
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


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits a schema: the few keywords that ours uses."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "null": type(None),
        "number": (int, float),
    }
    wanted = schema.get("type")
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else wanted
        if isinstance(value, bool) or not any(isinstance(value, kinds[name]) for name in names):
            return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return (
            set(schema.get("required", ())) <= set(value) <= set(properties)
            and schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 99)
            and all(fits(item, properties[key]) for key, item in value.items())
        )
    if isinstance(value, list):
        unique = not schema.get("uniqueItems") or len(set(value)) == len(value)
        return len(value) >= schema.get("minItems", 0) and unique and all(fits(item, schema["items"]) for item in value)
    if isinstance(value, str):
        length = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
        return length and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        return schema.get("minimum", -1e99) <= value <= schema.get("maximum", 1e99) and schema.get(
            "exclusiveMinimum", -1e99
        ) < value < schema.get("exclusiveMaximum", 1e99)
    return True


def test_the_file_in_docs_is_in_step() -> None:
    written = json.loads((ROOT / "docs" / "policy.schema.json").read_text(encoding="utf-8"))
    assert written == policy_schema(), "run: candor policy schema > docs/policy.schema.json"


def test_it_knows_every_field_and_condition() -> None:
    properties = policy_schema()["properties"]
    assert set(properties) == set(FIELDS)
    assert set(properties["bands"]["items"]["properties"]["when"]["properties"]) == set(CONDITIONS)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "policies").rglob("*.yaml")), ids=lambda path: path.name)
def test_it_takes_the_examples(path: Path) -> None:
    assert fits(yaml.safe_load(path.read_text(encoding="utf-8")), policy_schema())


def test_it_takes_what_is_written_back() -> None:
    assert fits(FULL, policy_schema())
    assert fits(Policy.from_dict(FULL).to_dict(), policy_schema())


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
        Policy.from_dict(document)
    assert not fits(document, policy_schema())
