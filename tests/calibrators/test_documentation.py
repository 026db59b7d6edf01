"""The guide runs, and names everything."""

from __future__ import annotations

import re
from pathlib import Path

from calibrators import CALIBRATORS, metrics

GUIDE = (Path(__file__).parents[2] / "docs" / "calibrators.md").read_text(encoding="utf-8")


def test_its_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) >= 3
    exec("\n".join(blocks), {})


def test_every_calibrator_and_metric_is_in_its_tables():
    rows = "\n".join(line.split("|")[1] for line in GUIDE.splitlines() if line.startswith("| "))
    for name in CALIBRATORS:
        assert f"`{name}`" in rows
    for name in metrics.__all__:
        if name[0].islower():
            assert f"`{name}`" in rows


def test_every_docstring_says_what_is_kept_and_when_to_use_it():
    for calibrator in CALIBRATORS.values():
        assert "Preserves:" in calibrator.__doc__
        assert "When to use:" in calibrator.__doc__
