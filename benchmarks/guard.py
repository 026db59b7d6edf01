"""Level and power of the guard of an activation: how often it rolls back, and after how many groups.

    python -m benchmarks.guard [--worlds 20000]

A world draws decisions before and after an activation; a look is taken whenever the groups have grown by a quarter, as
the service does, at the same bounds. Takes about a minute on one core.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from service.decisions.levels import level_of
from service.monitoring.guard import FIRST_LOOK, LEVEL

LOOKS = np.unique((FIRST_LOOK * 1.25 ** np.arange(30)).astype(int))
ACTIONS = 3  # in the policy, all with their own four bounds


def lower(count: NDArray[np.int64], rows: int, level: float) -> NDArray[np.float64]:
    """Return the exact lower bound of a share, as `binomial.lower_share`."""
    return np.where(count > 0, betaincinv(np.maximum(count, 1), rows - count + 1, level), 0.0)


def upper(count: NDArray[np.int64], rows: int, level: float) -> NDArray[np.float64]:
    """Return the exact upper bound of a share, as `binomial.upper_share`."""
    return 1.0 - lower(rows - count, rows, level)


def first_breach(share: float, now: float, limit: float, worlds: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the groups at the look that rolls each world back, 0 where none does."""
    count, count_now = np.zeros(worlds, np.int64), np.zeros(worlds, np.int64)
    found, seen = np.zeros(worlds, np.int64), 0
    for look, rows in enumerate(LOOKS.tolist(), 1):
        count += random.binomial(rows - seen, share, worlds)
        count_now += random.binomial(rows - seen, now, worlds)
        seen, level = rows, level_of(LEVEL, look) / (4 * ACTIONS)
        rise = lower(count_now, rows, level) - upper(count, rows, level)
        fall = lower(count, rows, level) - upper(count_now, rows, level)
        found[(found == 0) & (np.maximum(rise, fall) > limit)] = rows
    return found


def main() -> None:
    """Print level and power."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=20_000)
    worlds = parser.parse_args().worlds
    random = np.random.default_rng(11)
    print(f"{worlds:,} worlds, {len(LOOKS)} looks from {LOOKS[0]} to {LOOKS[-1]:,} groups")
    print("before    after  limit   rolled back   groups: median, 90 %")
    for share, now, limit in (
        *((0.02, 0.12, 0.1), (0.3, 0.4, 0.1), (0.45, 0.55, 0.1), (0.05, 0.07, 0.02), (0.5, 0.5, 0.0)),
        *((0.02, 0.2, 0.1), (0.02, 0.4, 0.1), (0.3, 0.6, 0.1), (0.02, 1.0, 0.1), (0.05, 0.1, 0.02)),
    ):
        found = first_breach(share, now, limit, worlds, random)
        fired = found[found > 0]
        when = "" if len(fired) < worlds / 2 else f"{np.median(fired):,.0f}, {np.quantile(fired, 0.9):,.0f}"
        print(f"{share:6.0%} {now:8.0%} {limit:6.0%} {len(fired) / worlds:13.3%}   {when}")


if __name__ == "__main__":
    main()
