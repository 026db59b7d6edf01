"""Decisions by amounts: the cheapest action of every row, whatever its amount, and clear rules for rows without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from candor.contract.certificates import SolvedBand, SolvedSegment, Threshold
from candor.contract.policies import Policy
from service.decisions.certify import solve
from service.decisions.decide import decide
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.errors import PolicyError

COSTS = {"false_positive": "4 + 0.02 * amount", "false_negative": "amount", "review": 3}
NO_ROWS = ScoredRows(probability=np.zeros(0, "f4"), score=np.zeros(0, "f4"), positive=np.zeros(0, bool))


def policy(*bands: dict[str, Any], **more: Any) -> Policy:
    return parse_policy({"id": "money", "positive": "fraud", "bands": [*bands, {"action": "allow"}], **more})


def by_cost(costs: dict[str, Any] = COSTS, **more: Any) -> Policy:
    actions = ("block", "review") if "review" in costs else ("block",)
    return policy(*({"action": action, "when": {"cost": costs}} for action in actions), **more)


def solved(wanted: Policy) -> SolvedPolicy:
    return solve(wanted, version=1, fit=NO_ROWS, certify=NO_ROWS, look=1, basis="reference")


def drawn(rows: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random(rows).astype(np.float32) ** 3, np.round(rng.lognormal(4, 1.5, rows), 2)


@pytest.mark.parametrize(
    "costs",
    [
        COSTS,
        {"false_positive": "4 + 0.02 * amount", "false_negative": "amount"},
        {"false_positive": 5, "false_negative": "max(20, 0.9 * amount)", "review": "min(3, 0.1 * amount)"},
        {"false_positive": "2 * amount", "false_negative": "amount / 2", "review": 0.5},
    ],
)
def test_every_row_gets_the_cheapest_action(costs: dict[str, Any]) -> None:
    p, amounts = drawn(20_000)
    found = solved(by_cost(costs))
    actions = np.array(found.actions)[decide(found, p, p, None, amounts)]

    def worth(cost: Any) -> Any:
        names = {"amount": amounts, "min": np.minimum, "max": np.maximum}
        return np.broadcast_to(eval(str(cost), names), len(p))

    exact = p.astype(np.float64)
    choices = {"block": (1 - exact) * worth(costs["false_positive"]), "allow": exact * worth(costs["false_negative"])}
    if "review" in costs:
        choices["review"] = worth(costs["review"])
    spent = np.select([actions == action for action in choices], list(choices.values()))
    np.testing.assert_allclose(spent, np.min(list(choices.values()), axis=0), rtol=1e-12)
    assert set(actions) == set(choices)


def test_one_row_is_decided_as_among_many() -> None:
    p, amounts = drawn(300, seed=1)
    found = solved(by_cost())
    alone = [decide(found, p[i : i + 1], p[i : i + 1], None, [float(amounts[i])])[0] for i in range(len(p))]
    assert alone == decide(found, p, p, None, amounts).tolist()


def test_the_thresholds_of_the_guide() -> None:
    costs = by_cost().bands[0].condition
    assert costs is not None
    assert costs.costs is not None
    found = [costs.costs.threshold(action, amount) for amount in (100, 1000) for action in ("block", "review")]
    assert found == pytest.approx([0.5, 0.03, 0.875, 0.003])


def test_an_expected_loss_left_to_later_bands_never_exceeds_its_limit() -> None:
    p, amounts = drawn(5_000)
    found = solved(policy({"action": "review", "when": {"max_expected_loss": 25}}))
    left = decide(found, p, p, None, amounts) == found.actions.index("allow")
    loss = p.astype(np.float64) * amounts
    assert loss[left].max() <= 25 < loss[~left].min()


def test_a_row_without_an_amount_goes_to_review_unless_it_counts_as_one_or_an_earlier_band_takes_it() -> None:
    p = np.array([0.99, 0.99, 0.0, 0.0], np.float32)
    amounts = [None, 100.0, None, 100.0]
    block = {"action": "stop", "when": {"min_probability": 0.98}}
    rest = {"action": "hold", "when": {"cost": {"false_positive": 1, "false_negative": "amount"}}}
    found = solved(policy(block, rest))
    assert [found.actions[i] for i in decide(found, p, p, None, amounts)] == ["stop", "stop", "review", "allow"]
    assert [found.actions[i] for i in decide(found, p, p)] == ["stop", "stop", "review", "review"]
    found = solved(policy(rest, amount_when_missing=100))
    assert [found.actions[i] for i in decide(found, p, p, None, amounts)] == ["hold", "hold", "allow", "allow"]


def test_segments_that_are_certified_decide_by_amounts_and_others_fall_back() -> None:
    wanted = by_cost(segments={"values": ["DE", "FR"], "fallback": "allow"})
    bands = tuple(SolvedBand(action=band.action, threshold=None, certificate=None) for band in wanted.bands)
    parts = {name: SolvedSegment(bands=bands, certified=name == "DE") for name in ("DE", "FR")}
    found = SolvedPolicy(wanted, 1, bands, review_all=True, segments=parts)
    p = np.full(4, 0.9, np.float32)
    decided = decide(found, p, p, ["DE", "DE", "FR", None], [100.0, 0.1, 100.0, 100.0])
    assert [found.actions[i] for i in decided] == ["block", "allow", "allow", "allow"]


def test_promises_before_amounts_are_certified_as_ever() -> None:
    wanted = policy(
        {"action": "block", "when": {"min_precision": 0.9}}, {"action": "review", "when": {"max_expected_loss": 5}}
    )
    p = np.linspace(0, 1, 600, dtype=np.float32)
    rows = ScoredRows(probability=p, score=p, positive=p > 0.5)
    found = solve(wanted, version=1, fit=rows, certify=rows, look=1, basis="traffic")
    threshold = found.bands[0].threshold
    assert isinstance(threshold, Threshold)
    decided = decide(found, p, p, None, np.full(600, 10.0))
    np.testing.assert_array_equal(decided == 0, p >= np.float32(threshold.probability))
    np.testing.assert_array_equal(decided == 1, (p.astype(float) * 10 > 5) & (decided != 0))
    assert SolvedPolicy.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("document", "where", "said"),
    [
        ({"when": {"cost": COSTS | {"false_negative": "amount - 5"}}}, "false_negative", "negative for some amount"),
        ({"when": {"cost": COSTS | {"false_negative": "amount ** 2"}}}, "false_negative", "unexpected"),
        ({"when": {"cost": COSTS | {"false_negative": "a" * 300}}}, "false_negative", "Expected a number above 0"),
        ({"when": {"cost": COSTS | {"false_negative": True}}}, "false_negative", "Expected a number above 0"),
        ({"when": {"max_expected_loss": 0}}, "max_expected_loss", "above 0"),
        ({"when": {"max_expected_loss": "amount"}}, "max_expected_loss", "above 0"),
    ],
)
def test_costs_that_cannot_be_are_refused_with_their_place(document: Any, where: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as refused:
        policy({"action": "block", **document})
    assert str(refused.value.where).startswith("/bands/0/when/")
    assert str(refused.value.where).endswith(where)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"amount_when_missing": -1}, "/amount_when_missing"),
        ({"amount_when_missing": 5, "bands": [{"action": "allow"}]}, "/amount_when_missing"),
        (
            {"positive": "top", "bands": [{"action": "a", "when": {"max_expected_loss": 5}}, {"action": "b"}]},
            "/bands/0/when/max_expected_loss",
        ),
        (
            {
                "bands": [
                    {"action": "a", "when": {"max_expected_loss": 5}},
                    {"action": "b", "when": {"min_precision": 0.9}},
                    {"action": "c"},
                ]
            },
            "/bands/1/when/min_precision",
        ),
    ],
)
def test_policies_that_amounts_cannot_serve_are_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(by_cost().to_dict() | change)
    assert refused.value.where == where
