"""Kill the service a few times; tests/hardening/kills.py does so often (docs/explanation/reliability.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hardening.kills import Trial
from tests.hardening.subjects import Digits, Payments
from tests.hardening.victim import free_port

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
    trial = Trial(folder, url, Digits(digits.root), seed=1, end_s=END_S)
    for _ in range(KILLS[database]):
        trial.round()
    trial.end()
    assert trial.problems == []
    report = trial.report()
    assert report["killed"] == KILLS[database]
    assert report["acknowledged"]["sets"] >= 1


def test_an_imported_model_by_grpc_with_workers(tmp_path: Path, postgresql_url: str) -> None:
    trial = Trial(tmp_path, postgresql_url, Payments(tmp_path / "bundles", free_port()), 3, workers=2, end_s=END_S)
    trial.round()
    trial.end()
    assert trial.problems == []
    assert trial.kills.pop("a worker") == 1
    assert trial.kills.total() == 1
    assert trial.report()["acknowledged"]["predictions"] > 0
