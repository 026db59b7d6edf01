"""Level and power of certificates that grow with labels, beside looks that are counted.

    python -m benchmarks.growing [--worlds 20000] [--power-worlds 400]

Level: worlds whose precision is a hair below the promise of 0.9 somewhere; the evidence is read at
twenty numbers of rows up to 2,000, and a world is false if a broken threshold is certified at any of them.
Power: the certified share of rows divided by an oracle's, as in `benchmarks.decisions` (precision 0.95).
Delta is 5 %; a growing certificate has the part of it that a policy with one promise gives to the first one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.decisions import draw, oracle
from candor.contract.policies import FOR_REFERENCE
from service.decisions.begun import level_of_beginning
from service.decisions.binomial import p_value
from service.decisions.counting import Sample
from service.decisions.grid import make_grid, pairs
from service.decisions.growing import RATES, STAKED, Plan, certified
from service.decisions.rows import ScoredRows
from service.decisions.sequence import choose_in_band, choose_start, walk

Chance = Callable[[NDArray[Any]], NDArray[Any]]

DELTA, PROMISE, CELLS = 0.05, 0.9, 20
LEVEL: Final = level_of_beginning(DELTA * (1 - FOR_REFERENCE), 1)
LOOKS: Final = np.unique(np.geomspace(60, 2000, 20).round().astype(int))
PLANNED_AT: Final = int(LOOKS[10])

WORLDS: Final[dict[str, tuple[Chance, int]]] = {
    "flat just under the promise": (lambda u: np.full_like(u, 0.8999), CELLS // 2),
    "flat, from the strictest candidate": (lambda u: np.full_like(u, 0.8999), 0),
    "falls and rises": (lambda u: np.where(u > 0.8, 0.8999, np.where(u > 0.5, 0.93, 0.8817)), 3),
    "a cliff behind good rows": (lambda u: np.where(u > 0.5, 0.97, 0.8275), CELLS // 2),
    "four values of the score": (lambda u: np.where(np.floor(4 * u) < 1, 0.8596, 0.9133), CELLS // 2),
    "rare: one row in ten is flagged": (lambda u: np.where(u > 0.9, 0.8999, 0.5), 1),
}
"""Chances of a row to be positive, given u, which is uniform and orders the rows; and the first candidate tested."""


def capital(n: NDArray[np.int64], errors: NDArray[np.int64], tolerance: float) -> NDArray[np.float64]:
    """Return ln of the capital that bets on each row, from counts: with every label, the order of rows is all one."""
    rates = np.array(RATES) * tolerance
    terms = errors[..., None] * np.log(rates / tolerance)
    terms += (n - errors)[..., None] * np.log((1 - rates) / (1 - tolerance))
    return np.asarray(np.logaddexp.reduce(terms, axis=-1) + np.log1p(-STAKED) - np.log(len(RATES)))


def level(chance: Chance, worlds: int, *, seed: int = 0, start: int = 0) -> dict[str, float]:
    """Return the share of worlds in which a broken threshold is certified at any look, counted and growing.

    Args:
        chance: Chance of a row to be positive, given u, which is uniform and orders the rows.
        worlds: Number of worlds.
        seed: Of the rows.
        start: First candidate of the sequence.
    """
    rng = np.random.default_rng(seed)
    grid = (np.arange(200_000) + 0.5) / 200_000
    precision = np.cumsum(chance(grid[::-1])) / np.arange(1, len(grid) + 1)
    broken = precision[len(grid) // CELLS * np.arange(1, CELLS + 1) - 1] < PROMISE
    n, errors = (np.zeros((worlds, CELLS), dtype=np.int64) for _ in range(2))
    won = np.zeros((worlds, CELLS), dtype=bool)
    false = {name: np.zeros(worlds, dtype=bool) for name in ("growing", "each look as the first")}
    before = 0
    for look in LOOKS:
        size = (worlds, int(look - before))
        u = rng.random(size)
        cell = np.minimum(((1 - u) * CELLS).astype(np.int64), CELLS - 1) + CELLS * np.arange(worlds)[:, None]
        wrong = rng.random(size) >= chance(u)
        n += np.bincount(cell.ravel(), minlength=worlds * CELLS).reshape(worlds, CELLS).cumsum(axis=1)
        errors += np.bincount(cell[wrong], minlength=worlds * CELLS).reshape(worlds, CELLS).cumsum(axis=1)
        before = look
        if look == PLANNED_AT:
            won = p_value(errors, n, 1 - PROMISE) <= STAKED * LEVEL
        reached = (won | (capital(n, errors, 1 - PROMISE) >= -np.log(LEVEL)))[:, start:]
        steps = np.where(reached.all(axis=1), reached.shape[1], reached.argmin(axis=1))
        for name, at in (
            ("growing", start + steps - 1),
            ("each look as the first", walk(n, errors, start, 1 - PROMISE, DELTA / 2)),
        ):
            false[name] |= (at >= start) & broken[at]
    return {name: float(of_it.mean()) for name, of_it in false.items()}


def power(n: int, planned: int, worlds: int) -> dict[str, float]:
    """Return the mean power after n certify rows, of looks at all of them and of a growing certificate."""
    rng, truth = np.random.default_rng(n + planned), oracle()
    found: dict[str, list[float]] = {}
    q = 0.05
    for _ in range(worlds):
        fit, certify = draw(rng, n), draw(rng, n)
        grid = make_grid(fit, certify)
        counts = Sample(certify, grid.cells(certify), grid.floor, 0).count("precision")
        first = choose_start(grid.volume * n, grid.errors, grid.rows, q, DELTA / 2)
        chosen = {
            "look 1": int(walk(counts.n, counts.errors, first, q, DELTA / 2)),
            "look 2": int(choose_in_band(counts.n, counts.errors, q, DELTA / 6)),
            "look 3": int(choose_in_band(counts.n, counts.errors, q, DELTA / 12)),
            "growing": certified(Plan(grid, "precision", q, LEVEL, planned), certify),
        }
        for name, at in chosen.items():
            found.setdefault(name, []).append(_volume(grid.keys, at) / truth)
    return {name: float(np.mean(volumes)) for name, volumes in found.items()}


def explored(worlds: int, *, weighted: bool, seed: int = 0) -> float:
    """Return the mean power after 20,000 predictions explored at 1 %, and then 1,000 that are all labelled.

    Args:
        worlds: Number of worlds.
        weighted: Whether each row bets at the exploration of its time; otherwise look 1 thins all rows to 1 %.
        seed: Of the rows.
    """
    rng, volumes = np.random.default_rng(seed), []
    for _ in range(worlds):
        fit = draw(rng, 1_000)
        rows = draw(rng, 21_000)
        floor = np.where(np.arange(len(rows)) < 20_000, 0.01, 1.0)
        sought = rng.random(len(rows)) < floor
        certify = ScoredRows(
            probability=rows.probability,
            score=rows.score,
            positive=rows.positive,
            propensity=floor,
            sought=sought,
            labelled=sought,
        )
        grid = make_grid(fit, certify)
        if weighted:
            at = certified(Plan(grid, "precision", 0.05, LEVEL, 1_200), certify, floor)
        else:
            thin = np.full(len(grid.keys), 0.01)
            counts = Sample(certify, grid.cells(certify), thin, 0).count("precision")
            first = choose_start(grid.volume * 210, grid.errors, grid.rows, 0.05, DELTA / 2)
            at = int(walk(counts.n, counts.errors, first, 0.05, DELTA / 2))
        volumes.append(_volume(grid.keys, at) / oracle())
    return float(np.mean(volumes))


def _volume(keys: NDArray[np.uint64], at: int) -> float:
    return 0.0 if at < 0 else 1 - float(pairs(keys[at : at + 1])[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=20_000)
    parser.add_argument("--power-worlds", type=int, default=400)
    options = parser.parse_args()
    print("| false at any of twenty looks | growing | each look as the first |\n|---|---|---|")
    for index, (name, (chance, start)) in enumerate(WORLDS.items()):
        found = {"growing": 0.0, "each look as the first": 0.0}
        for part in range(0, options.worlds, 2_000):
            of_it = level(chance, min(2_000, options.worlds - part), seed=1000 * index + part, start=start)
            found = {key: found[key] + of_it[key] * min(2_000, options.worlds - part) for key in found}
        print(f"| {name} | " + " | ".join(f"{value / options.worlds:.2%}" for value in found.values()) + " |")
    print("\n| certify rows | planned | look 1 | look 2 | look 3 | growing |\n|---|---|---|---|---|---|")
    for n, planned in ((300, 1000), (1000, 1000), (1000, 500), (1000, 2000), (2000, 1000), (5000, 1000)):
        means = power(n, planned, options.power_worlds)
        print(f"| {n:,} | {planned:,} | " + " | ".join(f"{value:.1%}" for value in means.values()) + " |")
    few = max(options.power_worlds // 8, 1)
    for weighted in (False, True):
        print(f"explored at 1 % before: {'growing' if weighted else 'look 1'} {explored(few, weighted=weighted):.1%}")


if __name__ == "__main__":
    main()
