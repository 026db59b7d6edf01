"""kill -9, again and again, of a service that predicts, takes feedback, refits, activates and rolls back: what is lost?

    python -m tests.hardening.kills [--kills 200] [--minutes 180] [--postgresql URL] [--imported] [--workers 2]

Each round starts `candor serve` on the state that the last kill left, waits until it is ready, checks that state, lets
five clients work (predictions with CANDOR_LOG_MODE=sync, feedback under idempotency keys, refits, policies, activations
and rollbacks, labelled sets), and kills it at a random moment: the service alone or with its children, one time in ten
while it starts. The first round has a labelled set acknowledged before its kill. With --workers, a worker is killed
first in each round, and the service must go on. Without --postgresql the state is SQLite in a temporary folder; with
it, a new database on that server. With --imported, the model is an imported one of LightGBM, and predictions come by
gRPC; without, it is that of digits.
Prints one JSON document; exits with 1 where something was lost, half done or left over.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from benchmarks.loop import state
from service.state.database import Database
from service.state.tables import activations, exposures, feedback_batches, jobs, labelled_sets, revisions
from tests.hardening.clients import Clients, Ledger
from tests.hardening.subjects import PATIENCE_S, Digits, Payments, Subject
from tests.hardening.victim import Victim, gone_after_s
from tests.hardening.whole_state import History, half_done, label_counts, missing_predictions
from tests.ports import free_port

TARGETS = ("predictions", "feedback", "refits", "moves", "sets")
END_S = 1_800  # what the kills left of jobs, one after the other, on what time of the processors is left over
STATE_FILES = {"state.db", "state.db-wal", "state.db-shm", "state.db.lock", "uploads"}


class Trial:
    """All rounds on one state.

    Args:
        folder: An empty folder, for all that the service writes.
        database_url: Its state.
        subject: What the clients ask about.
        seed: Of what is drawn.
        workers: Processes of the service.
        end_s: How long its jobs may take to end after the last kill.
    """

    def __init__(
        self, folder: Path, database_url: str, subject: Subject, seed: int, *, workers: int = 1, end_s: float = END_S
    ) -> None:
        self.problems: list[str] = []
        self.starts: list[tuple[float, float]] = []
        self.orphans_s: list[float] = []
        self.kills: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self._draw = random.Random(seed)
        self._end_s = end_s
        self._subject, self._workers = subject, workers
        self._ledger = Ledger()
        self._history = History()
        self._url = database_url
        self._state, self._temporary = folder / "state", folder / "tmp"
        self._state.mkdir()
        self._temporary.mkdir()
        self._log = folder / "log"
        self._mark = f"CANDOR_UPLOADS={self._state}/uploads"
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("CANDOR_")} | {
            **subject.settings,
            "CANDOR_WORKERS": str(workers),
            "CANDOR_DATABASE_URL": database_url,
            "CANDOR_UPLOADS": f"{self._state}/uploads",
            "CANDOR_POLL_INTERVAL_S": "0.1",
            "CANDOR_LOG_MODE": "sync",
            "CANDOR_KEEP_INPUTS": "all",
            "CANDOR_MONITOR_INTERVAL_S": "0.5",
            "CANDOR_MONITOR_MATURITY_S": "0.5",
            "TMPDIR": str(self._temporary),
        }

    def round(self) -> None:
        """Start the service, let clients work, kill it."""
        victim = Victim(self._environment, self._log)
        if self._draw.random() < 0.1 and self.starts:
            time.sleep(self._draw.uniform(0, statistics.median(seconds for seconds, _ in self.starts)))
            self._kill(victim, "starting")
            return
        clients = self._ready(victim)
        if not self._ledger.acknowledged["sets"]:  # else none might be: the clients leave its check no processor
            clients.upload()
        if self._workers > 1:
            self._work(clients, lambda _: self._kill_worker(victim))
            victim.wait_until_ready()
            clients = self._look(victim)
        self._work(clients, lambda target: self._kill(victim, target))

    def _work(self, clients: Clients, kill: Callable[[str], None]) -> None:
        """Let clients work until a kill comes at a random moment of a random request."""
        target = self._draw.choice(TARGETS)
        clients.start()
        time.sleep(self._draw.uniform(0, 3))
        clients.wait_until_busy(target)
        time.sleep(self._draw.uniform(0, 2.0 if target == "refits" else 0.05))
        self.in_flight.update(clients.busy())
        kill(target)
        clients.join()
        self.problems += clients.problems

    def end(self) -> None:
        """Start it once more, let everything end, and compare all that was ever acknowledged."""
        victim = Victim(self._environment, self._log)
        self._ready(victim).close()
        database = Database.open(self._url, readonly=True)
        try:
            give_up = time.monotonic() + self._end_s
            while unfinished := self._unfinished(database):
                if time.monotonic() > give_up:
                    self.problems.append(f"{unfinished} jobs did not end")
                    break
                time.sleep(0.1)
            self._check(database, everything=True)
        finally:
            database.close()
        if victim.stop() not in (0, -signal.SIGTERM):
            self.problems.append(f"it ended with {victim.popen.returncode}")
        self._look_for_remains(clean={"state.db", "state.db.lock", "uploads"})

    def report(self) -> dict[str, Any]:
        """Return what was done, what was lost, and how long it took."""
        starts = sorted(seconds for seconds, _ in self.starts)
        database = Database.open(self._url, readonly=True)
        try:
            with database.connect() as connection:
                ends = Counter(
                    (row.result or {}).get("state") or (row.error or {}).get("message") or row.state
                    for row in connection.execute(select(jobs))
                )
                moves = connection.execute(select(func.count()).select_from(activations)).scalar_one()
                looks = connection.execute(select(func.count()).select_from(exposures)).scalar_one()
        finally:
            database.close()
        return {
            "problems": self.problems,
            "killed": self.kills.total(),
            "kills": dict(self.kills),
            "in flight when killed": dict(self.in_flight),
            "acknowledged": self._ledger.counts(),
            "activations and rollbacks": moves,
            "looks": looks,
            "jobs": dict(ends),
            "ready after s": {
                "starts": len(starts),
                "median": round(statistics.median(starts), 2),
                "95 %": round(starts[int(0.95 * (len(starts) - 1))], 2),
                "longest": round(starts[-1], 2),
                "of the processor, median": round(statistics.median(cpu for _, cpu in self.starts), 2),
                "of the processor, longest": round(max(cpu for _, cpu in self.starts), 2),
            },
            "children gone after s": {"median": _rounded(self.orphans_s), "longest": round(max(self.orphans_s), 3)}
            if self.orphans_s
            else None,
        }

    def _kill(self, victim: Victim, when: str) -> None:
        with_children = self._draw.random() < 0.5
        children = victim.kill(with_children=with_children)
        alone = bool(children) and not with_children
        self.kills[f"{when}, {'the service alone' if alone else 'with its children' if children else 'no child'}"] += 1
        seconds = gone_after_s(self._mark)
        if seconds is None:
            self.problems.append("a child process lives on")
        elif alone:
            self.orphans_s.append(seconds)

    def _kill_worker(self, victim: Victim) -> None:
        os.kill(self._draw.choice(victim.children()), signal.SIGKILL)
        self.kills["a worker"] += 1

    def _ready(self, victim: Victim) -> Clients:
        victim.wait_until_ready()
        assert victim.ready_after_s is not None
        assert victim.processor_s is not None
        self.starts.append((victim.ready_after_s, victim.processor_s))
        return self._look(victim)

    def _look(self, victim: Victim) -> Clients:
        """Return clients, after they have sent again what was not answered and the state was checked."""
        clients = Clients(victim.url, self._subject, self._ledger, self._draw.randrange(1 << 30))
        clients.send_again()
        self.problems += clients.problems
        self._look_for_remains(clean=STATE_FILES)
        database = Database.open(self._url, readonly=True)
        try:
            self._check(database, everything=False)
        finally:
            database.close()
        return clients

    def _check(self, database: Database, *, everything: bool) -> None:
        ledger = self._ledger
        with database.connect() as connection:
            found = half_done(connection, self._subject.model) + self._history.problems(connection)
            keys = set(connection.scalars(select(feedback_batches.c.idempotency_key)))
            pointed = {(row.epoch, row.active) for row in connection.execute(select(activations))}
            there = {
                "feedback": keys,
                "moves": pointed,
                "revisions": {f"r{n}" for n in connection.scalars(select(revisions.c.number))},
                "jobs": {f"j{n}" for n in connection.scalars(select(jobs.c.number))},
                "sets": {f"ls{n}" for n in connection.scalars(select(labelled_sets.c.number))},
            }
            for name, names in ledger.acknowledged.items():
                if lost := set(names) - there[name]:
                    found.append(f"{len(lost)} acknowledged {name} lost, such as {sorted(lost)[0]}")
            ids = ledger.predictions if everything else ledger.predictions[-2_000:]
            if lost_predictions := missing_predictions(connection, ids):
                found.append(f"{lost_predictions} acknowledged predictions lost")
            counts = label_counts(connection)
            if missing := [target for target in ledger.labelled if counts[target] != 1]:
                found.append(f"{len(missing)} acknowledged labels are not there once, such as {missing[0]}")
        self.problems += found

    def _unfinished(self, database: Database) -> int:
        with database.connect() as connection:
            unfinished = jobs.c.state.in_(("queued", "running"))
            return int(connection.execute(select(func.count()).select_from(jobs).where(unfinished)).scalar_one())

    def _look_for_remains(self, *, clean: set[str]) -> None:
        """Look for files that nobody needs any more; a worker that replaces a killed one removes them first."""
        give_up = time.monotonic() + (PATIENCE_S if self._workers > 1 else 0)
        while left := self._remains(clean):
            if time.monotonic() > give_up:
                self.problems.append(f"left over: {sorted(left)}")
                return
            time.sleep(0.1)

    def _remains(self, clean: set[str]) -> set[str]:
        left = {path.name for path in self._state.iterdir()} - clean
        left |= {path.name for path in (self._state / "uploads").glob("*")}
        return left | {path.name for path in self._temporary.iterdir()}


def _rounded(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=180, help="After these no other kill.")
    parser.add_argument("--postgresql", help="URL of a server on which a database may be made.")
    parser.add_argument("--bundles", type=Path, default=Path("examples/bundles"))
    parser.add_argument("--imported", action="store_true", help="An imported model, asked by gRPC.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, state(Path(folder) / "state", arguments.postgresql) as url:
        subject = Payments(Path(folder) / "bundles", free_port()) if arguments.imported else Digits(arguments.bundles)
        trial = Trial(Path(folder), url, subject, arguments.seed, workers=arguments.workers)
        try:
            give_up = time.monotonic() + 60 * arguments.minutes
            while trial.kills.total() < arguments.kills and time.monotonic() < give_up:
                trial.round()
                print(f"{trial.kills.total()} kills, {trial.problems}", file=sys.stderr, flush=True)
            trial.end()
        except BaseException:
            print((Path(folder) / "log").read_text()[-5_000:], file=sys.stderr)
            print(trial.problems, file=sys.stderr)
            raise
        machine = {"processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
        print(json.dumps({"database": url.partition(":")[0], **machine, **trial.report()}, indent=1))
    sys.exit(bool(trial.problems))


if __name__ == "__main__":
    main()
