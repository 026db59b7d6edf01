"""The threat model names, for each line, the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "how-to" / "security.md").read_text()
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| tries to")]


def test_every_test_that_it_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert named
    assert sorted(named - there) == []


def test_every_line_is_held_by_a_test() -> None:
    assert len(LINES) > 30
    for line in LINES:
        *_, tests = line.strip("| ").split(" | ")
        assert re.fullmatch(r"(`test_\w+`(, )?)+", tests), line


def test_what_nothing_holds_is_said() -> None:
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[2:]:  # of somebody without a key nothing is left to say
        assert "| tries to |" not in part or "*Yours*: " in part, part.splitlines()[0]
