"""Level and power of the gate's bound, by simulation: the tables of docs/explanation/statistics.md.

    python benchmarks/gate_level.py [--worlds 4000]

Harm worlds set the margin to the true difference, so every pass is false. The t-bound is shown for comparison. Takes
about five minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from service.decisions.gate import MIXED, compare
from service.decisions.mean_bounds import interval, upper_bound

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[Array, Array, Array]]
CHUNK = 250


@dataclass(frozen=True)
class World:
    """A pair of revisions on rows of a known distribution.

    Attributes:
        name: Description of the candidate.
        rows: Number of rows.
        groups: Number of groups.
        draw: Returns differences (W, N), the worst possible difference per row (W, N), and rare-event flags (W, N).
    """

    name: str
    rows: int
    groups: int
    draw: Draw


def mixed(p: Array | float) -> Array:
    return np.asarray((1 - MIXED) * np.asarray(p) + MIXED / 2)


def rare_class(rate: float, factor: float, rows: int) -> World:
    """Return a world in which the candidate multiplies the probability of a rare class by a factor."""
    active, candidate = mixed(rate), mixed(rate * factor)
    worst = np.log(active / candidate)

    def draw(rng: np.random.Generator, worlds: int) -> tuple[Array, Array, Array]:
        positive = rng.random((worlds, rows)) < rate
        return (
            np.where(positive, worst, np.log((1 - active) / (1 - candidate))),
            np.full(positive.shape, worst),
            positive,
        )

    return World(f"rare class {rate:g} × {factor:g}, n = {rows}", rows, rows, draw)


def temperatures(
    active: float, candidate: float, rows: int, centre: float = 2.0, spread: float = 3.0, per_group: int = 1
) -> World:
    """Return a world of two classes with calibrated logits z ~ N(centre, spread) at T = 1, shared in each group."""
    groups = rows // per_group

    def draw(rng: np.random.Generator, worlds: int) -> tuple[Array, Array, Array]:
        z = np.abs(rng.normal(centre, spread, (worlds, groups)))
        right = rng.random((worlds, groups)) < 1 / (1 + np.exp(-z))
        z, right = np.repeat(z, per_group, axis=1), np.repeat(right, per_group, axis=1)
        before, after = mixed(1 / (1 + np.exp(-z / active))), mixed(1 / (1 + np.exp(-z / candidate)))
        gain, loss = np.log(before / after), np.log((1 - before) / (1 - after))
        return np.where(right, gain, loss), np.maximum(gain, loss), ~right

    twins = f", groups of {per_group}" if per_group > 1 else ""
    return World(f"T {active:g} → {candidate:g}, N({centre:g}, {spread:g}), n = {rows}{twins}", rows, groups, draw)


def concentrated(share: float, chance: float, loss: float, rows: int, harm: float = 0.002) -> World:
    """Return a world with rare large losses on a share of rows and small gains on all others."""
    gain = (harm - share * chance * loss) / (1 - share * chance)

    def draw(rng: np.random.Generator, worlds: int) -> tuple[Array, Array, Array]:
        exposed = rng.random((worlds, rows)) < share
        hit = exposed & (rng.random((worlds, rows)) < chance)
        difference = np.where(hit, loss, gain)
        return difference, np.where(exposed, loss, max(gain, 0.0)), np.ones(hit.shape, dtype=bool)

    return World(f"loss of {loss:g} at {share:g} × {chance:g}, n = {rows}", rows, rows, draw)


def mended(share: float, chance: float, loss: float, rows: int) -> World:
    """Return `concentrated` with a candidate that corrects overconfidence (T 0.5 → 1) on all other rows."""
    base = temperatures(0.5, 1.0, rows)

    def draw(rng: np.random.Generator, worlds: int) -> tuple[Array, Array, Array]:
        difference, worst, wrong = base.draw(rng, worlds)
        exposed = rng.random((worlds, rows)) < share
        hit = exposed & (rng.random((worlds, rows)) < chance)
        return np.where(hit, loss, difference), np.where(exposed, np.maximum(loss, worst), worst), wrong

    return World(f"T 0.5 → 1, but loss of {loss:g} at {share:g} × {chance:g}, n = {rows}", rows, rows, draw)


HARM = [
    *(
        rare_class(rate, factor, rows)
        for rate, rows in [(0.005, 8000), (0.01, 4000), (0.05, 1000), (0.1, 500)]
        for factor in (0.5, 0.01)
    ),
    temperatures(1.0, 0.8, 500, 3.0, 1.5),
    temperatures(1.0, 0.5, 500, 3.0, 1.5),
    temperatures(1.0, 0.3, 1500, 5.0, 2.0),
    temperatures(2.0, 1.0, 366),
    temperatures(0.5, 1.0, 366),
    temperatures(0.6, 1.05, 366),
    temperatures(0.5, 1.0, 1000, per_group=4),
    temperatures(1.0, 0.5, 1000, per_group=4),
    *(
        concentrated(*law)
        for law in [
            (0.05, 0.04, 4.0, 366),
            (0.05, 0.05, 4.0, 1000),
            (0.02, 0.5, 1.0, 366),
            (1.0, 0.002, 5.0, 1000),
            (1.0, 0.004, 5.0, 1000),
            (1.0, 0.01, 5.0, 1000),
            (1.0, 0.01, 0.7, 1000),
            (0.05, 0.1, 6.0, 5000),
        ]
    ),
    mended(0.02, 0.2, 5.0, 366),
    mended(0.02, 0.5, 5.0, 1000),
    mended(0.005, 0.5, 5.0, 1000),
]

BETTER = [
    temperatures(active, candidate, rows)
    for active, candidate in [(0.5, 1.0), (0.7, 1.0), (1.5, 1.0), (2.0, 1.0)]
    for rows in (366, 1000, 3000)
]

HARMLESS = [temperatures(1.0, candidate, rows) for candidate in (0.95, 0.98, 1.02, 1.05) for rows in (366, 1000, 5000)]


def by_group(values: Array, groups: int) -> Array:
    return values.reshape(len(values), groups, -1).sum(axis=2)


def true_difference(world: World) -> float:
    rng = np.random.default_rng(99)
    return float(np.mean([world.draw(rng, CHUNK)[0].mean() for _ in range(max(4, 4_000_000 // world.rows // CHUNK))]))


def passes(world: World, margin: float, level: float, worlds: int) -> tuple[float, float, float]:
    """Return how often the t-bound and the gate's bound are below the margin, with 25 rare rows; and the coverage."""
    rng = np.random.default_rng(7)
    sizes = np.full(world.groups, world.rows / world.groups)
    quantile = float(stdtrit(world.groups - 1, 1 - level))
    found, covered = np.zeros(2), 0.0
    truth = true_difference(world)
    for _ in range(worlds // CHUNK):
        difference, worst, rare = world.draw(rng, CHUNK)
        judged = by_group(rare, world.groups).astype(bool).sum(axis=1) >= 25
        sums = by_group(difference, world.groups)
        largest = by_group(np.maximum(worst, 0.0), world.groups).max(axis=1)
        t_bound = (sums.mean(axis=1) + quantile * sums.std(axis=1, ddof=1) / np.sqrt(world.groups)) / sizes[0]
        found += [np.sum(judged & (bound < margin)) for bound in (t_bound, upper_bound(sums, sizes, largest, level))]
        low, high = interval(sums, sizes)
        covered += float(np.sum((low <= truth) & (truth <= high)))
    return float(found[0] / worlds), float(found[1] / worlds), covered / worlds


def whole_gate(active: float, candidate: float, rows: int, worlds: int = 400) -> float:
    """Return how often a better candidate passes `superior` as a whole, with the Brier condition."""
    rng, passed = np.random.default_rng(11), 0

    def sides(z: Array, temperature: float) -> Array:
        first = 1 / (1 + np.exp(-z / temperature))
        return np.column_stack([first, 1 - first])

    for _ in range(worlds):
        z = np.abs(rng.normal(2.0, 3.0, rows))
        labels = (rng.random(rows) >= sides(z, 1.0)[:, 0]).astype(np.int64)
        passed += compare(sides(z, candidate), sides(z, active), labels, mode="superior", attempt=1).passed
    return passed / worlds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--worlds", type=int, default=4000)
    worlds = parser.parse_args().worlds
    print("Harm exactly at the margin: share of worlds in which it passes (nominal 2.5 % and 0.42 %)\n")
    print("| world | harm, nats | t, 2.5 % | gate, 2.5 % | gate, 0.42 % | interval covers |\n|---|---|---|---|---|---|")
    for world in HARM:
        harm = true_difference(world)
        t_bound, gate, covered = passes(world, harm, 0.025, worlds)
        later = passes(world, harm, 0.05 / 12, worlds)[1]
        print(f"| {world.name} | {harm:+.4f} | {t_bound:.1%} | {gate:.1%} | {later:.2%} | {covered:.1%} |", flush=True)
    print(
        "\nThe whole gate (`superior`), with the Brier condition\n\n| active | 366 | 1,000 | 3,000 |\n|---|---|---|---|"
    )
    for active in (0.5, 0.7, 1.5, 2.0):
        shares = " | ".join(f"{whole_gate(active, 1.0, rows):.0%}" for rows in (366, 1000, 3000))
        print(f"| T {active:g} | {shares} |", flush=True)
    for title, group, margin in [("Better (`superior`)", BETTER, 0.0), ("Harmless (`non_inferior`)", HARMLESS, 0.002)]:
        print(f"\n{title}: share that passes at the first look\n")
        print("| world | difference, nats | t | gate |\n|---|---|---|---|")
        for world in group:
            t_bound, gate, _ = passes(world, margin, 0.025, worlds // 4)
            print(f"| {world.name} | {true_difference(world):+.4f} | {t_bound:.0%} | {gate:.0%} |", flush=True)


if __name__ == "__main__":
    main()
