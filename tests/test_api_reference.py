"""The API reference says what the service says: written anew, it is the committed one."""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.api_reference.page import printed
from examples.api_reference.steady import Steady

ROOT = Path(__file__).resolve().parent.parent
# Processors differ a little, in numbers, and so in what is counted on one side of a threshold.
_FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e-?\d+)?|e-\d+)")
_COUNT = re.compile(
    r'((?:"(?:flipped|rows|before|after|n|errors|needed)": )|\b(?=\d+ (?:errors|rows|more) ))(\d+)\b(?!\.)'
)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_committed_page_is_what_a_running_service_says(tmp_path: Path) -> None:
    page = tmp_path / "api-reference.md"
    command = [sys.executable, "-m", "examples.api_reference", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    committed, fresh = (ROOT / "docs/api-reference.md").read_text(), page.read_text()
    before, after = (_COUNT.sub(r"\1N", _FRACTION.sub("0.0", text)).splitlines() for text in (committed, fresh))
    changed = list(difflib.unified_diff(before, after, lineterm=""))
    assert changed == [], "run make reference:\n" + "\n".join(changed[:40])
    numbers = [[float(found) for found in _FRACTION.findall(text)] for text in (committed, fresh)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=2e-3), "run make reference"
    counts = [[int(found) for _, found in _COUNT.findall(text)] for text in (committed, fresh)]
    assert counts[0] == pytest.approx(counts[1], rel=0.02, abs=5), "run make reference"


def test_ids_and_times_of_each_run_are_given_the_same_ones() -> None:
    first = {"id": "01M7WA527EA4B2MCH4MJVA11G7", "at": "2026-11-21T03:14:42.123456Z", "label": "7", "rows": 0.123441}
    second = {"id": "01M7WB527EA4B2MCH4MJVA11G8", "at": "2026-12-01T00:00:00Z", "label": "7", "rows": 0.123449}
    told = [Steady([str(document)]).document(document) for document in (first, second)]
    assert told[0] == told[1]
    assert told[0] == {"id": told[0]["id"], "at": "2026-11-02T09:00:00.000000Z", "label": "7", "rows": 0.1234}


def test_later_times_stay_later() -> None:
    texts = ['"2026-11-21T03:14:42.5Z"', '"2026-11-21T03:14:41.5Z"']
    steady = Steady(texts)
    assert steady.text(texts[1]) < steady.text(texts[0])


def test_short_documents_take_one_line_and_long_ones_one_for_each_entry() -> None:
    assert printed({"a": [1, {"b": None}]}) == '{"a": [1, {"b": null}]}'
    assert printed({"a": "x" * 80, "b": ["y" * 40]}).splitlines() == [
        "{",
        f'  "a": "{"x" * 80}",',
        f'  "b": ["{"y" * 40}"]',
        "}",
    ]
