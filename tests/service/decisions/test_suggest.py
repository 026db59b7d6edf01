"""A suggested policy: what it promises, what its certificates are worth, and what it says where it promises nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.lint import lint
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.decisions.suggest import LADDER, Suggestion, suggest
from service.errors import ConfigurationError, InputShapeError, PolicyError


def draw(rng: np.random.Generator, n: int, base_rate: float = 0.05, apart: float = 3.0) -> ScoredRows:
    """Draw calibrated rows: scores of both classes are normal, `apart` standard deviations from one another."""
    positive = rng.random(n) < base_rate
    score = rng.normal(size=n) + apart * positive
    odds = score * apart - apart**2 / 2 + np.log(base_rate / (1 - base_rate))
    probability = (1 / (1 + np.exp(-odds))).astype(np.float32)
    return ScoredRows(probability=probability, score=score.astype(np.float32), positive=positive)


def top(rng: np.random.Generator, n: int, precision: float) -> ScoredRows:
    """Draw rows of which the top tenth has a flat precision, and the others are never positive."""
    u = rng.random(n).astype(np.float32)
    return ScoredRows(probability=u, score=u, positive=(u > 0.9) & (rng.random(n) < precision))


def of(fit: ScoredRows, certify_rows: int, **options: Any) -> Suggestion:
    rows = {"certify_rows": certify_rows, "labelled_rows": len(fit) + certify_rows}
    return suggest(fit, **({"positive": "fraud"} | rows | options))


def solved(policy: Policy, fit: ScoredRows, certify: ScoredRows) -> SolvedPolicy:
    return solve(policy, version=1, fit=fit, certify=certify, look=1, basis="reference")


def names(policy: Policy) -> list[tuple[str, str | None]]:
    return [(band.action, band.condition and band.condition.name) for band in policy.bands]


def test_what_is_suggested_is_certified_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    certified = []
    for _ in range(12):
        fit = draw(rng, 4000, 0.01, 4.0)
        found = of(fit, 4000, review_share=0.05)
        assert found.promised is not None
        assert names(found.policy) == [("block", "min_precision"), ("review", "max_flag_rate"), ("allow", None)]
        certified += [not solved(found.policy, fit, draw(rng, 4000, 0.01, 4.0)).review_all for _ in range(20)]
    assert np.mean(certified) > 0.75


def test_its_certificates_are_false_at_most_delta_often() -> None:
    """The level holds given the fit rows, also where these flatter the model: each promise is false by a hair."""
    rng = np.random.default_rng(2)
    false = worlds = 0
    for _ in range(5):
        fit = top(rng, 2000, 0.97)
        found = of(fit, 2000)
        assert found.promised is not None
        for _ in range(250):
            worlds += 1
            blocks = solved(found.policy, fit, top(rng, 2000, found.promised - 1e-4)).bands[0]
            false += blocks.threshold is not None and blocks.threshold.probability > 0.9
    assert 0 < false <= binom.isf(0.001, worlds, 0.05)


@pytest.mark.parametrize("base_rate", [0.003, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("size", [40, 3000])
@pytest.mark.parametrize("review_share", [0.001, 0.02, 0.5])
def test_linting_finds_no_problem(base_rate: float, size: int, review_share: float) -> None:
    fit = draw(np.random.default_rng(size), size, base_rate)
    found = of(fit, size, review_share=review_share)
    findings = lint(found.policy, classes=2, fit=fit, certify_rows=size)
    assert [finding.message for finding in findings if finding.level == "problem"] == []
    assert all(base_rate / 2 < rung.min_precision for rung in found.rungs)
    assert 0 <= found.blocked <= found.flagged <= 1


def test_too_few_rows_promise_nothing_and_say_what_the_lowest_precision_needs() -> None:
    found = of(draw(np.random.default_rng(3), 150), 150)
    assert names(found.policy) == [("review", "min_probability"), ("allow", None)]
    assert found.promised is None
    assert [rung.min_precision for rung in found.rungs] == [*LADDER]
    assert found.rungs[-1].more
    assert found.flagged == pytest.approx(0.02, abs=0.01)
    certify = draw(np.random.default_rng(4), 150)
    assert not solved(found.policy, certify, certify).review_all


def test_stricter_precisions_need_more_labels_and_get_them() -> None:
    rng = np.random.default_rng(5)
    found = of(draw(rng, 2000), 2000)
    needed = [rung.more for rung in found.rungs if rung.more is not None]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > 0
    more = {rung.min_precision: rung.more for rung in found.rungs}[0.9]
    assert more
    size = 2000 + 2 * more
    chances = [{rung.min_precision: rung.chance for rung in of(draw(rng, size), size).rungs}[0.9] for _ in range(3)]
    assert np.median(chances) >= 0.8


def test_a_model_that_cannot_reach_a_precision_is_told_so() -> None:
    found = of(top(np.random.default_rng(6), 20_000, 0.75), 20_000)
    assert found.promised == 0.7
    assert [rung.more is None for rung in found.rungs] == [True] * 3 + [False] * 4


def test_review_takes_its_share_beyond_the_blocked_rows() -> None:
    rng = np.random.default_rng(7)
    fit = draw(rng, 8000)
    found = of(fit, 8000, review_share=0.04)
    result = solved(found.policy, fit, draw(rng, 8000))
    assert not result.review_all
    limit = found.policy.bands[1].condition
    assert limit is not None
    assert limit.value == pytest.approx(found.blocked + 0.04, abs=0.002)
    assert found.policy.explore.share == pytest.approx(0.01)
    assert found.recall is not None
    assert found.recall > 0.7
    taken = result.bands[1].threshold
    assert taken is not None
    assert (fit.probability >= np.float32(taken.probability)).mean() <= limit.value


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_equal_probabilities_are_all_reviewed(value: float) -> None:
    fit = draw(np.random.default_rng(8), 300)
    same = np.full(300, value, np.float32)
    found = of(replace(fit, probability=same, score=same), 300)
    assert found.promised is None
    assert names(found.policy) == [("review", None)]
    assert found.plateau is not None
    assert (found.plateau.share, found.plateau.taken, found.flagged) == (1.0, True, 1.0)


def stepped(rng: np.random.Generator, n: int, steps: int) -> ScoredRows:
    """Draw rows whose probabilities lie on a few plateaus, as isotonic regression makes them, and some between."""
    levels = np.sort(rng.random(steps).astype(np.float32) ** 2)
    probability = np.where(
        rng.random(n) < 0.1, rng.random(n) ** 2, rng.choice(levels, n, p=rng.dirichlet(np.ones(steps)))
    )
    score = probability + rng.random(n) / 1000
    return ScoredRows(
        probability=probability.astype(np.float32),
        score=score.astype(np.float32),
        positive=rng.random(n) < probability,
    )


@pytest.mark.parametrize("review_share", [0.01, 0.03, 0.1, 0.4])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_fixed_threshold_takes_what_the_best_distinct_probability_takes(
    review_share: float, steps: int, seed: int
) -> None:
    """Brute force over the distinct probabilities: the most rows within the share, else the fewest there are."""
    fit = stepped(np.random.default_rng((steps, seed)), 200, steps)
    found = of(fit, 20, review_share=review_share)  # too few certify rows for any promise
    assert found.promised is None
    condition = found.policy.bands[0].condition
    assert condition is not None
    assert condition.name == "min_probability"
    explored = found.policy.explore.share
    left = (round(review_share, 4) - explored) / (1 - explored)
    volumes = sorted((fit.probability >= value).mean() for value in np.unique(fit.probability))
    best = max((volume for volume in volumes if volume <= left), default=volumes[0])
    assert (fit.probability >= np.float32(condition.value)).mean() == best == pytest.approx(found.flagged)
    assert (
        condition.value not in fit.probability.tolist() or len(str(condition.value)) < 5
    )  # between them, if it can be
    assert len(str(condition.value)) < 9
    following = volumes[volumes.index(best) + 1]
    if best > left:
        assert found.plateau is None or found.plateau.taken
    elif best < left / 2 and following - best > 1.5 / 200:
        assert found.plateau is not None
        assert not found.plateau.taken
        assert found.plateau.share == pytest.approx(following - best)


def test_a_plateau_above_the_review_share_is_told() -> None:
    rng = np.random.default_rng(12)
    probability = np.where(rng.random(2000) < 0.4, np.float32(0.3), np.float32(0.01)).astype(np.float32)
    fit = ScoredRows(probability=probability, score=probability, positive=rng.random(2000) < probability)
    found = of(fit, 2000)
    assert found.plateau is not None
    assert (found.plateau.probability, found.plateau.taken) == (pytest.approx(0.3), True)
    assert found.plateau.share == pytest.approx(found.flagged) == (probability > 0.1).mean()
    condition = found.policy.bands[0].condition
    assert condition is not None
    assert 0.01 < condition.value < 0.3


@pytest.mark.parametrize("positive", [False, True])
def test_one_class(positive: bool) -> None:
    fit = replace(draw(np.random.default_rng(9), 300), positive=np.full(300, positive))
    found = of(fit, 300)
    assert found.promised is None
    assert (found.rungs == ()) == positive
    assert all(rung.more is None for rung in found.rungs)
    assert (found.recall is None) != positive


def groups_of(rng: np.random.Generator, sizes: NDArray[np.int64]) -> ScoredRows:
    """Draw rows of groups whose rows have one class and nearly one score."""
    rows = draw(rng, len(sizes), 0.2, 4.0)
    group = np.repeat(np.arange(len(sizes)), sizes)
    return replace(rows.take(group), group=rng.permutation(len(sizes))[group])


def test_twice_the_rows_of_each_group_promise_no_more() -> None:
    fit = draw(np.random.default_rng(10), 500)
    one, twice = of(fit, 500), of(ScoredRows.concat([fit, fit]), 500, labelled_rows=1000)
    assert (twice.fit_rows, twice.positives) == (one.fit_rows, one.positives)
    assert (twice.promised or 0) <= (one.promised or 0)


@pytest.mark.parametrize("largest", [3, 30])
def test_groups_are_promised_what_groups_can_certify(largest: int) -> None:
    """Promises are about rows, so large groups leave little evidence: it was counted as if each had one row."""
    rng = np.random.default_rng(13)
    certified, promised = [], 0
    for _ in range(4):
        fit = groups_of(rng, rng.integers(1, largest + 1, 300))
        found = of(fit, 300)
        promised += found.promised is not None
        if found.promised is not None:
            for _ in range(5):
                certify = groups_of(rng, rng.integers(1, largest + 1, 300))
                certified.append(not solved(found.policy, fit, certify).review_all)
    assert promised == 4, "without a promise, the next line would say nothing"
    assert np.mean(certified) > 0.7


def test_promises_that_count_each_group_once() -> None:
    """A tenth of the groups with two rows hide promises about rows; each group counted once, they do not."""
    rng = np.random.default_rng(18)
    fit, certify = (groups_of(rng, 1 + (rng.random(1000) < 0.1)) for _ in range(2))
    found = of(fit, 1000, certify=certify, per="group")
    assert found.policy.certify.per == "group"
    assert found.promised is not None
    assert not solved(found.policy, fit, certify).review_all


def test_rows_beyond_the_limit_of_their_group_are_judged_where_the_walk_ends() -> None:
    """They were judged where it starts: of few groups there, one that is large was enough for a chance of 0."""
    rng = np.random.default_rng(2)
    fit, larger, *others = (groups_of(rng, rng.geometric(0.7, 600)) for _ in range(5))
    assert of(fit, 600, certify=larger).promised is None, "its groups are larger than those of the fit rows"
    for certify in others:
        found = of(fit, 600, certify=certify)
        assert found.promised == 0.8
        assert not solved(found.policy, fit, certify).review_all


@pytest.mark.parametrize("seed", [14, 15])
def test_groups_of_very_unequal_sizes_are_promised_little(seed: int) -> None:
    """One row of each group gave precisions of 0.8 and 0.9 a chance of 80 % and more; no draw certified them."""
    rng = np.random.default_rng(seed)
    fit, *others = (groups_of(rng, np.minimum(1 + rng.pareto(0.9, 300), 300).astype(np.int64)) for _ in range(3))
    for certify in others:
        found = of(fit, 300, certify=certify)
        assert (found.promised or 0) < 0.8
        assert found == of(fit, 300, certify=replace(certify, positive=~certify.positive)), "no label is read"


@pytest.mark.parametrize(
    ("options", "error", "where"),
    [
        ({"positive": "top"}, ConfigurationError, "--positive"),
        ({"review_share": 0.0}, ConfigurationError, "--review-share"),
        ({"review_share": 1.0}, ConfigurationError, "--review-share"),
        ({"delta": 1.0}, PolicyError, "/certify/delta"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], where: str) -> None:
    with pytest.raises(error) as caught:
        of(draw(np.random.default_rng(11), 50), 50, **options)
    assert getattr(caught.value, "place", None) == where or getattr(caught.value, "where", None) == where


def test_no_fit_rows() -> None:
    with pytest.raises(InputShapeError, match="no fit rows"):
        of(draw(np.random.default_rng(12), 0), 50)
