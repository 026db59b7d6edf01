"""How often a comparison with a challenger ever names the worse arm, and how many labels it takes to name the better.

    python -m benchmarks.challenger_worlds [--worlds 2000] [--rows 20000]

Every row is a look. In the null worlds the arms have equal mean losses, and the differences are the least favourable:
heavy-tailed, of rare positives, weighted by propensities, or of a sign that swings. Takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from service.decisions.gate import MIXED
from service.monitoring.paired import log_evidence

Array = NDArray[np.float64]
World = Callable[[np.random.Generator, int, int], Array]
"""Returns the differences of W worlds and N rows, in units of their bound, (W, N)."""

LEVEL: Final = 0.05
BOUND: Final = math.log((1 - MIXED / 2) / (MIXED / 2))  # of log loss with two classes
_AT_ONCE: Final = 50


def log_loss(p: Array) -> tuple[Array, Array]:
    """Return the log losses of stated probabilities for a positive and for another row."""
    return -np.log((1 - MIXED) * p + MIXED / 2), -np.log((1 - MIXED) * (1 - p) + MIXED / 2)


def stated(base: float, ours: float, theirs: float) -> World:
    """Two arms with the log-odds of the truth shifted by `ours` and `theirs`; positives at rate `base`, spread 1.5."""

    def draw(rng: np.random.Generator, worlds: int, rows: int) -> Array:
        truth = logit(base) + 1.5 * rng.standard_normal((worlds, rows))
        positive = rng.random((worlds, rows)) < expit(truth)
        mine, other = (log_loss(expit(truth + shift)) for shift in (ours, theirs))
        return np.where(positive, other[0] - mine[0], other[1] - mine[1]) / BOUND

    return draw


def equal(base: float) -> World:
    """Two wrong arms of exactly equal mean loss: both state the truth with its log-odds off by ±1, by a fair coin."""

    def draw(rng: np.random.Generator, worlds: int, rows: int) -> Array:
        truth = logit(base) + 1.5 * rng.standard_normal((worlds, rows))
        positive = rng.random((worlds, rows)) < expit(truth)
        side = rng.choice([-1.0, 1.0], (worlds, rows))
        mine, other = (log_loss(expit(truth + sign * side)) for sign in (1.0, -1.0))
        return np.where(positive, other[0] - mine[0], other[1] - mine[1]) / BOUND

    return draw


def rare(rate: float, large: float) -> World:
    """A large loss with probability `rate`, and small gains that make up for it: mean 0, the heaviest tail allowed."""

    def draw(rng: np.random.Generator, worlds: int, rows: int) -> Array:
        return np.where(rng.random((worlds, rows)) < rate, large, -large * rate / (1 - rate))

    return draw


def weighted(floor: float) -> World:
    """As `equal(0.1)`, where labels of one half of the rows are sought with propensity `floor`, the others' always."""

    def draw(rng: np.random.Generator, worlds: int, rows: int) -> Array:
        differences = equal(0.1)(rng, worlds, rows)
        propensity = np.where(rng.random((worlds, rows)) < 0.5, floor, 1.0)
        return np.where(rng.random((worlds, rows)) < propensity, floor / propensity, 0.0) * differences

    return draw


def swings(length: int) -> World:
    """The challenger is worse for `length` rows, then better as long, and so on: never better on the average of all."""

    def draw(rng: np.random.Generator, worlds: int, rows: int) -> Array:
        sign = np.where(np.arange(rows) // length % 2 == 0, 1.0, -1.0)
        return np.where(rng.random((worlds, rows)) < 0.5 + 0.05 * sign, 0.2, -0.2)

    return draw


NULLS: Final[dict[str, World]] = {
    "equal arms, half positive": equal(0.5),
    "equal arms, 0.5 % positive": equal(0.005),
    "a loss of the bound in 1 of 1,000 rows": rare(0.001, 1.0),
    "a gain of the bound in 1 of 1,000 rows": rare(0.001, -1.0),
    "fair coins of the bound": rare(0.5, 1.0),
    "labels sought for 5 % of half of the rows": weighted(0.05),
}
ONE_SIDED: Final[dict[str, World]] = {"never better on the average so far": swings(500)}
BETTER: Final[dict[str, World]] = {
    "log-odds off by 1, half positive": stated(0.5, 1.0, 0.0),
    "log-odds off by 0.5, half positive": stated(0.5, 0.5, 0.0),
    "log-odds off by 1, 1 % positive": stated(0.01, 1.0, 0.0),
    "log-odds off by 0.5, 1 % positive": stated(0.01, 0.5, 0.0),
}


def decided(world: World, worlds: int, rows: int, *, seed: int, arms: str = "both") -> NDArray[np.int64]:
    """Return after how many rows an arm is first named, 0 for never; shape (W,).

    Args:
        world: Draws differences.
        worlds: Number W of worlds.
        rows: Rows of each; every one is a look.
        seed: Of the draws.
        arms: "both", or "challenger" to count only worlds that name it.
    """
    rng = np.random.default_rng(seed)
    found = []
    for start in range(0, worlds, _AT_ONCE):
        differences = world(rng, min(_AT_ONCE, worlds - start), rows)
        sums, squares = np.cumsum(differences, axis=1), np.cumsum(differences**2, axis=1)
        named = log_evidence(-sums, squares) >= math.log(2 / LEVEL)
        if arms == "both":
            named |= log_evidence(sums, squares) >= math.log(2 / LEVEL)
        found.append(np.where(named.any(axis=1), named.argmax(axis=1) + 1, 0))
    return np.concatenate(found)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    print(f"| world (level {LEVEL:.0%}, {given.worlds:,} worlds, {given.rows:,} rows, a look at each) | named |")
    print("|---|---|")
    for name, world in (NULLS | ONE_SIDED).items():
        arms = "challenger" if name in ONE_SIDED else "both"
        wrong = decided(world, given.worlds, given.rows, seed=19, arms=arms) > 0
        print(f"| {name} | {wrong.mean():.2%} |")
    print("\n| challenger better | difference (nats) | named, median labels | 90 % |\n|---|---|---|---|")
    for name, world in BETTER.items():
        after = decided(world, given.worlds // 10, 5 * given.rows, seed=20, arms="challenger")
        mean = float(world(np.random.default_rng(21), 50, given.rows).mean()) * BOUND
        labels = np.where(after > 0, after, np.inf)
        ends = (float(np.quantile(labels, q, method="inverted_cdf")) for q in (0.5, 0.9))
        told = (f"{end:,.0f}" if math.isfinite(end) else f"above {5 * given.rows:,}" for end in ends)
        print(f"| {name} | {mean:.4f} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
