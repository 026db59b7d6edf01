"""The guide to policies says what the code does."""

import re
from pathlib import Path

import pytest
import yaml

from service.decisions.certify import BAND_POINTS, labels_needed
from service.decisions.policy import CONDITIONS, Policy

GUIDE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)]


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["id"])
def test_examples_are_policies(document: dict[str, object]) -> None:
    policy = Policy.from_dict(document)
    policy.check_labels([str(digit) for digit in range(10)])
    assert {**policy.to_dict(), **document} == policy.to_dict()


def test_every_condition_and_field_is_explained() -> None:
    for name in CONDITIONS:
        assert f"**`{name}:" in GUIDE
    for name in Policy.from_dict(EXAMPLES[0]).to_dict():
        assert f"| `{name}" in GUIDE


def test_the_table_of_labels() -> None:
    table = re.findall(r"^\| (0\.\d+) \| (\d+) \| (\d+) \| (\d+) \|$", GUIDE, flags=re.MULTILINE)
    assert len(table) == 4
    for promise, *numbers in table:
        levels = (0.05, 0.05 / 2, 0.05 / 6 / BAND_POINTS)
        assert [int(number) for number in numbers] == [
            labels_needed(0, 0, 1 - float(promise), level) for level in levels
        ]
    assert labels_needed(60, 2, 0.05, 0.025) == int(
        re.findall(r"at\nleast (\d+) more|at least (\d+) more", GUIDE)[0][1]
    )
