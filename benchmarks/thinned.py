"""How often certificates are false when a recalibration reads the unlabelled rows of a sample of the groups.

    python -m benchmarks.thinned [--runs 2000]

Each run draws a world of 6,000 groups, of which an eighth is read, and certifies a precision just above the truth at
delta 10 %. `per row` counts the rows of groups, whose errors are independent or in common; `per group` counts one row
of each group. The last column certifies a precision 0.2 below the truth: the power.
"""

from __future__ import annotations

import argparse
from typing import Final, Literal

import numpy as np

from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import NO_LABEL, Rows, ScoredRows
from service.recalibration.rows import Division, divide
from service.state.window_rows import thinned

BITS: Final = 3
GROUPS: Final = 6_000
DELTA: Final = 0.1
JUST_ABOVE: Final = 1e-4
Per = Literal["row", "group"]
RIGHT: Final = (0.84, 0.96)  # of the flagged rows, those of groups of one and of eight
BUSY_WORSE: Final = (0.96, 0.84)
_ROWS: Final = {"row": (0.8 * 0.3, 0.2 * 8 * 0.5), "group": (0.8 * 0.3, 0.2 * 0.5)}  # flagged, by what is counted


def world(
    rng: np.random.Generator,
    groups: int = GROUPS,
    *,
    missing: float = 0.02,
    right: tuple[float, float] = RIGHT,
    together: bool = False,
) -> Rows:
    """Return groups of one or eight rows. Labels of large ones are sought less often.

    Args:
        rng: Randomness.
        groups: Number of groups.
        missing: Share of the sought labels that do not come.
        right: How often flagged rows of groups of one and of eight are right.
        together: Whether the rows of a group are right or wrong together.
    """
    number = rng.integers(-(2**63), 2**63 - 1, groups)
    sizes = rng.choice([1, 8], groups, p=[0.8, 0.2])
    group, size = np.repeat(number, sizes), np.repeat(sizes, sizes)
    n = len(group)
    flagged = rng.random(n) < np.where(size == 1, 0.3, 0.5)
    propensity = np.where(flagged, np.where(size == 1, 1.0, 0.25), 0.05)
    sought = rng.random(n) < propensity
    luck = np.repeat(rng.random(groups), sizes) if together else rng.random(n)
    positive = luck < np.where(flagged, np.where(size == 1, *right), 0.1)
    came = sought & (rng.random(n) >= missing)
    return Rows(
        logits=np.where(flagged, 2.0, -2.0).astype(np.float32)[:, None] * np.float32([0, 1]),
        label=np.where(came, positive, NO_LABEL).astype(np.int64),
        group=group,
        propensity=propensity,
        sought=sought,
        labelled=came,
        action=np.where(flagged, "block", "allow").astype(object),
    )


def truth(per: Per, right: tuple[float, float] = RIGHT) -> float:
    """Return the precision of flagged rows, or of one flagged row of each group."""
    return float(np.average(right, weights=_ROWS[per]))


def promise(per: Per, precision: float) -> Policy:
    """Return a policy with a precision."""
    bands = [{"action": "block", "when": {"min_precision": round(precision, 4)}}, {"action": "allow"}]
    return parse_policy({"id": "p", "positive": "1", "bands": bands, "certify": {"delta": DELTA, "per": per}})


def sampled(rows: Rows) -> Division:
    """Return the rows of a world as a recalibration reads and divides them."""
    return divide(thinned(rows, BITS), unsought_may_fit=False, min_rows=1, share=2.0**-BITS)


def scored(rows: Rows) -> ScoredRows:
    """Return rows with the probability that their action has."""
    probability = np.where(rows.action == "block", 0.9, 0.1).astype(np.float32)
    return ScoredRows.of(rows, probability=probability, score=probability, positive=rows.label == 1)


def certified(policy: Policy, division: Division, seed: int) -> bool:
    """Return whether the policy's promise is certified for the flagged rows."""
    fit, certify = scored(division.fit), scored(division.certify)
    solved = solve(policy, version=1, fit=fit, certify=certify, look=1, basis="traffic", seed=seed)
    found = solved.bands[0].threshold
    return found is not None and found.probability > 0.5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    runs = parser.parse_args().runs
    print(f"| counted | right more often: groups of | errors of a group | false, of {runs:,} | 0.2 below the truth |")
    print("|---|---|---|---|---|")
    cases: list[tuple[Per, tuple[float, float], bool]] = [
        ("row", RIGHT, False), ("row", RIGHT, True), ("row", BUSY_WORSE, True), ("group", RIGHT, False),
    ]  # fmt: skip
    for per, right, together in cases:
        rng = np.random.default_rng(21)
        exact, easy = (promise(per, truth(per, right) - below) for below in (-JUST_ABOVE, 0.2))
        false = found = 0
        for run in range(runs):
            division = sampled(world(rng, missing=0.0, right=right, together=together))
            false += certified(exact, division, run)
            found += certified(easy, division, run)
        worse, errors = "eight" if right == RIGHT else "one", "together" if together else "independent"
        print(f"| per {per} | {worse} | {errors} | {false / runs:.2%} | {found / runs:.1%} |")


if __name__ == "__main__":
    main()
