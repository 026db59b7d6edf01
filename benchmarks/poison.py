"""What activates unattended: poisoned labels, and honest drifts that caps hold for a person, by simulation.

    python -m benchmarks.poison [--worlds 60] [--rows 6000 20000]

A fraud model with 2 % positives, calibrated when it was deployed; its policy blocks at a certified precision and
reviews a certified share of the rows. Each world recalibrates once on fresh
labelled traffic, a third of it in each role.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundle import LabelledLogits, Reference
from calibrators import CALIBRATORS
from candor.contract.gate import Gate
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.rows import Rows
from service.decisions.solve import solve_on_reference
from service.decisions.unattended import Limits
from service.errors import TooFewLabelsError
from service.recalibration.refit import refit
from service.recalibration.task import RefitRequest, RefitTask
from service.state.window_rows import WindowRows

Array = NDArray[Any]

NAMES: Final = ("legitimate", "fraud")
POLICY: Final = parse_policy(
    {
        "id": "card-fraud",
        "positive": "fraud",
        "bands": [
            {"action": "block", "when": {"min_precision": 0.7}},
            {"action": "review", "when": {"max_flag_rate": 0.06}},
            {"action": "allow"},
        ],
    }
)
NOW: Final = 1_800_000_000_000_000


@dataclass(frozen=True)
class Scenario:
    """A course of the traffic.

    Attributes:
        name: Of the table.
        drift: True log-odds of fraud, given those of the model.
        poison: Changes labels, given them, the model's log-odds and a generator; None for honest ones.
    """

    name: str
    drift: Callable[[Array], Array]
    poison: Callable[[Array, Array, np.random.Generator], Array] | None = None


def random_flips(labels: Array, _score: Array, rng: np.random.Generator) -> Array:
    """Flip 5 % of all labels."""
    return np.where(rng.random(len(labels)) < 0.05, 1 - labels, labels)


def top_of_frauds(labels: Array, score: Array, _rng: np.random.Generator) -> Array:
    """Call the 5 % of the frauds with the highest scores legitimate."""
    which = np.flatnonzero(labels)
    which = which[np.argsort(-score[which])][: round(0.05 * len(which))]
    return np.where(np.isin(np.arange(len(labels)), which), 0, labels)


def frauds_of_top(labels: Array, score: Array, _rng: np.random.Generator) -> Array:
    """Call every fraud among the 5 % of the rows with the highest scores legitimate."""
    cut = np.quantile(score, 0.95)
    return np.where(score >= cut, 0, labels)


SCENARIOS: Final = (
    Scenario("poison: 5 % of labels flipped at random", lambda s: s, random_flips),
    Scenario("poison: the top-scored 5 % of frauds flipped", lambda s: s, top_of_frauds),
    Scenario("poison: all frauds of the top-scored 5 % flipped", lambda s: s, frauds_of_top),
    Scenario("poison: 5 % at random, while fraud doubles", lambda s: s + np.log(2), random_flips),
    Scenario("no drift", lambda s: s),
    Scenario("fraud half as frequent", lambda s: s - np.log(2)),
    Scenario("fraud 1.5 times as frequent", lambda s: s + np.log(1.5)),
    Scenario("fraud twice as frequent", lambda s: s + np.log(2)),
    Scenario("fraud four times as frequent", lambda s: s + np.log(4)),
    Scenario("scores worth less: log-odds × 0.7", lambda s: 0.7 * s),
    Scenario("scores worth more: log-odds × 1.4", lambda s: 1.4 * s),
)

COMBINATIONS: Final[dict[str, dict[str, float]]] = {
    "no caps": {},
    "change 0.15": {"probability_change": 0.15},
    "change 0.1": {"probability_change": 0.1},
    "change 0.1, flips 10 %": {"probability_change": 0.1, "flipped": 0.1},
    "and flag rate × 3": {"probability_change": 0.1, "flipped": 0.1, "flag_rate_ratio": 3.0},
}


class Reading:
    """What a recalibration reads of a bundle: its labels and its reference rows."""

    class manifest:  # noqa: N801, D106 — an attribute of that name
        labels = NAMES
        sharing = 1

    def __init__(self, reference: Reference) -> None:
        self.reference = reference


def scores(rng: np.random.Generator, rows: int) -> Array:
    """Return the model's log-odds; with true ones equal to them, about 2 % of the rows are positive."""
    return np.where(rng.random(rows) < 0.04, rng.normal(0.0, 2.5, rows), rng.normal(-6.0, 1.0, rows))


def labels_of(rng: np.random.Generator, log_odds: Array) -> Array:
    return (rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)


def logits_of(log_odds: Array) -> NDArray[np.float32]:
    return np.stack([np.zeros_like(log_odds), log_odds], axis=1).astype(np.float32)


def deployed(rng: np.random.Generator, method: str) -> tuple[Any, Revision]:
    """Return a bundle with 9,000 reference rows, and the revision that serves it."""
    parts = []
    for _ in range(3):
        found = scores(rng, 3_000)
        parts.append(LabelledLogits(logits_of(found), labels_of(rng, found)))
    bundle = Reading(Reference(*parts))
    calibrator = CALIBRATORS[method]().fit(parts[0].logits, parts[0].labels)
    solved = solve_on_reference(POLICY, version=1, bundle=bundle, calibrator=calibrator, look=1)  # type: ignore[arg-type]
    revision = Revision(
        id="r1",
        model="m",
        bundle_id="b",
        bundle_version=1,
        model_digest="d",
        calibrator=calibrator,
        policies={POLICY.id: solved},
        parent=None,
        cause="bundle",
        by="benchmark",
        gate="not_run",
        created_at=0,
    )
    return bundle, revision


UNLIMITED: Final = Limits(flipped=None, flag_rate_ratio=None, probability_change=None)


def recalibrated(scenario: Scenario, rows: int, seed: int, method: str, limits: Limits = UNLIMITED) -> Gate | None:
    """Recalibrate once, and return the verdict with its caps; None with too few labels."""
    rng = np.random.default_rng(seed)
    bundle, revision = deployed(rng, method)
    found = scores(rng, rows)
    labels = labels_of(rng, scenario.drift(found))
    if scenario.poison is not None:
        labels = scenario.poison(labels, found, rng)
    times = NOW - np.arange(rows, dtype=np.int64)[::-1] * 1_000_000
    read = Rows(
        logits=logits_of(found),
        label=labels,
        group=rng.integers(-(2**63), 2**63 - 1, rows),
        predicted_at=times,
        labelled_at=times + 1,
        sought=np.ones(rows, np.bool_),
        labelled=np.ones(rows, np.bool_),
    )
    task = RefitTask(
        database_url="",
        bundle="",
        model="m",
        revision="r1",
        min_rows=60,
        alpha=0.05,
        margin=0.002,
        max_labels=10**6,
        run_timeout_s=60.0,
        request=RefitRequest(mode="activate", window_by_rule=True),
        limits=limits,
    )

    def show(looks: dict[str, Any]) -> dict[str, Any]:
        return {
            "attempt": 1,
            "ordinal": 1,
            "looks": {key: {"number": 1, "ordinal": 1, "spent": 1, "fresh": True} for key in looks["certify"]},
        }

    try:
        outcome = refit(task, revision, bundle, WindowRows(read), seed=seed, at=NOW, show=show)  # type: ignore[arg-type]
    except TooFewLabelsError:
        return None
    return Gate.model_validate(outcome["report"]["gate"])


def activates(gate: Gate | None, caps: dict[str, float]) -> bool:
    """Return whether a recalibration activates unattended under caps."""
    return (
        gate is not None
        and gate.unattended
        and all(cap.upper is not None and cap.upper <= caps[cap.name] for cap in gate.caps if cap.name in caps)
    )


def main() -> None:
    """Print a table for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=60)
    parser.add_argument("--rows", type=int, nargs="+", default=[6_000, 20_000])
    parser.add_argument("--calibrator", default="platt")
    options = parser.parse_args()
    for rows in options.rows:
        print(f"\n{rows:,} labelled rows, {options.worlds} worlds, {options.calibrator}: activated unattended\n")
        print("| labels |", " | ".join(COMBINATIONS), "|")
        print("|---|" + "---|" * len(COMBINATIONS))
        for scenario in SCENARIOS:
            found = [recalibrated(scenario, rows, 1_000 + world, options.calibrator) for world in range(options.worlds)]
            shares = [np.mean([activates(gate, caps) for gate in found]) for caps in COMBINATIONS.values()]
            print(f"| {scenario.name} |", " | ".join(f"{100 * share:.0f} %" for share in shares), "|", flush=True)


if __name__ == "__main__":
    main()
