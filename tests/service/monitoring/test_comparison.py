"""A challenger beside the active revision: which rows count, losses and outcomes, changed decisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from calibrators import Identity, Temperature, logits_from_probabilities
from candor.contract.expressions import Expression
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.policy import parse_policy
from service.decisions.rows import NO_LABEL, Rows
from service.monitoring.comparison import Arms, Comparison, costs_of, counted, outcome
from service.monitoring.documents import VERSION
from service.monitoring.paired import Paired

NAMES = ("good", "bad")
BANDS = [{"action": "block", "when": {"min_probability": 0.8}}, {"action": "review", "when": {"min_probability": 0.5}}]
POLICY = {"id": "cards", "positive": "bad", "bands": [*BANDS, {"action": "allow"}]}


def calibrated(p: np.ndarray, policy: dict[str, Any] | None = None, **columns: Any) -> Calibrated:
    """Rows with these probabilities of "bad", decided by the policy."""
    logits = logits_from_probabilities(np.stack([1 - p, p], axis=1)).astype(np.float32)
    rows = Rows(logits=logits, **columns)
    solved = {}
    if policy is not None:
        scored = Calibrated.of(Identity(), NAMES, rows).scored(parsed := parse_policy(policy))
        solved = {parsed.id: solve(parsed, version=1, fit=scored, certify=scored, look=1, basis="traffic")}
    return Calibrated.of(Identity(), NAMES, rows, solved)


def arms(active: np.ndarray, challenger: np.ndarray, policy: dict[str, Any] | None = None, **columns: Any) -> Arms:
    return Arms(calibrated(active, policy, **columns), calibrated(challenger, policy, **columns))


def comparison(**changes: Any) -> Comparison:
    return Comparison(**({"floor": 1.0, "level": 0.05, "through": 0} | changes))


def columns(positive: np.ndarray, **more: Any) -> dict[str, Any]:
    return {"label": positive.astype(np.int64), "predicted_at": np.arange(len(positive)), **more}


def test_a_group_counts_up_to_its_first_sought_label() -> None:
    sought = np.array([False, True, True, False, True, True])
    rows = Rows(
        group=np.array([1, 1, 1, 2, 2, 3]), propensity=np.array([0.5] * 5 + [np.nan]), sought=sought, labelled=sought
    )
    which, groups, returned = counted(rows, set())
    assert which.tolist() == [0, 1, 3, 4]  # neither the third row of group 1 nor an unknown propensity
    assert (groups.tolist(), returned) == ([1, 2], 0)
    which, _, returned = counted(rows, {1})
    assert (which.tolist(), returned) == ([3, 4], 3)


def test_the_better_arm_is_found_and_the_same_rows_change_no_decision_twice() -> None:
    rng = np.random.default_rng(0)
    truth = 1.5 * rng.standard_normal(4_000)
    positive = rng.random(4_000) < expit(truth)
    active, challenger = expit(truth + 1.0), expit(truth)
    found = comparison()
    given = columns(positive)
    for part in np.array_split(np.arange(4_000), 4):
        cut = {name: column[part] for name, column in given.items()} | {"group": part}
        shown = found.update(arms(active[part], challenger[part], POLICY, **cut), seen=set(), through=int(part[-1]) + 1)
        assert shown.tolist() == part.tolist()
        found = Comparison.from_dict(found.to_dict())
    log_loss = found.paired["log_loss"]
    assert log_loss.better == "challenger"
    ours, theirs = log_loss.means()
    assert ours == pytest.approx(-np.log(np.where(positive, active, 1 - active)).mean(), abs=2e-3)
    assert log_loss.interval(floor=1.0)[0] < theirs - ours < log_loss.interval(floor=1.0)[1] < 0
    assert (found.rows, found.labelled, found.missing, found.scored) == (4_000, 4_000, 0, 4_000)
    flipped = (active >= 0.8) & (challenger < 0.8) & (challenger >= 0.5)
    assert found.decisions["cards"]["block", "review"] == (flipped.sum(), 0, 0.0)
    assert sum(counts.rows for counts in found.decisions["cards"].values()) == 4_000


def test_equal_arms_on_groups_that_are_all_alike() -> None:
    """Rows of a group repeat one label. Each counted as a label of its own, they would name an arm in most worlds."""
    rng = np.random.default_rng(2)
    wrong = dict.fromkeys(("grouped", "each"), 0)
    for _ in range(20):
        group = np.repeat(np.arange(60), 100)
        order = rng.permutation(len(group))
        group = group[order]
        positive = (rng.random(60) < 0.5)[group]
        side = rng.choice([-1.5, 1.5], 60)[group]
        both = expit(side), expit(-side)
        for name, own in (("grouped", group), ("each", np.arange(len(group)))):
            found = comparison()
            found.update(arms(*both, **columns(positive, group=own)), seen=set(), through=len(group))
            wrong[name] += found.paired["log_loss"].better is not None
    assert wrong["grouped"] <= 3
    assert wrong["each"] >= 10


def test_where_groups_return_the_arm_that_is_named_is_better_on_the_rows_counted_so_far() -> None:
    """A third of the groups have ten rows; the challenger is better for them, the active revision for the others.

    Over all groups the arms are equal, so an arm is named because frequent groups come first.
    """
    rng, groups, named, wrong = np.random.default_rng(7), 1_500, 0, 0
    for _ in range(20):
        frequent = rng.random(groups) < 1 / 3
        group = rng.permutation(np.repeat(np.arange(groups), np.where(frequent, 10, 1)))
        gain = np.where(frequent[group], 0.4, -0.2)
        positive = rng.random(len(group)) < 0.5 + gain / 2
        found, seen = comparison(), set[int]()
        for part in np.array_split(np.arange(len(group)), 10):
            cut = {name: column[part] for name, column in columns(positive, group=group).items()}
            both = np.full(len(part), 0.2), np.full(len(part), 0.9)
            seen |= set(found.update(arms(*both, POLICY, **cut), seen=seen, through=int(part[-1]) + 1).tolist())
        assert (found.rows, found.returned > 0.5 * found.scored) == (groups, True)
        paired = found.paired["policy/cards"]
        counted_so_far = np.sort(np.unique(group, return_index=True)[1])
        if paired.better is not None and paired.decided_at is not None:
            named += 1
            so_far = gain[counted_so_far[counted_so_far <= paired.decided_at]].mean()
            wrong += so_far <= 0 if paired.better == "challenger" else so_far >= 0
    assert (named, wrong) == (20, 0)


def test_labels_that_are_sought_for_some_give_the_difference_of_all() -> None:
    rng = np.random.default_rng(4)
    truth = 1.5 * rng.standard_normal(60_000)
    positive = rng.random(60_000) < expit(truth)
    propensity = np.where(truth > 0, 1.0, 0.25)
    sought = rng.random(60_000) < propensity
    found = comparison(floor=0.25)
    given = columns(np.where(sought, positive, NO_LABEL), propensity=propensity, sought=sought, labelled=sought)
    found.update(arms(expit(truth + 1.0), expit(truth), **given), seen=set(), through=60_000)
    losses = [-np.log(np.where(positive, p, 1 - p)).mean() for p in (expit(truth + 1.0), expit(truth))]
    low, high = found.paired["log_loss"].interval(floor=0.25)
    assert low < losses[1] - losses[0] < high < 0
    assert found.paired["log_loss"].means() == pytest.approx(losses, abs=0.01)


def test_rows_that_are_sought_more_rarely_than_the_floor_help_nobody() -> None:
    """The challenger is better where all labels are sought, and worse where a queue draws one in four."""
    rng = np.random.default_rng(6)
    truth = 1.5 * rng.standard_normal(60_000)
    positive = rng.random(60_000) < expit(truth)
    active, challenger = expit(truth), np.where(truth > 1, expit(truth), expit(truth - 2))
    active = np.where(truth > 1, expit(truth - 1.5), active)
    propensity = np.where(truth > 1, 1.0, 0.25)
    sought = rng.random(60_000) < propensity
    better = {}
    for floor in (1.0, 0.25):
        found = comparison(floor=floor)
        given = columns(positive, propensity=propensity, sought=sought, labelled=sought, group=np.arange(60_000))
        found.update(arms(active, challenger, **given), seen=set(), through=60_000)
        better[floor] = found.paired["log_loss"].better
        assert found.missing == (0 if floor < 1 else (truth <= 1).sum())
    assert better == {1.0: None, 0.25: "active"}


def test_missing_labels_are_said_and_help_nobody() -> None:
    positive = np.zeros(400, bool)
    known = np.arange(400) % 4 == 0
    found = comparison()
    given = columns(np.where(known, positive, NO_LABEL), sought=np.ones(400, bool), labelled=known)
    found.update(arms(np.full(400, 0.6), np.full(400, 0.05), **given), seen=set(), through=400)
    assert (found.labelled, found.missing) == (100, 300)
    assert found.paired["log_loss"].better is None
    assert found.paired["log_loss"].interval(floor=1.0)[1] > 0


def test_outcomes_cost_what_the_policy_says() -> None:
    side = calibrated(np.array([0.9, 0.6, 0.1]), POLICY)  # block, review, allow
    _, costs = costs_of(side.policies["cards"], np.full(3, np.nan), 0.0)
    assert [one.ravel().tolist() for one in costs] == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    costs = tuple(np.full((3, 1), float(cost)) for cost in (5, 100, 1))
    assert outcome(side, "cards", costs).tolist() == [[5, 0], [1, 1], [0, 100]]
    top = {"id": "read", "positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 0.8}}]}
    top["bands"].append({"action": "review"})
    side = calibrated(np.array([0.9, 0.6, 0.1]), top)  # accept "bad", review, accept "good"
    errors = costs_of(side.policies["read"], np.full(3, np.nan), 0.0)[1]
    assert outcome(side, "read", errors).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_bands_with_costs_decide_in_their_unit() -> None:
    costs = {"false_positive": 5, "false_negative": 100}
    policy = {"id": "cards", "positive": "bad", "bands": [{"action": "block", "when": {"cost": costs}}]}
    policy["bands"].append({"action": "allow"})
    rng = np.random.default_rng(6)
    positive = rng.random(3_000) < 0.3
    better = np.where(positive, 0.9, 0.01)
    found = comparison()
    found.update(arms(np.full(3_000, 0.01), better, policy, **columns(positive)), seen=set(), through=3_000)
    paired = found.paired["policy/cards"]
    assert paired.bound == 100
    assert paired.better == "challenger"
    assert paired.means() == pytest.approx((100 * positive.mean(), 0.0))


BY_AMOUNT = {
    "id": "cards",
    "positive": "bad",
    "amount_when_missing": 10.0,
    "bands": [
        {
            "action": "block",
            "when": {"cost": {"false_positive": "4 + 0.02 * amount", "false_negative": "min(amount, 500)"}},
        },
        {"action": "allow"},
    ],
}


def test_costs_by_amount_count_amounts_up_to_a_limit() -> None:
    positive = np.arange(100) % 2 == 0
    found = comparison()
    found.amount_limit = 200.0
    amount = np.tile([50.0, 50.0, 1_000.0, np.nan], 25)
    given = columns(positive, amount=amount)
    found.update(arms(np.full(100, 0.001), np.full(100, 0.9), BY_AMOUNT, **given), seen=set(), through=100)
    paired = found.paired["policy/cards"]
    assert paired.bound == 200.0
    # The active revision allows all: half of its bad rows lose 50, half 200 (of 1,000). The challenger blocks all: half
    # of its false alarms cost 5 (of 50), half 4.2 (of a missing amount, which is 10).
    assert paired.means() == pytest.approx(((50 + 200) / 4, (5 + 4.2) / 4))
    again = Comparison.from_dict(found.to_dict())
    assert (again.amount_limit, again.cut) == (200.0, 25)


def test_costs_by_amount_without_amounts_count_errors() -> None:
    positive = np.arange(100) % 2 == 0
    found = comparison()
    given = columns(positive, amount=np.full(100, 50.0))
    found.update(arms(np.full(100, 0.001), np.where(positive, 0.9, 0.001), BY_AMOUNT, **given), seen=set(), through=100)
    assert found.decisions["cards"]["allow", "block"] == (50, 50, 2_500.0)
    assert found.paired["policy/cards"].bound == 1.0
    assert found.paired["policy/cards"].means() == (0.5, 0.0)
    document = found.to_dict()
    del document["amount_limit"], document["cut"], document["returned"]  # of an earlier version: it goes on as it was
    assert (Comparison.from_dict(document).amount_limit, Comparison.from_dict(document).cut) == (0.0, 0)


def test_a_comparison_by_amount_names_no_arm_where_both_cost_the_same() -> None:
    """One arm misses a fifth of the small amounts, the other the few large ones, which count as the limit.

    Until the first of these, one arm seems better: with the usual amount as the bound of a row, it is named too often.
    """
    rng, rows, wrong = np.random.default_rng(3), 1_000, {"limit": 0, "usual": 0}
    for _ in range(60):
        large = rng.random(rows) < 0.002
        missed = ~large & (rng.random(rows) < 0.002 * 400 / 4 / 0.998)
        given = columns(np.ones(rows, bool), amount=np.where(large, 1_000.0, 4.0))
        found = comparison()
        found.amount_limit = 400.0
        both = np.where(missed, 0.001, 0.99), np.where(large, 0.001, 0.99)
        for part in np.array_split(np.arange(rows), 10):
            cut = {name: column[part] for name, column in given.items()} | {"group": part}
            found.update(arms(*(p[part] for p in both), BY_AMOUNT, **cut), seen=set(), through=int(part[-1]) + 1)
        assert found.cut == large.sum()
        wrong["limit"] += found.paired["policy/cards"].better is not None
        usual = Paired(bound=4.0, level=0.05)
        difference = np.where(large, 400.0, np.where(missed, -4.0, 0.0))
        usual.add(difference, difference, time=np.arange(rows))
        wrong["usual"] += usual.better is not None
    assert wrong["limit"] <= 6
    assert wrong["usual"] >= 20, wrong


@pytest.mark.parametrize(
    ("text", "until", "expected"),
    [
        ("3", 10, 3),
        ("amount", 10, 10),
        ("100 - amount", 10, 100),
        ("min(amount, 4)", 10, 4),
        ("max(9 - amount, amount)", 4, 9),
    ],
)
def test_the_highest_value_of_an_expression(text: str, until: float, expected: float) -> None:
    assert Expression.of(text).highest(until) == expected


def test_a_policy_whose_costs_are_all_zero_asks_nothing() -> None:
    costs = {"false_positive": "0", "false_negative": "0"}
    policy = {"id": "cards", "positive": "bad", "bands": [{"action": "block", "when": {"cost": costs}}]}
    policy["bands"].append({"action": "allow"})
    found = comparison()
    given = columns(np.zeros(100, bool))
    found.update(arms(np.full(100, 0.6), np.full(100, 0.05), policy, **given), seen=set(), through=100)
    assert found.paired.keys() == {"log_loss"}


def test_a_certain_and_wrong_arm_has_a_finite_loss_within_the_bound() -> None:
    positive = np.ones(50, bool)
    found = comparison()
    found.update(arms(np.full(50, 1.0), np.zeros(50), **columns(positive)), seen=set(), through=50)
    paired = found.paired["log_loss"]
    assert paired.better == "active"
    assert 9 < paired.means()[1] - paired.means()[0] <= paired.bound
    assert math.isfinite(paired.evidence("active"))


def test_calibrators_of_one_model_file_are_compared_on_the_same_logits() -> None:
    rng = np.random.default_rng(9)
    truth = 2.0 * rng.standard_normal(3_000)
    positive = rng.random(3_000) < expit(truth)
    logits = np.stack([np.zeros(3_000), 3.0 * truth], axis=1).astype(np.float32)
    rows = Rows(logits=logits, **columns(positive))
    warm = Temperature().fit(logits, positive.astype(np.int64))
    both = Arms(Calibrated.of(Identity(), NAMES, rows), Calibrated.of(warm, NAMES, rows))
    found = comparison()
    found.update(both, seen=set(), through=3_000)
    assert found.paired["log_loss"].better == "challenger"


def test_a_document_of_another_kind_is_refused() -> None:
    document = comparison().to_dict()
    assert Comparison.from_dict(document).to_dict() == document
    for wrong in ({**document, "kind": "calibration"}, {**document, "version": VERSION + 1}, {**document, "more": 1}):
        with pytest.raises(Exception, match=r"Wrong kind|fields"):
            Comparison.from_dict(wrong)
