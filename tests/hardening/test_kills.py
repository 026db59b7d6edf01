"""Kill the service a few times; tests/hardening/kills.py does so often (docs/explanation/reliability.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.hardening.kills import Trial
from tests.hardening.subjects import Digits, Payments
from tests.ports import free_port

KILLS = 2
END_S = 300


def test_nothing_is_lost_half_done_or_left_over(digits: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state/state.db"
    trial = Trial(tmp_path, url, Digits(digits.root), seed=1, end_s=END_S)
    for _ in range(KILLS):
        trial.round()
    trial.end()
    assert trial.problems == []
    report = trial.report()
    assert report["killed"] == KILLS
    assert report["acknowledged"]["sets"] >= 1


def test_an_imported_model_by_grpc_with_workers_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    trial = Trial(tmp_path, postgresql_url, Payments(tmp_path / "bundles", free_port()), 3, workers=2, end_s=END_S)
    trial.round()
    trial.end()
    assert trial.problems == []
    assert trial.kills.pop("a worker") == 1
    assert trial.kills.total() == 1
    assert trial.report()["acknowledged"]["predictions"] > 0
