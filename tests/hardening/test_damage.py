"""Files that are damaged or gone: what can go on goes on, the rest is refused and says what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.errors import CandorError, ConfigurationError

PAGE_BYTES = 4096
RESTORE = "Restore it from a backup"


def overwrite(state: Path, page: int, size: int = PAGE_BYTES) -> None:
    """Write over a page from another process: to close the file in this one would end the locks of its service."""
    command = [
        "dd",
        f"of={state}",
        "conv=notrunc",
        "oflag=seek_bytes",
        f"seek={(page - 1) * PAGE_BYTES}",
        "status=none",
    ]
    subprocess.run(command, input=b"\xa5" * size, check=True)


def root_page(state: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{state}?immutable=1", uri=True)) as database:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return int(database.execute(query, (table,)).fetchone()[0])


@pytest.fixture
def state(start: Any, digits: Any, tmp_path: Path) -> Path:
    """The state that a service has left."""
    service = start()
    service.teach(digits.dimmed[:200], digits.labels[:200])
    service.close()
    return tmp_path / "state.db"


@pytest.mark.parametrize("part", ["header", "half", "secrets", "activations"])
def test_a_state_without_which_nothing_can_be_served_is_refused(start: Any, state: Path, part: str) -> None:
    if part == "half":
        os.truncate(state, state.stat().st_size // 2)
    else:
        overwrite(state, 1 if part == "header" else root_page(state, part), 100 if part == "header" else PAGE_BYTES)
    with pytest.raises(CandorError) as caught:
        start()
    assert RESTORE in str(caught.value.remedy)


@pytest.mark.parametrize("running", [False, True])
def test_labels_that_are_damaged_are_refused_and_predictions_go_on(
    start: Any, digits: Any, state: Path, running: bool
) -> None:
    page = root_page(state, "feedback")  # while nobody has the file open, see `overwrite`
    service = start() if running else None
    overwrite(state, page)
    service = service or start()
    items = [{"reference": "tx-1", "label": "1"}]
    for answer in (service.http.post("/feedback", json={"items": items}), service.recalibrate()):
        assert answer.status_code == 503, answer.text
        assert RESTORE in answer.json()["remedy"]
    assert len(service.predict(digits.images[:3])) == 3
    assert service.http.get("/readyz").json()["models"] == {"digits": "r1"}


def test_a_folder_of_bundles_that_vanishes_stops_refits_and_nothing_else(
    start: Any, digits: Any, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    service = start(bundles=root)
    service.teach(digits.dimmed[:200], digits.labels[:200])
    proposal = service.propose_policy()
    root.rename(tmp_path / "elsewhere")
    refit = service.recalibrate()
    assert (refit.status_code, refit.json()["type"]) == (409, "/errors/bundle-refused")
    assert str(root) in refit.json()["detail"]
    assert "Restore the folder" in refit.json()["remedy"]
    assert len(service.predict(digits.images[:3])) == 3
    assert service.activate(proposal)["active"] == proposal  # of the bundle that is in memory
    assert service.http.get("/readyz").status_code == 200
    service.close()
    with pytest.raises(ConfigurationError, match="does not exist"):
        start(bundles=root)
    (tmp_path / "elsewhere").rename(root)
    again = start(bundles=root)
    assert again.http.get("/readyz").json()["models"] == {"digits": proposal}
    assert again.recalibrate().status_code == 200
