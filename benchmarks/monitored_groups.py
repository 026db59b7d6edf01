"""Monitors of certificates where groups come back, by simulation: a table of docs/explanation/statistics.md.

    python -m benchmarks.monitored_groups [--worlds 1000]

Takes about a minute for 100 worlds on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import Threshold
from candor.contract.conditions import Per
from service.decisions.rows import ScoredRows
from service.monitoring.certificate import CertificateMonitor

Cohort = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]
"""Groups, amounts and errors of the rows of a day."""

TOLERANCE: Final = 0.05
_DAYS: Final = 60
_CARDS: Final = 60
_BUSY: Final = 1 / 8


def cards(
    rng: np.random.Generator, size: int, busy: float, others: float, *, together: bool = False, days: int = _DAYS
) -> Iterator[Cohort]:
    """Yield days of 60 new cards: one of eight is busy and has many rows. Amounts are as large as the rows are many.

    Args:
        rng: Generator.
        size: Rows of a busy card.
        busy: Rate of errors of busy cards.
        others: That of the others.
        together: Whether the rows of a card are all errors or none.
        days: Number of days.
    """
    for day in range(days):
        rows = np.where(rng.random(_CARDS) < _BUSY, size, 1)
        rate = np.repeat(np.where(rows > 1, busy, others), rows)
        drawn = np.repeat(rng.random(_CARDS), rows) if together else rng.random(len(rate))
        order = rng.permutation(len(rate))
        group = np.repeat(np.arange(_CARDS) + day * _CARDS, rows)
        yield group[order], np.ones(len(rate)), (drawn < rate)[order]


def entities(
    rng: np.random.Generator, *, drifted: float | None = None, count: int = 100, busy: int = 1, days: int = _DAYS
) -> Iterator[Cohort]:
    """Yield days of the same entities, each with its own rate of errors: 5 % in the mean, or another from day 30 on.

    Args:
        rng: Generator.
        drifted: Mean rate from day 30 on; None for none.
        count: Number of entities.
        busy: Rows a day of one entity of eight; the others have one.
        days: Number of days.
    """
    rate, rows = rng.beta(0.5, 9.5, count), np.where(rng.random(count) < _BUSY, busy, 1)
    for day in range(days):
        now = rate if drifted is None or day < 30 else np.full(count, drifted)
        group = np.repeat(np.arange(count), rows)
        yield group, np.ones(len(group)), rng.random(len(group)) < now[group]


def fired(cohorts: Iterator[Cohort], per: Per, sought: float = 1.0) -> int:
    """Return the number of rows after which the alarm goes off; 0 for never.

    Args:
        cohorts: Days of rows.
        per: What the certificate counts.
        sought: Probability with which each label is sought.
    """
    every = Threshold.at(0.0, -math.inf)
    watch = CertificateMonitor(
        metric="precision", tolerance=TOLERANCE, threshold=every, floor=sought, level=0.05, since=0, per=per
    )
    seeking = np.random.default_rng(1)
    for group, amount, error in cohorts:
        start, p = watch.alarm.through, np.full(len(group), 0.9, np.float32)
        end = start + len(group)
        time = np.arange(start, end)
        asked = seeking.random(len(group)) < sought
        rows = ScoredRows(
            probability=p,
            score=p,
            positive=~error,
            group=group,
            amount=amount,
            predicted_at=time,
            propensity=np.full(len(group), sought),
            sought=asked,
            labelled=asked,
        )
        watch.update(rows, through=end)
        if watch.alarm.fired_at is not None:
            return end
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000)
    worlds = parser.parse_args().worlds
    rng = np.random.default_rng(0)
    print(f"| traffic | {' | '.join(get_args(Per))} |\n|---|---|---|---|")
    busy = "busy cards of 30 rows 40 % wrong, others 0 % (rows 32 %, cards 5 %)"
    for name, sought, new in (
        (
            "busy cards of 10 rows 0.1 % wrong, others 7 % (rows 2.9 %, cards 6.1 %)",
            1.0,
            lambda: cards(rng, 10, 0.001, 0.07),
        ),
        ("busy cards of 10 rows 0 % wrong, others 12.1 % (rows 5 %)", 1.0, lambda: cards(rng, 10, 0.0, 0.1214)),
        ("busy cards of 10 rows 8.5 % wrong, others 0 % (rows 5 %)", 1.0, lambda: cards(rng, 10, 0.085, 0.0)),
        ("the same, all rows of a card alike", 1.0, lambda: cards(rng, 10, 0.085, 0.0, together=True)),
        (
            "busy cards of 30 rows 12 % wrong, others 0.1 % (rows 9.7 %, cards 1.6 %)",
            1.0,
            lambda: cards(rng, 30, 0.12, 0.001),
        ),
        (busy, 1.0, lambda: cards(rng, 30, 0.4, 0.0)),
        ("the same, each label sought with a probability of 10 %", 0.1, lambda: cards(rng, 30, 0.4, 0.0)),
        ("the same 100 entities each day, 5 % wrong", 1.0, lambda: entities(rng)),
        ("the same 20 entities each day, 5 % wrong", 1.0, lambda: entities(rng, count=20)),
        ("the same 100 entities, one of eight with 10 rows a day, 5 % wrong", 1.0, lambda: entities(rng, busy=10)),
        ("the same 100 entities, 20 % wrong from day 30 on", 1.0, lambda: entities(rng, drifted=0.2)),
        ("the same 100 entities, 10 % wrong from day 30 on", 1.0, lambda: entities(rng, drifted=0.1)),
    ):
        cells = []
        for per in get_args(Per):
            alarms = np.array([fired(new(), per, sought) for _ in range(worlds)])
            after = f", after {np.median(alarms[alarms > 0]):,.0f} rows" if (alarms > 0).mean() > 0.5 else ""
            cells.append(f"{(alarms > 0).mean():.1%}{after}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
