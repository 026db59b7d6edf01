"""What a simulation says, against loops and against populations that are known."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from candor.contract.certificates import SolvedBand, Threshold
from candor.contract.simulation import SimulatedDecisions
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.simulate import simulate
from service.decisions.solved import SolvedPolicy

BANDS = [
    {"action": "block", "when": {"min_probability": 0.8}},
    {"action": "review", "when": {"min_probability": 0.4}},
    {"action": "allow"},
]
POLICY = parse_policy({"id": "p", "bands": BANDS})


def solved(*cuts: float) -> SolvedPolicy:
    thresholds = [Threshold.at(float(np.float32(cut)), -np.inf) for cut in cuts]
    bands = zip(POLICY.bands, [*thresholds, None], strict=True)
    return SolvedPolicy(
        POLICY,
        1,
        tuple(SolvedBand(action=band.action, threshold=cut, certificate=None) for band, cut in bands),
        review_all=False,
    )


def draw(n: int, seed: int = 0, **columns: Any) -> ScoredRows:
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    return ScoredRows(probability=p, score=p, positive=rng.random(n) < p, **columns)


def run(after: SolvedPolicy, rows: ScoredRows, before: SolvedPolicy | None = None, **more: Any) -> SimulatedDecisions:
    named = replace(rows, id=np.array([f"row-{i}" for i in range(len(rows))], dtype=np.bytes_))
    return simulate(after, named, before=None if before is None else (before, named), **more)


def test_changes_and_volumes_are_those_of_a_loop() -> None:
    rows = draw(500)
    found = run(solved(0.7, 0.4), rows, solved(0.8, 0.3))
    was = ["block" if p >= np.float32(0.8) else "review" if p >= np.float32(0.3) else "allow" for p in rows.probability]
    will = [
        "block" if p >= np.float32(0.7) else "review" if p >= np.float32(0.4) else "allow" for p in rows.probability
    ]
    flipped = [i for i in range(500) if was[i] != will[i]]
    assert found.decisions.flipped == len(flipped)
    assert [(flip.id, flip.before, flip.after) for flip in found.decisions.flips] == [
        (f"row-{i}", was[i], will[i]) for i in flipped[:100]
    ]
    assert {action: (volume.before, volume.after) for action, volume in found.actions.items()} == {
        action: (was.count(action), will.count(action)) for action in ("block", "review", "allow")
    }
    assert {(change.before, change.after): change.rows for change in found.decisions.changes} == {
        pair: sum((was[i], will[i]) == pair for i in flipped) for pair in {("review", "block"), ("review", "allow")}
    }
    assert len(run(solved(0.7, 0.4), rows, solved(0.8, 0.3), most_flips=2).decisions.flips) == 2
    json.dumps(found.document, allow_nan=False)


def test_with_all_labels_estimates_are_exact_binomial() -> None:
    rows = draw(800)
    found = run(solved(0.7, 0.4), rows)
    assert found.decisions.flipped is None
    for band, cut in zip(found.expected, (0.7, 0.4), strict=True):
        above = rows.probability >= np.float32(cut)
        for estimate, of, wrong in [
            (band.precision, above, ~rows.positive),
            (band.recall, rows.positive, ~above),
            (band.false_positive_rate, ~rows.positive, above),
            (band.flag_rate, np.ones(800, dtype=bool), above),
        ]:
            n, errors = int(of.sum()), int((of & wrong).sum())
            exact = binomtest(errors, n).proportion_ci(0.95, method="exact")
            flip = estimate in (band.precision, band.recall)
            expected = (1 - errors / n, 1 - exact.high, 1 - exact.low) if flip else (errors / n, exact.low, exact.high)
            assert (estimate.value, *estimate.interval) == pytest.approx(expected)
            assert (estimate.n, estimate.unknown) == (n, 0)


def test_one_row_of_a_group_counts() -> None:
    rows = draw(900, group=np.repeat(np.arange(300), 3))
    assert run(solved(0.7, 0.4), rows).expected[0].flag_rate.n == 300
    assert run(solved(0.7, 0.4), rows).rows == 900


@pytest.mark.parametrize("missing", [0.0, 0.03])
def test_intervals_cover_the_truth_where_labels_are_sought_for_some(missing: float) -> None:
    """Above 0.5 all labels are sought, below it a fifth; those that do not come are all of one kind, the worst."""
    worlds, covered = 300, np.zeros(4)
    truths = (0.85, 1 - 0.49, 0.045 / 0.5, 0.3)  # of p uniform, positive with probability p, flagged from 0.7
    after = solved(0.7, 0.4)
    for world in range(worlds):
        rng = np.random.default_rng(world)
        rows = draw(1200, seed=world + 1000)
        propensity = np.where(rows.probability > 0.5, 1.0, 0.2)
        sought = rng.random(1200) < propensity
        comes = sought & ~(~rows.positive & (rng.random(1200) < 2 * missing))
        band = run(after, replace(rows, propensity=propensity, sought=sought, labelled=comes)).expected[0]
        estimates = (band.precision, band.recall, band.false_positive_rate, band.flag_rate)
        covered += [e.interval[0] <= truth <= e.interval[1] for e, truth in zip(estimates, truths, strict=True)]
    assert (covered >= binom.ppf(0.001, worlds, 0.95)).all(), covered / worlds


def test_what_nobody_labels_is_left_open() -> None:
    rows = draw(2000)
    flagged: NDArray[np.bool_] = rows.probability >= np.float32(0.7)
    hidden = replace(rows, propensity=np.where(flagged, 1.0, 0.0), labelled=flagged)
    band = run(solved(0.7, 0.4), hidden).expected[0]
    assert band.precision.interval[1] - band.precision.interval[0] < 0.1
    low, high = band.recall.interval
    assert low < 0.3
    assert high > 0.98
    assert band.recall.unknown > 1000


def test_everything_in_review_takes_no_row_into_the_bands() -> None:
    rows = draw(100)
    found = run(replace(solved(0.7, 0.4), review_all=True), rows, solved(0.7, 0.4))
    assert found.actions["review"].after == 100
    assert (found.expected[0].precision.value, found.expected[0].precision.interval) == (None, (0.0, 1.0))
    assert found.expected[0].recall.value == 0.0


def test_no_rows_say_nothing() -> None:
    found = run(solved(0.7, 0.4), draw(0), solved(0.6, 0.4))
    assert (found.rows, found.decisions.flipped) == (0, 0)
    assert found.expected[0].precision.interval == (0.0, 1.0)
