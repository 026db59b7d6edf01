"""What was acknowledged survives `kill -9`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from sqlalchemy import func, select, text

from service.state import audit
from service.state.database import Database
from service.state.labelled import load_labelled_rows
from service.state.revisions import RevisionStore
from service.state.tables import feedback, predictions
from service.state.window import Window

from .conftest import DIGEST, LABELS

FEEDBACK = """
import sys
from itertools import count
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore

store = FeedbackStore(Database.open(sys.argv[1]))
for number in count():
    store.add("pets", [FeedbackItem(None, f"tx-{number}-{item}", "cat", "client") for item in range(5)], by="till")
    print(number, flush=True)
"""

ACTIVATIONS = """
import sys
from calibrators import Identity
from service.state.database import Database
from service.state.revisions import RevisionStore

store = RevisionStore(Database.open(sys.argv[1]))
epoch = 0
while True:
    revision = store.propose(model="pets", bundle_id="b", bundle_version=1, model_digest="d", calibrator=Identity(),
                             policies={}, parent=None, cause="policy", by="ops", gate="not_run")
    epoch = store.activate("pets", revision.id, expected_epoch=epoch, by="ops").epoch
    print(epoch, flush=True)
"""

PREDICTIONS = """
import sys
from itertools import count
import numpy as np
from service.state.database import Database
from service.state.prediction_rows import PredictionBatch
from service.state.predictions import PredictionLog

log = PredictionLog(Database.open(sys.argv[1]))
for number in count():
    ids = [f"01J{number:021d}{row:02d}" for row in range(20)]
    none = [None] * 20
    log.append(PredictionBatch("pets", "d", "r1", None, number, ids, none, none, np.zeros((20, 4)),
                               np.zeros((20, 3), np.float32), np.zeros(20, int), np.ones(20), none, none, [False] * 20))
    if number % 10 == 9:
        log.flush()
        print(log.written, flush=True)
"""


def killed_after(program: str, url: str, acknowledgements: int) -> int:
    """Run a program, kill it while it works, and return the last number that it acknowledged."""
    child = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as lines:
        for line in lines:
            if int(line) >= acknowledgements:
                child.send_signal(signal.SIGKILL)
                break
        else:
            raise AssertionError("the child ended by itself")
        last = [int(line), *(int(rest) for rest in lines if rest.endswith("\n"))][-1]
    assert child.wait() == -signal.SIGKILL
    return last


def clean(database: Database) -> bool:
    if database.engine.dialect.name != "sqlite":
        return True
    with database.connect() as connection:
        return connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]


def test_acknowledged_feedback(url: str) -> None:
    acknowledged = killed_after(FEEDBACK, url, 20)
    database = Database.open(url)
    with database.connect() as connection:
        rows = connection.execute(select(func.count()).select_from(feedback)).scalar_one()
        assert load_labelled_rows(connection, Window("pets", DIGEST), label_names=LABELS).pending == rows
    assert rows >= (acknowledged + 1) * 5
    assert rows % 5 == 0
    assert clean(database)
    database.close()


def test_an_acknowledged_activation(url: str) -> None:
    acknowledged = killed_after(ACTIVATIONS, url, 20)
    database = Database.open(url)
    store = RevisionStore(database)
    pointer = store.pointer("pets")
    assert pointer is not None
    assert pointer.epoch >= acknowledged
    assert pointer.active == f"r{pointer.epoch}"
    assert store.get("pets", pointer.active).model == "pets"
    activations = [entry for entry in audit.read(database, limit=10_000) if entry.action == "activate"]
    assert len(activations) == pointer.epoch
    assert clean(database)
    database.close()


def test_flushed_predictions(url: str) -> None:
    acknowledged = killed_after(PREDICTIONS, url, 2_000)
    database = Database.open(url)
    with database.connect() as connection:
        assert connection.execute(select(func.count()).select_from(predictions)).scalar_one() >= acknowledged
    assert clean(database)
    database.close()


def test_a_folder_moved_with_its_write_ahead_log_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    acknowledged = killed_after(FEEDBACK, f"sqlite:///{tmp_path}/a/state.db", 10)
    assert (tmp_path / "a" / "state.db-wal").exists()
    (tmp_path / "a").rename(tmp_path / "b")
    database = Database.open(f"sqlite:///{tmp_path}/b/state.db")
    with database.connect() as connection:
        rows = connection.execute(select(func.count()).select_from(feedback)).scalar_one()
    assert rows >= (acknowledged + 1) * 5
    database.close()
