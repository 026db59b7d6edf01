"""How often harm passes the gate in a region where few gate rows fall.

    python -m benchmarks.gate_regions [--worlds 400] [--rows 300]

In a region in which a few gate rows are expected, the candidate is certain of the wrong class. All labels have come.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from service.decisions.gate import MIXED, compare, potential

SURE, BEFORE, AFTER, RIGHT = 0.98, 0.75, 0.755, 0.8


def mixed(p: float) -> float:
    """Return a probability as the gate scores it."""
    return (1 - MIXED) * p + MIXED / 2


def harm(expected: float, rows: int) -> float:
    """Return the true log-loss difference in nats."""
    gain = RIGHT * np.log(mixed(BEFORE) / mixed(AFTER)) + (1 - RIGHT) * np.log(mixed(1 - BEFORE) / mixed(1 - AFTER))
    share = expected / rows
    return float((1 - share) * gain + share * np.log(mixed(SURE) / mixed(1e-6)))


def passes(rng: np.random.Generator, expected: float, rows: int) -> tuple[bool, bool]:
    """Return whether the candidate passes, with the potential of gate rows alone, and with that of all rows."""
    region = rng.random(3 * rows) < expected / rows
    labels = (region | (rng.random(3 * rows) < RIGHT)).astype(np.int64)[:rows]

    def sides(right: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([1 - right, right])

    active, candidate = sides(np.where(region, SURE, BEFORE)), sides(np.where(region, 1e-6, AFTER))
    rest = potential(candidate[rows:], active[rows:], np.arange(2 * rows))
    alone, all_rows = (
        compare(candidate[:rows], active[:rows], labels, mode="superior", attempt=1, elsewhere=elsewhere).passed
        for elsewhere in (None, rest)
    )
    return alone, all_rows


def main() -> None:
    """Print the table of the statistics page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--rows", type=int, default=300)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    for expected in (1.0, 1.3, 1.6, 2.0, 3.0):
        found = np.mean([passes(rng, expected, given.rows) for _ in range(given.worlds)], axis=0)
        shares = " | ".join(f"{share:.1%}" for share in found)
        print(f"| {expected:g} | {harm(expected, given.rows):+.4f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
