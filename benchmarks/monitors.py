"""False alarms and detection delays of the monitors, by simulation: the tables of docs/explanation/statistics.md.

    python -m benchmarks.monitors [--worlds 120]

Many worlds are simulated at a time with the monitors' values and stakes; tests show that a monitor gives the same
numbers row by row. Takes about five minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from candor.contract.certificates import Threshold
from service.decisions.levels import level_of
from service.decisions.rows import ScoredRows
from service.monitoring import calibration, certificate
from service.monitoring.calibration import CalibrationMonitor
from service.monitoring.certificate import CertificateMonitor
from service.monitoring.onset import advance, first_stakes, log_evidence

Array = NDArray[np.float64]
Row = Callable[[np.random.Generator, int, bool], Array]
"""Returns the log factors of one row in each world, (W, J), from (generator, W, whether the drift has begun)."""

LEVEL = 0.05
EVERY = 5  # rows between two looks
CLEAN = (0, 10_000, 100_000)


def promise(tolerance: float, clean: float, drifted: float, propensity: Sequence[tuple[float, float]]) -> Row:
    """Rows of one certificate's denominator whose label is sought, with error rates before and after the drift.

    Each region has a share of the traffic and a propensity.
    """
    bets = certificate.bets(tolerance)
    shares, levels = np.array(propensity).T
    floor = levels.min()
    labelled = shares * levels / (shares @ levels)

    def row(rng: np.random.Generator, worlds: int, begun: bool) -> Array:
        error = rng.random(worlds) < (drifted if begun else clean)
        weight = floor / levels[rng.choice(len(levels), worlds, p=labelled)]
        value = np.where(error, (1 - tolerance) / tolerance, -1.0)
        return np.log1p(np.outer(weight * value, bets))

    return row


def stated(mean: float, spread: float, truth: Callable[[Array], Array], before: Callable[[Array], Array]) -> Row:
    """Rows with stated log-odds from N(mean, spread²), positive at rates from one curve before and one after drift."""
    # A table of values instead of exponentials per row: probabilities are rounded to 1/4,000.
    grid = (np.arange(4000) + 0.5) / 4000
    right, wrong = (np.log1p(table) for table in calibration.values(grid, calibration.TOLERANCE))
    log_odds = np.log(grid / (1 - grid))
    rates = [curve(log_odds) for curve in (before, truth)]

    def row(rng: np.random.Generator, worlds: int, begun: bool) -> Array:
        at = (expit(rng.normal(mean, spread, worlds)) * 4000).astype(np.intp)
        positive = rng.random(worlds) < rates[begun][at]
        return np.where(positive[:, None], right[at], wrong[at])

    return row


def run(
    row: Row, log_weights: Array, worlds: int, clean: int, rows: int, seed: int | Sequence[int], level: float = LEVEL
) -> NDArray[np.int64]:
    """Return the row of each world's alarm; 0 without an alarm within clean + rows."""
    rng = np.random.default_rng(seed)
    stakes = first_stakes((worlds, len(log_weights)))
    fired = np.zeros(worlds, np.int64)
    for t in range(1, clean + rows + 1):
        advance(stakes, row(rng, worlds, t > clean), t)
        if t % EVERY == 0:
            fired[(log_evidence(stakes, log_weights, t) >= -math.log(level)) & (fired == 0)] = t
            if t > clean and fired.all():
                break
    return fired


def restarted(row: Row, log_weights: Array, worlds: int, times: int, rows: int, *, shared: bool) -> float:
    """Return the share of worlds in which any of several successive monitors fires."""
    any_fired = np.zeros(worlds, np.bool_)
    for k in range(1, times + 1):
        level = level_of(LEVEL, k) if shared else LEVEL
        any_fired |= run(row, log_weights, worlds, 0, rows, seed=(3, k), level=level) > 0
    return float(any_fired.mean())


def hasty(kind: type[CertificateMonitor] | type[CalibrationMonitor], worlds: int, rows: int) -> tuple[float, float]:
    """Return how often a true statement alarms if errors are labelled within hours and right answers within days.

    100 predictions per day: in daily cohorts that are three days old, and in order of label arrival.
    """
    rng = np.random.default_rng(4)
    time = np.arange(rows) * 10
    fired = np.zeros((worlds, 2), np.bool_)
    for world in range(worlds):
        promise = kind is CertificateMonitor
        p = np.full(rows, 0.9) if promise else expit(rng.normal(1.5, 1.5, rows))
        positive = rng.random(rows) < p
        due = time + (rng.exponential(np.where(positive, 4.0, 0.2)) * 1000).astype(np.int64) + 1
        stated = p.astype(np.float32)
        of_day, of_arrival = (
            CertificateMonitor(
                metric="precision",
                tolerance=0.1,
                threshold=Threshold.at(0.0, -math.inf),
                floor=1.0,
                level=LEVEL,
                since=0,
            )
            if promise
            else CalibrationMonitor(floor=1.0, level=LEVEL, since=0)
            for _ in range(2)
        )
        for start in range(0, 10 * rows, 1000):
            day = (time >= start) & (time < start + 1000)
            come, sought = due[day] <= start + 4000, np.ones(int(day.sum()), np.bool_)
            cohort = ScoredRows(
                probability=stated[day],
                score=stated[day],
                positive=positive[day],
                labelled=come,
                sought=sought,
                predicted_at=time[day],
                group=time[day],
            )
            of_day.update(cohort, through=start + 1000)
        order = np.argsort(due, kind="stable")
        arrived = ScoredRows(
            probability=stated[order], score=stated[order], positive=positive[order], predicted_at=np.arange(rows)
        )
        of_arrival.update(arrived, through=rows)
        fired[world] = of_day.alarm.fired_at is not None, of_arrival.alarm.fired_at is not None
    return float(fired[:, 0].mean()), float(fired[:, 1].mean())


def even(bets: int) -> Array:
    return np.full(bets, -math.log(bets))


def off_by(offset: float, log_odds: Array) -> Array:
    return np.clip(expit(log_odds) + offset, 0.0, 1.0)


def line(name: str, row: Row, log_weights: Array, worlds: int, rows: int, level: float = LEVEL) -> None:
    cells = []
    early = 0.0
    for clean in CLEAN:
        fired = run(row, log_weights, worlds if clean < 50_000 else worlds // 2, clean, rows, seed=clean, level=level)
        early = float(((fired > 0) & (fired <= clean)).mean())
        after = np.where(fired > clean, fired - clean, np.iinfo(np.int64).max)[~((fired > 0) & (fired <= clean))]
        middle, most = (np.quantile(after, q, method="higher") for q in (0.5, 0.9))
        cells.append(" / ".join(f"{x:,.0f}" if x <= rows else f"> {rows:,}" for x in (middle, most)))
    print(f"| {name} | {' | '.join(cells)} | {early:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=120)
    worlds = parser.parse_args().worlds
    certain = [(1.0, 1.0)]
    weights = calibration.LOG_WEIGHTS

    print("| hypothesis, at its edge | fired within 20,000 labels |\n|---|---|")
    for tolerance in (0.5, 0.05, 0.01):
        row = promise(tolerance, tolerance, tolerance, certain)
        fired = run(
            row, even(len(certificate.bets(tolerance))), 10 * worlds, 0, 20_000, seed=1, level=LEVEL * certificate.ROWS
        )
        print(f"| tolerated {tolerance:g}, rate {tolerance:g} | {(fired > 0).mean():.1%} |", flush=True)
    for offset in (0.02, -0.02):
        edge = partial(off_by, offset)
        fired = run(stated(2, 1.5, edge, edge), weights, 2 * worlds, 0, 20_000, seed=1)
        print(f"| rate p {offset:+g}, log-odds from N(2, 1.5) | {(fired > 0).mean():.1%} |", flush=True)

    print("\n| twenty monitors, one after the other, 1,000 labels each | any of them fired |\n|---|---|")
    for name, shared in (("the k-th at 5 %/(k(k + 1))", True), ("each at 5 %", False)):
        row, weights_of = promise(0.05, 0.05, 0.05, certain), even(len(certificate.bets(0.05)))
        share = restarted(row, weights_of, 10 * worlds, 20, 1_000, shared=shared)
        print(f"| tolerated 0.05, rate 0.05, {name} | {share:.1%} |", flush=True)

    print("\n| true, and errors are found sooner | in cohorts | in order of arrival |\n|---|---|---|")
    for name, kind in (("precision 0.9 promised and kept", CertificateMonitor), ("calibrated", CalibrationMonitor)):
        in_order, at_once = hasty(kind, worlds, 3_000)
        print(f"| {name} | {in_order:.1%} | {at_once:.1%} |", flush=True)

    print("\n| drift | after 0 | after 10⁴ | after 10⁵ | false alarm before |\n|---|---|---|---|---|")
    for tolerance, clean, drifted, where, rows in (
        (0.05, 0.03, 0.08, certain, 6_000),
        (0.05, 0.03, 0.10, certain, 4_000),
        (0.05, 0.03, 0.20, certain, 1_000),
        (0.05, 0.05, 0.10, certain, 4_000),
        (0.01, 0.005, 0.03, certain, 6_000),
        (0.1, 0.05, 0.2, certain, 2_000),
        (0.05, 0.03, 0.10, [(0.5, 1.0), (0.5, 0.2)], 20_000),
    ):
        name = f"tolerated {tolerance:g}, rate {clean:g} → {drifted:g}"
        name += "" if where is certain else ", half of the rows at propensity 0.2"
        line(
            name,
            promise(tolerance, clean, drifted, where),
            even(len(certificate.bets(tolerance))),
            worlds,
            rows,
            LEVEL * certificate.ROWS,
        )

    print("\n| drift | after 0 | after 10⁴ | after 10⁵ | false alarm before |\n|---|---|---|---|---|")
    curves: list[tuple[str, float, float, Callable[[Array], Array]]] = [
        ("T 1 → 1.5, N(2, 1.5)", 2, 1.5, lambda x: expit(x / 1.5)),
        ("T 1 → 2, N(2, 1.5)", 2, 1.5, lambda x: expit(x / 2)),
        ("log-odds − ½, N(2, 1.5)", 2, 1.5, lambda x: expit(x - 0.5)),
        ("log-odds − 1, N(2, 1.5)", 2, 1.5, lambda x: expit(x - 1)),
        ("log-odds + 1, N(−2, 1.5)", -2, 1.5, lambda x: expit(x + 1)),
        ("p above 0.95 right in 0.85, N(2, 1.5)", 2, 1.5, lambda x: np.where(x > np.log(19), 0.85, expit(x))),
        ("none: T 1.05, N(2, 1.5)", 2, 1.5, lambda x: expit(x / 1.05)),
    ]
    for name, mean, spread, truth in curves:
        line(name, stated(mean, spread, truth, expit), weights, worlds, 5_000)


if __name__ == "__main__":
    main()
