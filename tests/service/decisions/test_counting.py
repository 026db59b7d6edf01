"""Which rows test a metric at each candidate, and which of them count against it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from candor.contract.conditions import Metric
from service.decisions.binomial import p_value
from service.decisions.counting import Counts, Sample, seed_of
from service.decisions.grid import Grid, make_grid, pairs
from service.decisions.rows import ScoredRows

METRICS: tuple[Metric, ...] = ("precision", "selective_risk", "recall", "false_positive_rate", "flag_rate")


def rows(n: int, *, seed: int = 0, **columns: NDArray[Any]) -> ScoredRows:
    score = np.sort(np.random.default_rng(seed).random(n)).astype(np.float32)
    return ScoredRows(probability=score, score=score, positive=np.ones(n, dtype=bool), **columns)


def count(fit: ScoredRows, test: ScoredRows, metric: Metric = "precision", seed: int = 0) -> tuple[Grid, Counts]:
    grid = make_grid(fit, test)
    return grid, Sample(test, grid.cells(test), grid.floor, seed).count(metric)


@pytest.mark.parametrize("metric", METRICS)
def test_with_all_labels_the_counts_are_those_of_a_loop(metric: Metric) -> None:
    rng = np.random.default_rng(1)
    score = rng.random(900).astype(np.float32)
    data = ScoredRows(probability=score, score=score, positive=rng.random(900) < score)
    grid, found = count(rows(300), data, metric)
    for i, cut in enumerate(pairs(grid.keys)[0]):
        above, positive = score >= cut, data.positive
        members = {"recall": positive, "false_positive_rate": ~positive, "flag_rate": np.ones(900, bool)}.get(
            metric, above
        )
        wrong = {"recall": ~above, "false_positive_rate": above, "flag_rate": above}.get(metric, ~positive)
        assert (found.n[i], found.errors[i]) == (members.sum(), (members & wrong).sum())
    assert np.array_equal(found.known, found.n)
    assert np.array_equal(found.known_errors, found.errors)
    assert np.array_equal(found.best, found.n)


@pytest.mark.parametrize("propensity", [None, 1.0, 0.2])
def test_a_label_that_was_sought_and_has_not_come_is_an_error(propensity: float | None) -> None:
    rng = np.random.default_rng(9)
    column = {} if propensity is None else {"propensity": np.full(10_000, propensity)}
    fit, data = rows(10_000, seed=2, **column), rows(10_000, seed=1, **column)
    drawn = rng.random(10_000) < (propensity or 1.0)
    comes = np.arange(10_000) % 25 > 0
    everything, some = (replace(data, sought=drawn, labelled=drawn & which) for which in (comes | True, comes))
    (_, tests), (_, full) = count(fit, some), count(fit, everything)
    assert np.array_equal(tests.n, full.n)
    assert not full.errors.any()
    assert np.array_equal(tests.errors, tests.n - tests.known)
    assert tests.errors[-1] == pytest.approx(0.04 * tests.n[-1], rel=0.3)
    assert some.missing_share() == pytest.approx(0.04, rel=0.3)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("sought", [1.0, 0.3])
def test_unknown_labels_count_as_they_hurt_most(metric: Metric, sought: float) -> None:
    """Whatever the unknown labels are, the counts are at least as bad as with them, and `best` at least as good."""
    rng = np.random.default_rng(2)
    n = 4000
    score = rng.random(n).astype(np.float32)
    drawn = rng.random(n) < sought
    comes = drawn & (rng.random(n) < 0.9)
    data = ScoredRows(
        probability=score,
        score=score,
        positive=rng.random(n) < score,
        propensity=np.full(n, sought),
        sought=drawn,
        labelled=comes,
    )
    grid = make_grid(rows(300), data)
    tests = Sample(data, grid.cells(data), np.full(len(grid.keys), sought), 0).count(metric)
    for truth in (data.positive, ~data.positive, np.ones(n, bool), np.zeros(n, bool)):
        whole = replace(data, positive=np.where(comes, data.positive, truth), labelled=drawn)
        true = Sample(whole, grid.cells(whole), np.full(len(grid.keys), sought), 0).count(metric)
        # From the true counts to those of the test: errors join, right rows leave.
        assert np.all(tests.errors >= true.errors)
        assert np.all(tests.n - tests.errors <= true.n - true.errors)
        assert np.all(tests.known_errors <= true.errors)
        assert np.all(tests.best - tests.known_errors >= true.n - true.errors)


def test_the_choice_of_rows_does_not_depend_on_labels() -> None:
    data = rows(500, group=np.repeat(np.arange(100), 5), propensity=np.tile([1.0, 0.5, 0.1, 0.2, np.nan], 100))
    (_, one), (_, other) = count(data, data, seed=7), count(data, replace(data, positive=~data.positive), seed=7)
    assert np.array_equal(one.n, other.n)
    assert np.array_equal(one.errors, other.n - other.errors)


def test_thinning_takes_rows_at_the_smallest_propensity_of_the_denominator() -> None:
    rng = np.random.default_rng(8)
    score = rng.random(60_000).astype(np.float32)
    propensity = np.where(score > 0.5, 1.0, 0.1)
    sought = rng.random(60_000) < propensity
    right = score > rng.random(60_000) * 0.4
    full = ScoredRows(probability=score, score=score, positive=right, propensity=propensity, labelled=sought)
    grid, tests = count(full, full)
    cuts = pairs(grid.keys)[0]
    strict = cuts > 0.5
    at_or_above = np.array([(score >= cut).sum() for cut in cuts])
    assert np.array_equal(tests.n[strict], at_or_above[strict])
    expected = at_or_above[~strict] * 0.1
    assert np.all(np.abs(tests.n[~strict] - expected) < 5 * np.sqrt(expected))
    # Every row of the even sample has its label, so its error rate is that of all rows.
    truth = np.array([(~right & (score >= cut)).sum() for cut in cuts]) / at_or_above
    assert np.abs(tests.errors / tests.n - truth)[~strict].max() < 0.03
    labelled_only = count(full.take(sought), full.take(sought))[1]
    assert np.abs(labelled_only.errors / labelled_only.n)[-1] == pytest.approx(truth[-1], abs=0.03)


@pytest.mark.parametrize("metric", ["recall", "false_positive_rate", "flag_rate"])
def test_labels_sought_for_some_give_the_rates_of_all(metric: Metric) -> None:
    rng = np.random.default_rng(5)
    n = 80_000
    score = rng.random(n).astype(np.float32)
    propensity = np.where(score > 0.7, 1.0, 0.2)
    drawn = rng.random(n) < propensity
    full = ScoredRows(probability=score, score=score, positive=rng.random(n) < score**2)
    explored = replace(full, propensity=propensity, labelled=drawn)
    grid, truth = count(full, full, metric)
    some = Sample(explored, grid.cells(explored), np.full(len(grid.keys), 0.2), 0).count(metric)
    assert np.abs(some.errors / some.n - truth.errors / truth.n).max() < 0.02
    labelled = replace(explored, labelled=None).take(drawn)
    labelled_only = Sample(labelled, grid.cells(labelled), np.full(len(grid.keys), 0.2), 0)
    found = labelled_only.count(metric)
    assert np.abs(found.errors / found.n - truth.errors / truth.n).max() < 0.03


def test_the_flag_rate_needs_no_label_and_counts_rows_of_unknown_propensity() -> None:
    propensity = np.where(np.arange(1000) % 2, np.nan, 0.0)
    data = rows(1000, propensity=propensity, labelled=np.zeros(1000, dtype=bool))
    _, found = count(rows(200, seed=3), data, "flag_rate")
    assert (found.n == 1000).all()
    assert found.errors[-1] == 1000


def test_no_installation_keeps_an_unlucky_draw() -> None:
    """A batch of the same merchants comes in the same order each week; a rate just above the tolerated one is thinned.

    With one seed for ever, the installation that draws the harmless merchants draws them every week.
    """
    size, weeks, installations = 600, 60, 60
    wrong = np.arange(size) % 10 == 0
    propensity = np.where(np.arange(size) < size - 1, 1.0, 0.25)  # one rare row thins all others
    batch = ScoredRows(probability=np.ones(size, "f"), score=np.ones(size, "f"), positive=~wrong, propensity=propensity)
    cells, floor = np.zeros(size, np.intp), np.array([0.25])

    def false(seed: int) -> bool:
        counted = Sample(batch, cells, floor, seed).count("precision")
        return bool(p_value(counted.errors, counted.n, 0.0999)[0] <= 0.05)

    fixed = [false(seed) for seed in range(installations)]
    assert 0 < np.mean(fixed) < 0.1, "some are unlucky for ever"
    reseeded = [np.mean([false(seed_of(seed, week)) for week in range(weeks)]) for seed in range(installations)]
    assert np.mean(reseeded) < 0.05
    assert binom.isf(0.001 / installations, weeks, 0.05) >= weeks * max(reseeded), "the unluckiest is at the level too"


def test_each_look_has_a_seed_of_its_own() -> None:
    seeds = [seed_of(secret, look) for secret in (0, 1, 2**64 - 1) for look in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert seed_of(1, 5) == seed_of(1, 5)
