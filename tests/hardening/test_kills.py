"""Kill the service a few times; tests/hardening/kills.py does so often (docs/explanation/reliability.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hardening.kills import Trial

KILLS = {"sqlite": 2, "postgresql": 1}
END_S = 300


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_nothing_is_lost_half_done_or_left_over(
    digits: Any, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    url = f"sqlite:///{folder}/state/state.db"
    if database == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    trial = Trial(folder, url, digits.root, seed=1, end_s=END_S)
    for _ in range(KILLS[database]):
        trial.round()
    trial.end()
    assert trial.problems == []
    report = trial.report()
    assert report["killed"] == KILLS[database]
    assert report["acknowledged"]["sets"] >= 1
