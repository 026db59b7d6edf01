"""Level and power of promises about rows that come in groups.

    python -m benchmarks.clusters [--worlds 20000] [--power-worlds 2000] [--groups 300]

One candidate, promise 0.95, delta 5 %. `row` is the test of a first look, `later look` that of a simultaneous band with
one candidate, and `group` the exact test of one row of each group, which is about something else.
"""

from __future__ import annotations

import argparse
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from service.decisions.betting import Block, hedged, mixed

TOLERANCE, DELTA = 0.05, 0.05

SIZES: Final = {
    "1 or 2 rows, 2 in one of 50": (2, lambda rng, n: np.where(rng.random(n) < 0.02, 2, 1)),
    "4 rows": (4, lambda _, n: np.full(n, 4)),
    "1 to 20 rows, geometric": (20, lambda rng, n: rng.geometric(0.25, n).clip(max=20)),
    "1 row, or 10 in one of 8": (10, lambda rng, n: np.where(rng.random(n) < 0.125, 10, 1)),
}
"""The largest group, and how sizes are drawn."""


def draw(rng: np.random.Generator, name: str, groups: int, worlds: int, rate: float, alike: float) -> list[Block]:
    """Return groups of many worlds side by side; errors of a group have the correlation `alike`."""
    blocks = []
    for _ in range(groups):
        sizes = SIZES[name][1](rng, worlds)
        chance = rng.beta(rate * (1 / alike - 1), (1 - rate) * (1 / alike - 1), worlds) if alike else rate
        blocks.append((sizes[None].astype(np.float64), rng.binomial(sizes, chance)[None].astype(np.float64)))
    return blocks


def shares(rng: np.random.Generator, name: str, groups: int, worlds: int, rate: float, alike: float) -> list[float]:
    """Return how often the promise is shown: for rows at a first and at a later look, and for groups."""
    blocks = draw(rng, name, groups, worlds, rate, alike)
    sizes, errors = (np.vstack(part) for part in zip(*blocks, strict=True))
    limit = np.full(worlds, float(SIZES[name][0]))
    largest = float((sizes**2).sum() / sizes.sum())
    together = np.full(worlds, 1 + alike * (largest - 1))
    count = np.full(worlds, groups)
    first = hedged(blocks, count, np.full(worlds, TOLERANCE), limit, np.full(worlds, sizes.mean()), together, DELTA)
    later = mixed(blocks, TOLERANCE, limit) >= -np.log(DELTA)
    drawn: NDArray[np.bool_] = rng.random(sizes.shape) * sizes < errors
    return [float(part.mean()) for part in (first, later, binom.cdf(drawn.sum(axis=0), groups, TOLERANCE) <= DELTA)]


def main() -> None:
    """Print the table of the statistics page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=20_000)
    parser.add_argument("--power-worlds", type=int, default=2_000)
    parser.add_argument("--groups", type=int, default=300)
    given = parser.parse_args()
    print("| groups | errors | rate | row | row, later look | group |\n|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for name in SIZES:
        for alike in (0.0, 0.5):
            for rate, worlds in ((0.0501, given.worlds), (0.02, given.power_worlds), (0.01, given.power_worlds)):
                found = " | ".join(f"{share:.1%}" for share in shares(rng, name, given.groups, worlds, rate, alike))
                print(f"| {name} | {'together' if alike else 'independent'} | {rate:.4g} | {found} |", flush=True)


if __name__ == "__main__":
    main()
