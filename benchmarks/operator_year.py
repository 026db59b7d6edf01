"""How often an operator's year has a false certificate: dry runs, other promises, late labels, chosen windows, uploads.

    python -m benchmarks.operator_year [--worlds 500]

Labels do not depend on scores and come at a rate just under the promise, so every certificate is false, whichever model
scores the rows. Looks are recorded in a state, as a service does. Takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import scipy

from bundle.split import CERTIFY, roles
from candor.contract.certificates import Basis
from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.counting import seed_of
from service.decisions.policy import parse_policy
from service.decisions.rows import NO_LABEL, Rows, ScoredRows, came
from service.decisions.windows import windows
from service.recalibration.policies import first_shown
from service.recalibration.rows import divide
from service.state.database import Database
from service.state.looks import record_look
from service.times import DAY_US

DELTA = 0.3  # a large one, so that few worlds tell
RATE = 0.9  # of positive labels
PROMISE = 0.9005
EXPLORED = 0.4
START_US = 20_000 * DAY_US
KINDS = ("the rule's window", "a chosen window")


def policy(promise: float) -> Policy:
    bands = [{"action": "block", "when": {"min_precision": promise}}, {"action": "allow"}]
    explore = {"share": EXPLORED, "actions": ["block", "allow"]}
    return parse_policy(
        {"id": "p", "positive": "yes", "bands": bands, "explore": explore, "certify": {"delta": DELTA, "per": "group"}}
    )


def traffic(rng: np.random.Generator, rows: int, day: int) -> Rows:
    """Return a day's predictions: half are reviewed, others explored; wrong labels come late, some not yet."""
    positive, score = rng.random(rows) < RATE, rng.normal(size=rows).astype(np.float32)
    propensity = np.where(score > 0, 1.0, EXPLORED)
    sought = rng.random(rows) < propensity
    label = np.where(sought & (rng.random(rows) > np.where(positive, 0.0, 0.01)), positive, NO_LABEL)
    time = np.sort(START_US + day * DAY_US + rng.integers(0, DAY_US, rows))
    return Rows(
        logits=np.stack([-score, score], axis=1),
        label=label,
        group=rng.integers(-(2**63), 2**63 - 1, rows),
        propensity=propensity,
        sought=sought,
        labelled=came(label, sought, propensity),
        predicted_at=time,
        labelled_at=np.where(label != NO_LABEL, time + np.where(positive, DAY_US // 4, DAY_US // 2), 0),
    )


def completed(rng: np.random.Generator, rows: Rows, at: int) -> Rows:
    """Return the rows after all labels have come."""
    late = rows.was_sought() & (rows.label == NO_LABEL)
    label = np.where(late, rng.random(len(rows)) < RATE, rows.label)
    labelled_at = np.where(late, at, rows.labelled_at)
    return replace(rows, label=label, labelled=came(label, rows.was_sought(), rows.propensity), labelled_at=labelled_at)


def scored(rows: Rows) -> ScoredRows:
    score = rows.logits[:, 1]
    return ScoredRows.of(rows, probability=scipy.special.expit(score), score=score, positive=rows.label == 1)


class Operator:
    """Recalibrates one model, and notes which kinds of looks have certified anything."""

    def __init__(self, database: Database, model: str) -> None:
        self._database, self._model = database, model
        self.false: set[str] = set()

    def look(self, promise: float, rows: Rows, day: int, *, basis: Basis = "traffic", since: int | None = None) -> None:
        """Solve a policy on rows of the traffic, from a chosen time on if one is given."""
        wanted, at = policy(promise), START_US + day * DAY_US
        division = divide(rows if since is None else rows.since(since), unsought_may_fit=False, min_rows=30)
        certify = division.certify
        look = record_look(
            self._database,
            self._model,
            "digest",
            "certify",
            basis,
            wanted.positive,
            earliest_row_us=first_shown(wanted, certify) if basis == "traffic" else 0,
            at=at,
            groups=certify.group[certify.known()],
        )
        found = solve(
            wanted,
            version=1,
            fit=scored(division.fit),
            certify=scored(certify),
            look=look.number,
            basis=basis,
            seed=seed_of(7, look.ordinal),
            windows=windows(since, None, at_us=at, rows=len(certify)),
            spent=look.spent,
        ).bands[0]
        if found.stands:
            self.false.add(KINDS[since is not None])


def luckiest(rows: Rows, days: int) -> int:
    """Return the midnight since which most labels of the certify rows are positive, among those of the first days."""
    certify = rows.take((roles(rows.group) == CERTIFY) & rows.known())
    starts = [START_US + day * DAY_US for day in range(days)]
    return max(starts, key=lambda start: certify.since(start).label.mean())


def year(rng: np.random.Generator, operator: Operator) -> None:
    """Do what operators do, and look each time."""
    first = traffic(rng, 900, day=0)
    operator.look(PROMISE, first, day=2)
    operator.look(0.92, first, day=2)
    both = Rows.concat([first, traffic(rng, 700, day=3)])
    operator.look(PROMISE, both, day=5)
    operator.look(PROMISE, both, day=5, since=luckiest(both, 4))
    both = completed(rng, both, START_US + 6 * DAY_US)
    operator.look(PROMISE, both, day=6)
    fresh = traffic(rng, 800, day=7)  # of another model
    operator.look(PROMISE, fresh, day=9)
    rows = Rows.concat([both, fresh])
    score = rng.normal(size=len(rows)).astype(np.float32)
    operator.look(PROMISE, replace(rows, logits=np.stack([-score, score], axis=1)), day=9)  # all scored again
    operator.look(PROMISE, fresh, day=10, basis="uploaded")
    operator.look(PROMISE, traffic(rng, 600, day=10), day=11, basis="uploaded")
    operator.look(PROMISE, rows, day=8)  # the clock was set back


def false_certificates(worlds: int, seed: int = 1) -> Counter[str]:
    """Return in how many years each kind of window has certified falsely."""
    found: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        database = Database.open(f"sqlite:///{Path(folder)}/state.db")
        for world in range(worlds):
            operator = Operator(database, f"model{world}")
            year(np.random.default_rng((seed, world)), operator)
            found.update(operator.false)
        database.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=500)
    worlds = parser.parse_args().worlds
    found = false_certificates(worlds)
    for kind in KINDS:
        print(f"| {kind} | {found[kind] / worlds:.1%} of years, delta {DELTA:.0%} |")


if __name__ == "__main__":
    main()
