"""Estimates of a backtest: against closed forms, and the coverage of their intervals over simulated worlds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from candor.contract.conditions import Costs
from service.decisions.backtest import LARGEST_WEIGHT, Judged, days_of, lower_thresholds, outcome, seen_by_people
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows


def world(seed: int, groups: int = 600, share: float = 0.3) -> tuple[ScoredRows, np.ndarray]:
    """Return rows of groups of 1 to 3, of which those below 0.7 are explored, and all labels."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rng.integers(1, 4, groups))
    base = rng.beta(1, 3, groups)[group]
    p = np.clip(base + rng.normal(0, 0.05, len(group)), 0, 1).astype(np.float32)
    positive = rng.random(len(group)) < base
    propensity = np.where(p >= 0.7, 1.0, share)
    sought = rng.random(len(group)) < propensity
    amount = np.round(rng.lognormal(3, 1, len(group)), 2)
    columns = {"group": group, "propensity": propensity, "sought": sought, "labelled": sought, "amount": amount}
    return ScoredRows(probability=p, score=p, positive=positive & sought, **columns), positive


def test_with_all_labels_the_estimates_are_the_counts() -> None:
    rows, positive = world(1, share=1.0)
    actions = np.array(["block", "review", "allow"], object)[np.digitize(-rows.probability, [-0.6, -0.3])]
    costs = Costs(false_positive="4 + 0.02 * amount", false_negative="amount", review=3)
    found = outcome(Judged(rows), actions, "allow", costs)
    taken = actions != "allow"
    spent = np.where(actions == "review", 3, np.where(taken & ~positive, 4 + 0.02 * rows.amount, 0)).sum()
    assert found.actions == {name: int((actions == name).sum()) for name in ("block", "review", "allow")}
    for estimate, truth in [
        (found.caught, (positive & taken).sum()),
        (found.missed, (positive & ~taken).sum()),
        (found.precision, positive[taken].mean()),
        (found.prevented, rows.amount[positive & taken].sum()),
        (found.lost, rows.amount[positive & ~taken].sum()),
        (found.friction, spent),
    ]:
        assert estimate.value == pytest.approx(truth)
        assert estimate.interval is not None
        assert estimate.interval[0] < truth < estimate.interval[1]


def test_intervals_cover_what_an_endless_log_would_say() -> None:
    """600 worlds against one of 100,000 groups; a coverage of 95 % is seen with a standard error of 0.9 points."""
    rows, positive = world(0, groups=100_000)
    taken = rows.probability >= 0.4
    truth = {
        "caught": (positive & taken).mean(),
        "prevented": (rows.amount * (positive & taken)).mean(),
        "precision": positive[taken].mean(),
    }
    covered = dict.fromkeys(truth, 0)
    for seed in range(1, 601):
        rows, _ = world(seed)
        for name, estimate in Judged(rows).taken(rows.probability >= 0.4).items():
            assert estimate.interval is not None
            scale = 1 if name == "precision" else len(rows)
            covered[name] += estimate.interval[0] <= truth[name] * scale <= estimate.interval[1]
    assert all(0.93 <= count / 600 <= 0.995 for count in covered.values()), covered


@pytest.mark.parametrize(("rows", "rate"), [(300, 0.1), (3000, 0.02)])
def test_intervals_of_money_cover_where_a_few_amounts_decide_the_sum(rows: int, rate: float) -> None:
    """Amounts follow a Pareto law of index 1.5, whose mean is 3: without the added group, 85 to 88 % were covered."""
    rng, worlds, covered = np.random.default_rng(8), 300, 0
    p = np.full(rows, 0.5, np.float32)
    for _ in range(worlds):
        amount, positive = 1 + rng.pareto(1.5, rows), rng.random(rows) < rate
        judged = Judged(ScoredRows(probability=p, score=p, positive=positive, amount=amount))
        low, high = judged.total(amount, positive).interval or (0.0, 0.0)
        covered += low <= 3 * rate * rows <= high
    assert covered >= binom.ppf(0.001, worlds, 0.95)


def test_intervals_of_counts_cover_where_few_labels_are_sought() -> None:
    """Half of 200 positives among 4,000 rows are explored at 2 %: often, the log shows none of them."""
    rng, worlds, covered, blind = np.random.default_rng(9), 300, 0, np.arange(4000) < 2000
    p, propensity = np.where(blind, 0.1, 0.9).astype(np.float32), np.where(blind, 0.02, 1.0)
    for _ in range(worlds):
        positive, sought = rng.random(4000) < 0.05, rng.random(4000) < propensity
        columns = {"propensity": propensity, "sought": sought, "labelled": sought}
        judged = Judged(ScoredRows(probability=p, score=p, positive=positive & sought, **columns))
        low, high = judged.total(np.ones(4000), positive, most=1.0).interval or (0.0, 0.0)
        covered += low <= 200 <= high
    assert covered >= binom.ppf(0.001, worlds, 0.95)


def test_rows_that_no_label_can_reach_are_counted_at_each_threshold() -> None:
    rows, _ = world(2)
    blind = rows.probability < 0.3
    columns = rows.columns() | {"propensity": np.where(blind, 0.0, rows.propensity)}
    columns |= {"labelled": rows.known() & ~blind, "sought": rows.was_sought() & ~blind}
    judged = Judged(ScoredRows(**columns))
    found = lower_thresholds(judged)
    assert [point.probability for point in found] == sorted((point.probability for point in found), reverse=True)
    assert found[-1].rows == len(rows)
    for point in found:
        assert point.unidentified == (blind & (rows.probability >= point.probability)).sum()
    assert found[-1].unidentified == blind.sum() == (~judged.identified).sum()


def test_weights_are_capped_and_nothing_is_said_without_labels() -> None:
    few = {"propensity": np.array([1e-4, 1.0]), "labelled": np.array([True, True])}
    p = np.array([0.2, 0.9], np.float32)
    judged = Judged(ScoredRows(probability=p, score=p, positive=p > 0.5, **few))
    assert (judged.capped, judged.weight.tolist()) == (1, [LARGEST_WEIGHT, 1.0])
    assert judged.total(np.ones(2), p > 0.5).interval is None
    none = Judged(ScoredRows(probability=p, score=p, positive=p > 0.5, labelled=np.zeros(2, bool)))
    assert none.total(np.ones(2), p > 0.5).value is None


def test_a_review_is_no_false_alarm_and_free_unless_the_costs_price_it() -> None:
    rows, positive = world(3, share=1.0)
    actions = np.where(rows.probability >= 0.6, "block", np.where(rows.probability >= 0.3, "review", "allow"))
    found = outcome(Judged(rows), actions.astype(object), "allow", Costs(false_positive=5, false_negative=100))
    assert found.friction.value == pytest.approx(5 * ((actions == "block") & ~positive).sum())
    all_reviewed = outcome(
        Judged(rows), np.full(len(rows), "review", object), "allow", Costs(false_positive=5, false_negative=100)
    )
    assert all_reviewed.friction.value == 0


def test_each_row_is_left_by_the_last_action_of_its_own_policy() -> None:
    rows, positive = world(4, share=1.0)
    actions = np.where(rows.probability >= 0.6, "block", np.where(rows.group % 2, "allow", "accept")).astype(object)
    last = np.where(rows.group % 2, "allow", "accept").astype(object)
    found = outcome(Judged(rows), actions, last, None)
    assert found.caught.value == pytest.approx((positive & (rows.probability >= 0.6)).sum())


def test_intervals_of_shares_end_at_1_and_depend_on_the_rows_they_are_about() -> None:
    p = np.linspace(0, 1, 60).astype(np.float32)
    high = p >= 0.5
    rows = ScoredRows(probability=p, score=p, positive=high & (np.arange(60) != 40))
    precision = Judged(rows).taken(high)["precision"]
    assert precision.interval is not None
    assert precision.interval[1] == 1.0
    alone = Judged(rows.take(high)).taken(np.ones(30, bool))["precision"]
    assert precision.interval == pytest.approx(alone.interval)


def test_rows_that_no_one_has_time_to_review_are_missed() -> None:
    rows, positive = world(5, share=1.0)
    terms = {"max_per_day": 40, "random_share": 0.25, "priority": "probability"}
    bands = [{"action": "review", "when": {"min_probability": 0.3}}, {"action": "allow"}]
    policy = parse_policy({"id": "p", "positive": "bad", "bands": bands, "review": terms})
    actions = np.where(rows.probability >= 0.3, "review", "allow").astype(object)
    judged = Judged(rows)
    seen = seen_by_people(policy, judged, actions, 2.0)
    assert seen is not None
    reviewed = actions == "review"
    assert seen[reviewed].sum() == pytest.approx(80), "two days of 40"
    best = np.argsort(-rows.probability, kind="stable")[:60]
    assert (seen[best] == 1).all()
    assert np.ptp(np.delete(np.where(reviewed, seen, np.nan), best)[~np.delete(~reviewed, best)]) == pytest.approx(0)
    found = outcome(judged, actions, "allow", None, seen)
    assert found.caught.value == pytest.approx((positive * reviewed * seen).sum())
    assert found.caught.value + found.missed.value == pytest.approx(positive.sum())
    assert seen_by_people(parse_policy({"id": "p", "positive": "bad", "bands": bands}), judged, actions, 2.0) is None


def test_an_hour_of_rows_has_an_hour_of_the_queue() -> None:
    hour = np.arange(3600) * 1_000_000
    assert days_of(hour) == pytest.approx(1 / 24)
    assert days_of(hour * 48) == pytest.approx(2.0)
    assert days_of(hour[:1]) == days_of(hour * 0) == days_of(hour[:0]) == 1.0


def test_rows_without_an_amount_count_with_that_of_the_policy() -> None:
    p = np.array([0.9, 0.8], np.float32)
    rows = ScoredRows(probability=p, score=p, positive=np.ones(2, bool), amount=np.array([np.nan, 5.0]))
    assert Judged(rows, 60.0).taken(np.ones(2, bool))["prevented"].value == 65.0
