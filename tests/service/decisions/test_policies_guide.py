"""The guide to policies says what the code does."""

import re
from pathlib import Path

import pytest
import yaml

from candor.contract.conditions import CONDITIONS
from candor.contract.policies import Policy
from service.decisions.binomial import labels_needed
from service.decisions.lint import lint
from service.decisions.policy import check_labels, parse_policy
from service.decisions.sequence import BAND_POINTS

GUIDE = (Path(__file__).parents[3] / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)]
EXAMPLES = [document for document in BLOCKS if "id" in document]  # others show a part of one


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["id"])
def test_examples_are_policies(document: dict[str, object]) -> None:
    policy = parse_policy(document)
    check_labels(policy, ["fraud", "honest"])
    assert {**policy.to_dict(), **document} == policy.to_dict()


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["id"])
def test_examples_have_no_problem(document: dict[str, object]) -> None:
    assert not [finding for finding in lint(parse_policy(document)) if finding.level == "problem"]


def test_every_condition_has_an_example() -> None:
    for name in CONDITIONS:
        assert f"**`{name}:" in GUIDE
    snippets = re.findall(r"^`(\{action: .*\})`$", GUIDE, flags=re.MULTILINE)
    written = [yaml.safe_load(snippet) for snippet in snippets]
    for band in written:
        parse_policy({"id": "p", "positive": "fraud", "bands": [band, {"action": "let-go"}]})
    assert {name for band in written for name in band["when"]} == set(CONDITIONS)


def test_every_field_is_explained() -> None:
    for name in Policy.model_fields:
        assert f"| `{name}" in GUIDE


def test_the_numbers_in_the_text() -> None:
    costs = next(document for document in EXAMPLES if document["id"] == "by-cost")
    assert [band.condition.value for band in parse_policy(costs).bands if band.condition] == pytest.approx([0.8, 0.01])
    fraud = parse_policy(next(document for document in EXAMPLES if document["id"] == "card-fraud"))
    assert f"{fraud.tolerance(1):.2%}".replace("%", " %") == "4.04 %"
    assert "4.04 %" in GUIDE


def test_the_table_of_labels() -> None:
    table = re.findall(r"^\| (0\.\d+) \| `(.*)` \| (\d+) \| (\d+) \| (\d+) \|$", GUIDE, flags=re.MULTILINE)
    assert len(table) == 6
    for tolerance, example, *numbers in table:
        when = yaml.safe_load(f"{{{example}}}")
        policy = parse_policy({"id": "p", "bands": [{"action": "act", "when": when}, {"action": "review"}]})
        assert policy.tolerance(0) == pytest.approx(float(tolerance))
        levels = (0.05, 0.05 / 2, 0.05 / 6 / BAND_POINTS)
        assert [int(number) for number in numbers] == [labels_needed(0, 0, policy.tolerance(0), x) for x in levels]
    assert labels_needed(60, 2, 0.05, 0.025) == int(re.findall(r"at least (\d+) more", GUIDE)[0])
