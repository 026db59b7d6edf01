"""Promises about rows and amounts on rows that come in groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from candor.contract.certificates import Certificate
from candor.contract.conditions import CONDITIONS, Metric
from candor.contract.policies import Policy
from service.decisions.betting import Block, hedged, mixed
from service.decisions.certify import solve
from service.decisions.clustered import Clustered, Grouped
from service.decisions.grid import make_grid
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.errors import PolicyError

WORLDS = 8_000


def policy(promise: float = 0.95, name: str = "min_precision", **certify: Any) -> Policy:
    bands = [{"action": "accept", "when": {name: promise}}, {"action": "review"}]
    return parse_policy({"id": "p", "bands": bands, "certify": {"looks": "once", **certify}})


def at_most(violations: int, delta: float, worlds: int) -> bool:
    """Whether the number of violations is compatible with a rate of at most delta, at a one-sided 0.1 % level."""
    return bool(violations <= binom.isf(0.001, worlds, delta))


def solved(wanted: Policy, fit: ScoredRows, certify: ScoredRows, **more: Any) -> Certificate:
    found = solve(wanted, version=1, fit=fit, certify=certify, look=1, basis="traffic", **more)
    certificate = found.bands[0].certificate
    assert certificate is not None
    return certificate


# Groups of 1 or 8 rows; the rate of errors of all rows is that given.
def independent(rng: np.random.Generator, sizes: NDArray[Any], rate: float) -> NDArray[Any]:
    return rng.binomial(sizes, rate)


def together(rng: np.random.Generator, sizes: NDArray[Any], rate: float) -> NDArray[Any]:
    return sizes * (rng.random(sizes.shape) < rate)


def in_large_ones(rng: np.random.Generator, sizes: NDArray[Any], rate: float) -> NDArray[Any]:
    share = 8 * 0.2 / (8 * 0.2 + 0.8)  # of the rows that are in large groups
    return np.where(sizes == 8, rng.binomial(sizes, rate / share), 0)


def large_ones_together(rng: np.random.Generator, sizes: NDArray[Any], rate: float) -> NDArray[Any]:
    return np.where(sizes == 8, 8 * (rng.random(sizes.shape) < rate * 1.5), 0)


Errors = Callable[[np.random.Generator, NDArray[Any], float], NDArray[Any]]


def worlds(seed: int, errors: Errors, rate: float, groups: int = 200, count: int = WORLDS) -> list[Block]:
    """Return groups one by one, of many worlds side by side."""
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(groups):
        sizes = np.where(rng.random(count) < 0.2, 8, 1)
        blocks.append((sizes[None].astype(float), errors(rng, sizes, rate)[None].astype(float)))
    return blocks


@pytest.mark.parametrize(
    ("errors", "most"),
    [(independent, 0.05), (together, 0.05), (in_large_ones, 0.05), (large_ones_together, 0.05)],
    ids=["independent", "together", "in large groups", "large groups together"],
)
def test_a_broken_promise_is_shown_at_most_delta_of_the_time(errors: Errors, most: float) -> None:
    columns = np.ones(WORLDS)
    blocks = worlds(5, errors, 0.2501)
    mean = 8 * 0.2 + 0.8
    shown = hedged(blocks, np.full(WORLDS, 200), 0.25 * columns, 8 * columns, mean * columns, 3 * columns, most)
    assert at_most(int(shown.sum()), most, WORLDS), shown.mean()
    if errors in (together, large_ones_together):
        assert shown.mean() > most / 2, "a good part of delta is used"
    # The promise that the evidence speaks most for may be chosen: no tolerance below the true rate is ever shown.
    chosen = mixed(blocks, 0.25, 8 * columns) >= -np.log(most)
    assert at_most(int(chosen.sum()), most, WORLDS)
    assert np.all(mixed(blocks[:50], 0.2, 8 * columns) <= mixed(blocks[:50], 0.25, 8 * columns))


def cards(rng: np.random.Generator, groups: int, *, bad: float = 0.91) -> ScoredRows:
    """Return payments of cards: one card in eight pays ten times, and is right less often."""
    size = np.where(rng.random(groups) < 0.125, 10, 1)
    large = np.repeat(size > 1, size)
    score = rng.integers(0, 4, len(large)).astype(np.float32) / 4
    positive = rng.random(len(large)) < np.where(large, bad, 0.999)
    return ScoredRows(probability=score, score=score, positive=positive, group=np.repeat(np.arange(groups), size))


def test_served_rows_keep_what_is_certified_per_row() -> None:
    """91 % of the payments of busy cards are right: 94.7 % of all payments, and 98.8 % if each card counts once."""
    rng, false = np.random.default_rng(3), {"group": 0, "row": 0}
    for world in range(40):
        fit, certify = cards(rng, 400), cards(rng, 700)
        for per in false:
            false[per] += solved(policy(per=per), fit, certify, seed=world).valid
    assert false["group"] >= 36, "each card counts once: the promise is kept by the mean card"
    assert at_most(false["row"], 0.05, 40)
    assert solved(policy(per="row"), cards(rng, 400, bad=0.999), cards(rng, 2000, bad=0.999)).valid


def test_amounts_that_are_wrong_together_are_not_certified() -> None:
    rng, false = np.random.default_rng(4), {"row": 0, "amount": 0}
    for world in range(16):
        parts = []
        for n in (400, 800):
            amount = np.where(rng.random(n) < 0.1, 20.0, 1.0)  # 69 % of the money is in a tenth of the rows
            score = rng.integers(0, 4, n).astype(np.float32) / 4
            positive = rng.random(n) < np.where(amount > 1, 0.92, 0.999)
            parts.append(ScoredRows(probability=score, score=score, positive=positive, amount=amount))
        for per in false:
            false[per] += solved(policy(per=per), *parts, seed=world).valid
    assert false["row"] >= 15, "99.1 % of the rows are right"
    assert at_most(false["amount"], 0.05, 16), "and 94.4 % of the money"
    clean = replace(parts[0], positive=np.ones(400, np.bool_)), replace(parts[1], positive=np.ones(800, np.bool_))
    certificate = solved(policy(0.8, per="amount"), *clean)
    assert (certificate.valid, certificate.per, certificate.group_limit) == (True, "amount", 20.0)


@pytest.mark.parametrize("name", ["min_precision", "min_recall", "max_flag_rate"])
def test_rows_without_amounts_certify_no_amounts(name: str) -> None:
    score = np.arange(600, dtype=np.float32) % 4 / 4
    rows = ScoredRows(probability=score, score=score, positive=score > 0.5)
    wanted = policy(0.8, name, per="amount").model_copy(update={"amount_when_missing": 1.0})
    assert "100.0% of the certify rows have no amount" in str(solved(wanted, rows, rows).reason)
    # The rows that count are those without an amount, though nearly all others have one.
    missing = {"min_precision": score > 0.7, "min_recall": score > 0.5, "max_flag_rate": score >= 0}[name]
    part = replace(rows, amount=np.where(missing & (np.arange(600) % 8 > 3), np.nan, 2.0))
    assert "of the certify rows have no amount" in str(solved(wanted, rows, part).reason)
    few = replace(rows, amount=np.where(np.arange(600) % 25, 1.0, np.nan))
    assert solved(wanted, few, few).valid


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("giant", [450, 30])
def test_rows_beyond_the_limit_of_their_group_count_as_errors_or_certify_nothing(look: int, giant: int) -> None:
    """A giant group is all wrong: no promise is certified that the rows shown break."""
    rng = np.random.default_rng(5)
    score = rng.random(5000).astype(np.float32)
    fit = ScoredRows(probability=score, score=score, positive=np.ones(5000, np.bool_))
    in_giant = np.zeros(5000, np.bool_)
    in_giant[rng.choice(5000, giant, replace=False)] = True
    certify = replace(fit, positive=~in_giant, group=np.where(in_giant, 0, 1 + np.arange(5000)))
    found = solve(policy(0.99, looks="unlimited"), version=1, fit=fit, certify=certify, look=look, basis="traffic")
    certificate = found.bands[0].certificate
    assert certificate is not None
    assert "beyond the first 1 row of their group" in str(certificate.reason)
    assert not certificate.valid
    # One twin beyond the limit is within what is allowed, and counted.
    twin = replace(fit, group=np.where(np.arange(5000) == 1, 0, np.arange(5000)))
    assert (
        solve(policy(0.99, looks="unlimited"), version=1, fit=fit, certify=twin, look=look, basis="traffic")
        .bands[0]
        .stands
    )


@pytest.mark.parametrize(
    "name", [name for name, metric in CONDITIONS.items() if metric and name != "max_review_per_day"]
)
@pytest.mark.parametrize("look", [1, 2])
def test_groups_of_one_row_each_have_the_certificates_of_today(name: str, look: int) -> None:
    rng = np.random.default_rng(8)
    score = rng.random(900).astype(np.float32)
    every = ScoredRows(probability=score, score=score, positive=rng.random(900) < 0.5 + score / 2)
    fit, certify = every.take(slice(300)), every.take(slice(300, None))
    promise = 0.7 if name.startswith("min") else 0.3
    documents = []
    for per in ("row", "group"):
        wanted = policy(promise, name, per=per, looks="unlimited")
        found = solve(wanted, version=1, fit=fit, certify=certify, look=look, basis="traffic").bands[0]
        assert found.certificate is not None
        documents.append((found.threshold, found.certificate.model_dump(exclude={"per"})))
    assert documents[0] == documents[1]
    # The same rows, tested as groups that happen to have one row each.
    grid = make_grid(fit, certify)
    clustered = Clustered(policy(), grid, fit, certify, 0)
    shown = clustered.test("precision", np.arange(len(grid.keys)), 0.3, 0.05)
    cells = grid.cells(certify)
    above = cells <= np.arange(len(grid.keys))[:, None]
    n, wrong = above.sum(axis=1), (above & ~certify.positive).sum(axis=1)
    assert np.array_equal(shown, binom.cdf(wrong, n, 0.3) <= 0.05)


def test_sums_of_groups_are_those_of_their_rows() -> None:
    rng = np.random.default_rng(2)
    n, candidates = 400, 7
    cells = rng.integers(0, candidates, n)
    rows = ScoredRows(
        probability=np.ones(n, np.float32),
        score=np.ones(n, np.float32),
        positive=rng.random(n) < 0.5,
        group=rng.integers(0, 60, n),
        labelled=rng.random(n) < 0.8,
        sought=np.ones(n, np.bool_),
    )
    weight = rng.random(n)
    grouped = Grouped(rows, cells, np.ones(candidates), 0, weight)
    known, right = rows.known(), rows.positive
    for metric in get_args(Metric):
        blocks = [np.vstack(sums) for sums in zip(*grouped.blocks(metric, np.arange(candidates), 9), strict=True)]
        for at in range(candidates):
            above = cells <= at
            of, wrong = {
                "precision": (above, above & ~(known & right)),
                "selective_risk": (above, above & ~(known & right)),
                "recall": (known & right | ~known & ~above, (right | ~known) & ~above),
                "false_positive_rate": (known & ~right | ~known & above, (~right | ~known) & above),
                "flag_rate": (np.ones(n, np.bool_), above),
            }[metric]
            for sums, counted in zip(blocks, (of, wrong), strict=True):
                expected = np.bincount(np.unique(rows.group, return_inverse=True)[1], weight * counted)
                assert np.sort(sums[:, at]) == pytest.approx(np.sort(expected))
            assert grouped.total(metric, at)[:2] == (of.sum(), (of & wrong).sum())


def test_a_few_twins_cost_little() -> None:
    rng = np.random.default_rng(9)
    score = rng.random(3000).astype(np.float32)
    group = np.arange(3000)
    group[[1, 2001]] = 0, 2000  # one input in a thousand came twice
    every = ScoredRows(probability=score, score=score, positive=np.ones(3000, np.bool_), group=group)
    found = solved(policy(), every.take(slice(2000)), every.take(slice(2000, None)))
    assert (found.valid, found.group_limit) == (True, 1.0)


def test_larger_groups_than_in_the_fit_rows_are_not_certified() -> None:
    score = np.random.default_rng(1).random(300).astype(np.float32)
    fit = ScoredRows(probability=score, score=score, positive=np.ones(300, np.bool_))
    certify = replace(fit, group=np.arange(300) // 5)
    assert "beyond the first 1 row of their group" in str(solved(policy(), fit, certify).reason)


def test_certificates_of_earlier_versions_are_per_group() -> None:
    old = {"metric": "precision", "at_least": 0.9, "at_most": None, "delta": 0.05, "n": 60, "errors": 0, "looks": 1}
    certificate = Certificate.model_validate({**old, "basis": "traffic", "window": None, "valid": True})
    assert certificate.per == "group"


def test_certificates_that_grow_count_groups() -> None:
    assert policy(looks="anytime", planned=100).certify.unit == "group"
    with pytest.raises(PolicyError, match="count each group once"):
        policy(looks="anytime", planned=100, per="row")
