"""The operations guide's commands back up a running service and bring it back as it was then."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
IMAGES = 20


def commands(which: str) -> tuple[str, str]:
    """Return the guide's commands that back up and restore a database: those that name the file of the back-up."""
    guide = (ROOT / "docs/how-to/operations.md").read_text()
    backup, restore = (
        line for line in re.findall(r"^\$ (.*(?:\n  .*)*)", guide, re.MULTILINE) if f"candor-backup.{which}" in line
    )
    return backup, restore


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_what_was_backed_up_comes_back(
    database: str, spawn: Any, digits: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "sqlite:///state.db"  # relative, as the documented default is
    if database == "postgresql":
        url = spawn.environment["CANDOR_DATABASE_URL"] = request.getfixturevalue("postgresql_url")
    backup, restore = commands("db" if database == "sqlite" else "dump")
    (tmp_path / "docker").symlink_to(ROOT / "docker")
    (tmp_path / ".venv").symlink_to(sys.prefix)

    def shell(command: str) -> None:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=tmp_path,
            env=spawn.environment | {"CANDOR_DATABASE_URL": url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr

    running = spawn(log_mode="sync")
    rows = running.predict(digits.images[:IMAGES])
    items = [{"prediction_id": row["prediction_id"], "label": digits.labels[place]} for place, row in enumerate(rows)]
    assert running.http.post("/feedback", json={"items": items}).json()["stored"] == IMAGES
    before = running.revisions()
    shell(backup)
    later = running.propose_policy()
    running.predict(digits.images[:1])
    running.close()
    if database == "postgresql":
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE of_a_newer_version (id bigint)")
    shell(restore)
    if database == "postgresql":  # else the next upgrade finds a table that it wants to make
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regclass('of_a_newer_version')").fetchone() == (None,)
    running = spawn(log_mode="sync")
    assert later not in [one["id"] for one in running.revisions()["items"]]
    assert running.revisions() == before
    assert running.http.post("/feedback", json={"items": items}).json()["duplicates"] == IMAGES
    assert running.predict(digits.images[:1])[0]["probabilities"] == rows[0]["probabilities"]
    assert running.propose_policy() == later
