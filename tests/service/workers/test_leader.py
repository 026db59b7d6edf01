"""One worker alone runs monitors and retention."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path

import pytest

from service.app import create_app
from service.others import Alone
from service.workers.team import Team

from ..conftest import Digits, settings_of


@pytest.mark.parametrize(("number", "background", "leads"), [(1, True, True), (2, True, False), (1, False, False)])
def test_the_first_worker_leads(number: int, background: bool, leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Team, "_hear", lambda _: None)  # which ends the process when the supervisor is gone
    settings = {"background": background}
    first = {"settings": settings, "worker": number, "workers": 2, "leave_within_s": 1, "rates": None, "secret": ""}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(json.dumps(first).encode() + b"\n")
        team = Team(ours, ours)
        team._lines.close()
    assert (team.leader, team.first) == (leads, number == 1)


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_runs_monitors_and_retention(
    leads: bool, digits: Digits, migrated: Path, tmp_path: Path
) -> None:
    shutil.copy(migrated, tmp_path / "state.db")
    application = create_app(settings_of(digits, tmp_path, retention_days=30), Alone(leader=leads))

    async def running() -> tuple[bool, bool]:
        async with application.api.router.lifespan_context(application.api):
            tasks = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
            assert "probe" in tasks
            return "prune" in tasks, application.runtime.monitors._thread.is_alive()

    assert asyncio.run(running()) == (leads, leads)
