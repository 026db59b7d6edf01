"""Certificates that grow with labels: the evidence may be read at any time."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from benchmarks import growing as bench
from candor.contract.conditions import Metric
from service.decisions.grid import make_grid, pairs
from service.decisions.growing import RATES, STAKED, Plan, certified, evidence
from service.decisions.rows import ScoredRows

METRICS: tuple[Metric, ...] = ("precision", "selective_risk", "recall", "false_positive_rate", "flag_rate")


def rows(score: NDArray[np.float32], positive: NDArray[np.bool_], **columns: NDArray[np.generic]) -> ScoredRows:
    return ScoredRows(probability=score, score=score, positive=positive, **columns)  # type: ignore[arg-type]


def drawn(seed: int, n: int, good: float = 0.97) -> ScoredRows:
    rng = np.random.default_rng(seed)
    return rows(rng.random(n).astype(np.float32), rng.random(n) < good)


def plan(metric: Metric = "precision", tolerance: float = 0.1, planned: int = 10**9) -> Plan:
    fit = drawn(0, 40)
    return Plan(make_grid(fit, fit), metric, tolerance, 0.05, planned)


@pytest.mark.parametrize("name", bench.WORLDS)
def test_whoever_reads_twenty_times_is_wrong_at_most_delta_of_the_time(name: str) -> None:
    worlds = 1_500
    chance, start = bench.WORLDS[name]
    found = bench.level(chance, worlds, seed=5, start=start)
    assert found["growing"] * worlds <= binom.isf(0.001, worlds, bench.LEVEL)
    if name == "flat just under the promise":
        assert found["growing"] > 0.005, "a good part of the level is used"
        assert found["each look as the first"] > 0.07, "looks that are not counted do not hold"


def test_the_counted_worlds_are_those_of_the_evidence() -> None:
    data, wanted = drawn(3, 700), plan()
    at_or_above = data.score[:, None] >= pairs(wanted.grid.keys)[1]
    errors = (at_or_above & ~data.positive[:, None]).sum(axis=0)
    assert evidence(wanted, data) == pytest.approx(bench.capital(at_or_above.sum(axis=0), errors, 0.1))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("missing", [False, True])
def test_the_mean_of_every_factor_is_at_most_one_at_the_edge(metric: Metric, missing: bool) -> None:
    """All courses of two rows in two regions with unequal propensities; the metric is at the promise exactly."""
    fit = rows(np.array([0.9, 0.1], "f"), np.array([True, True]))
    grid = make_grid(fit, fit)
    top = 0.3  # share of rows in the upper region
    good = {"precision": (0.9, 0.9), "selective_risk": (0.9, 0.9)}.get(metric, (0.8, 0.5))
    propensity = (1.0, 0.0 if missing else 0.25)
    positives = top * good[0] + (1 - top) * good[1]
    edge = {
        "precision": 0.1,
        "selective_risk": 0.1,
        "recall": (1 - top) * good[1] / positives,
        "false_positive_rate": top * (1 - good[0]) / (1 - positives),
        "flag_rate": top,
    }[metric]
    wanted, floor = Plan(grid, metric, edge, 0.05, 10**9), 0.25
    total = np.zeros(len(grid.keys))
    for course in itertools.product(itertools.product((0, 1), (True, False), (True, False)), repeat=2):
        region, positive, sought = (np.array(column) for column in zip(*course, strict=True))
        chance = np.where(region == 0, top, 1 - top)
        of_it = np.array(good)[region]
        chance = chance * np.where(positive, of_it, 1 - of_it)
        share = np.array(propensity)[region]
        chance = chance * np.where(sought, share, 1 - share)
        if chance.prod() == 0:
            continue
        data = rows(
            np.where(region == 0, 0.9, 0.1).astype(np.float32),
            positive,
            propensity=share,
            sought=sought,
            labelled=sought,
        )
        total += chance.prod() * np.exp(evidence(wanted, data, np.full(2, floor)))
    mean = total / (1 - STAKED)
    upper = np.searchsorted(-pairs(grid.keys)[1], -0.9)
    at = {"precision": slice(None), "selective_risk": slice(None)}.get(metric, slice(upper, upper + 1))
    assert (mean[at] <= 1 + 1e-9).all(), mean
    if not missing:
        assert mean[at] == pytest.approx(1)


def test_a_label_that_comes_late_only_adds_evidence() -> None:
    data = drawn(4, 400, good=1.0)
    late = replace(data, labelled=np.random.default_rng(0).random(400) < 0.9, sought=np.ones(400, bool))
    assert (evidence(plan(), late) < evidence(plan(), data)).all()


def test_the_exact_test_is_made_once_at_the_planned_rows() -> None:
    fit = drawn(0, 400, good=1.0)
    wanted = Plan(make_grid(fit, fit), "precision", 0.05, 0.05, 80)
    data = drawn(6, 100, good=1.0)
    assert certified(wanted, data.take(slice(79))) == -1, "the bets alone need more rows"
    at = certified(wanted, data.take(slice(80)))
    assert at >= 0
    bad = ScoredRows.concat([data.take(slice(80)), drawn(7, 3000, good=0.1)])
    assert certified(wanted, bad) == at, "what is won is won; its monitor watches what comes"


def test_no_rows_certify_nothing_and_the_largest_bet_is_bounded() -> None:
    empty = drawn(0, 0)
    assert certified(plan(), empty) == -1
    assert evidence(plan(), empty) == pytest.approx(np.log(1 - STAKED))
    assert 0 < min(RATES) < max(RATES) < 1
    errors = drawn(8, 10_000, good=0.0)
    assert np.isfinite(evidence(plan(), errors)).all()


def test_rows_of_little_exploration_do_not_thin_those_of_much() -> None:
    """20,000 predictions explored at 1 %, then 1,000 labelled ones: thinned to 1 %, hardly any row would be left."""
    rng = np.random.default_rng(9)
    data = drawn(9, 21_000, good=0.99)
    floor = np.where(np.arange(21_000) < 20_000, 0.01, 1.0)
    sought = rng.random(21_000) < floor
    certify = replace(data, propensity=floor, sought=sought, labelled=sought)
    assert certified(plan(), certify, floor) >= 0
    assert certified(plan(), certify.take(slice(20_000)), floor[:20_000]) >= -1
    assert certified(plan(), certify.take(slice(0, 20_000, 40)), floor[:20_000:40]) == -1
