"""What was acknowledged survives `kill -9`."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
from sqlalchemy import func, select, text, update

from candor.contract.policies import Review
from service.state import audit
from service.state.cases import CaseStore
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.labelled import load_labelled_rows
from service.state.predictions import PredictionLog
from service.state.reviewed import Reviewed
from service.state.revisions import RevisionStore
from service.state.tables import cases, feedback, predictions
from service.state.window import Window
from tests.waiting import until

from .conftest import DIGEST, LABELS, batch, prediction_id

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


CLAIMS = """
import sys
from functools import partial
from service.state.cases import CaseStore
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore

database = Database.open(sys.argv[1])
queue, store, done = CaseStore(database), FeedbackStore(database), 0
while claimed := queue.claim_next("pets", "ann", count=5, lease_us=600_000_000):
    for case in claimed[:3]:  # the others stay claimed
        items = [FeedbackItem(case.id, None, "cat", "reviewer")]
        within = partial(queue.label_within, model="pets", id_=case.id, by="ann", label="cat", lease=case.lease)
        store.submit("pets", items, by="ann", within=within).result()
        done += 1
        print(done, flush=True)
"""


def test_claimed_cases(url: str) -> None:
    database = Database.open(url)
    log = PredictionLog(database)
    ids = [prediction_id(number) for number in range(100)]
    n = len(ids)
    queued = Reviewed("all", Review(), np.linspace(0, 1, n))
    assert log.append(batch(ids, actions=["review"] * n, reviewed=queued))
    log.close()
    database.close()
    acknowledged = killed_after(CLAIMS, url, 20)
    database = Database.open(url)
    queue, store = CaseStore(database), FeedbackStore(database)
    assert queue.counts()["pets"].claimed >= 2
    with database.begin() as connection:  # until the claims have expired
        connection.execute(update(cases).values(lease_until=cases.c.lease_until - 600_000_000))

    def finish() -> bool:
        for case in queue.claim_next("pets", "bob", count=20, lease_us=60_000_000):
            items = [FeedbackItem(case.id, None, "dog", "reviewer")]
            within = partial(queue.label_within, model="pets", id_=case.id, by="bob", label="dog", lease=case.lease)
            assert store.submit("pets", items, by="bob", within=within).result().stored == 1
        return not queue.counts()

    until(finish)
    with database.connect() as connection:
        labels = connection.execute(select(feedback.c.target, feedback.c.label)).all()
    assert sorted(target for target, _ in labels) == ids  # each once
    assert sum(label == "cat" for _, label in labels) >= acknowledged
    assert clean(database)
    database.close()
