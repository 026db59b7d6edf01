import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from service.decisions.gate import MIXED, compare, potential
from service.errors import InputShapeError, InputValueError, TooFewLabelsError
from tests.service.decisions.test_mean_bounds import at_most

Array = NDArray[Any]


def sides(n: int, active: float, candidate: float, *, seed: int = 0, classes: int = 2) -> tuple[Array, Array, Array]:
    """Return candidate and active probabilities at two temperatures, and labels drawn at temperature 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))

    def softmax(temperature: float) -> Array:
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        return powers / powers.sum(axis=1, keepdims=True)

    labels = (softmax(1.0).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return softmax(candidate).astype(np.float32), softmax(active).astype(np.float32), labels


@pytest.mark.parametrize("classes", [2, 5])
def test_a_mended_candidate_is_better(classes: int) -> None:
    candidate, active, labels = sides(3000, 0.5, 1.0, classes=classes)
    result = compare(candidate, active, labels, mode="superior", attempt=1)
    assert result.passed
    assert result.upper < 0
    assert result.difference == result.nll.difference == pytest.approx(result.nll.after - result.nll.before)
    assert result.nll.interval[0] < result.difference < result.nll.interval[1]
    assert result.brier.upper < 0.001
    assert result.reason.startswith("Better: log loss falls by at least")
    assert (result.rows, result.groups, result.excluded) == (3000, 3000, 0)


def test_the_same_revision_is_harmless_and_not_better() -> None:
    candidate, _, labels = sides(1000, 1.0, 1.0)
    superior = compare(candidate, candidate, labels, mode="superior", attempt=1)
    assert (superior.passed, superior.difference, superior.upper) == (False, 0.0, 0.0)
    assert superior.reason.startswith("Nothing gained")
    harmless = compare(candidate, candidate, labels, mode="non_inferior", attempt=1)
    assert harmless.passed
    assert harmless.reason.startswith("No harm")
    assert harmless.nll.interval == (0.0, 0.0)


def test_a_harmful_candidate_passes_in_neither_mode() -> None:
    candidate, active, labels = sides(2000, 1.0, 0.4)
    for mode in ("superior", "non_inferior"):
        result = compare(candidate, active, labels, mode=mode, attempt=1)  # type: ignore[arg-type]
        assert not result.passed
        assert f"{result.difference:+.4f}" in result.reason
        assert f"{result.upper:+.4f}" in result.reason


def test_the_brier_score_has_its_own_margin() -> None:
    candidate, active, labels = sides(2000, 0.5, 1.0)
    result = compare(candidate, active, labels, mode="superior", attempt=1, brier_margin=-0.5)
    assert result.upper < 0
    assert not result.passed
    assert "Brier" in result.reason


def test_attempts_share_alpha() -> None:
    candidate, active, labels = sides(500, 0.7, 1.0)
    results = [compare(candidate, active, labels, mode="superior", attempt=k) for k in (1, 2, 3)]
    assert [result.alpha for result in results] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    assert results[0].upper < results[1].upper < results[2].upper
    with pytest.raises(ValueError, match="counted from 1"):
        compare(candidate, active, labels, mode="superior", attempt=0)


@pytest.mark.parametrize(("rare", "judged"), [(24, False), (25, True)])
def test_two_classes_need_rows_of_the_rarer(rare: int, judged: bool) -> None:
    labels = (np.arange(1000) < rare).astype(np.int64)
    active = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
    candidate = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    result = compare(candidate, active, labels, mode="superior", attempt=1)
    assert (result.passed, result.errors) == (judged, rare)
    assert judged or "at least 25" in result.reason


@pytest.mark.parametrize(("wrong", "judged"), [(24, False), (25, True)])
def test_more_classes_need_errors_of_the_active_top_label(wrong: int, judged: bool) -> None:
    labels = np.arange(900) % 3
    guess = np.where(np.arange(900) < wrong, (labels + 1) % 3, labels)
    active = np.where(guess[:, None] == [0, 1, 2], 0.4, 0.3)
    candidate = np.where(labels[:, None] == [0, 1, 2], 0.8, 0.1)
    result = compare(candidate, active, labels, mode="superior", attempt=1)
    assert (result.passed, result.errors) == (judged, wrong)


def test_evidence_is_counted_in_groups() -> None:
    labels = (np.arange(1000) < 100).astype(np.int64)
    side = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
    result = compare(side, side, labels, np.arange(1000) // 5, mode="non_inferior", attempt=1)
    assert (result.passed, result.errors, result.groups) == (False, 100, 200)
    assert result.reason.startswith("Not judged: 20 groups")


def test_repeating_every_row_within_its_group_changes_nothing() -> None:
    candidate, active, labels = sides(800, 0.6, 1.0)
    once = compare(candidate, active, labels, mode="superior", attempt=1)
    four = [np.repeat(column, 4, axis=0) for column in (candidate, active, labels)]
    clustered = compare(*four, np.repeat(np.arange(800), 4), mode="superior", attempt=1)
    assert clustered.upper == pytest.approx(once.upper)
    assert clustered.nll.interval == pytest.approx(once.nll.interval)
    assert clustered.groups == 800
    assert compare(*four, mode="superior", attempt=1).upper < once.upper


def test_a_probability_of_zero_costs_a_finite_loss() -> None:
    candidate, active, labels = sides(1000, 1.0, 1.0)
    rows = np.arange(1000)
    candidate[rows, 1 - labels], candidate[rows, labels] = 0.0, 1.0
    candidate[:40] = candidate[:40, ::-1]
    result = compare(candidate, active, labels, mode="superior", attempt=1)
    assert np.isfinite(result.upper)
    assert result.nll.after <= -np.log(MIXED / 2)


def test_harm_in_a_region_without_gate_rows_shows_in_unlabelled_traffic() -> None:
    candidate, active, labels = sides(2000, 0.6, 1.0)
    plain = compare(candidate, active, labels, mode="superior", attempt=1)
    assert plain.passed
    same = compare(candidate, active, labels, mode="superior", attempt=1, traffic=(candidate, active))
    assert same == plain
    # One class in two is given no chance at all: if those labels came, they would cost nine nats each.
    region = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    result = compare(candidate, active, labels, mode="superior", attempt=1, traffic=region)
    assert result.upper > plain.upper + 8 / 2000
    assert result.difference == plain.difference


def test_a_refusal_names_the_group_without_labels_that_dominates_the_bound() -> None:
    candidate, active, labels = sides(2000, 0.6, 1.0)
    copies = np.tile([[0.99, 0.01]], (500, 1)), np.tile([[0.6, 0.4]], (500, 1))
    elsewhere = potential(*copies, np.repeat([0, 1], [450, 50]))
    result = compare(candidate, active, labels, mode="superior", attempt=1, elsewhere=elsewhere)
    assert result.nll.interval[1] < 0 < result.upper
    assert "a group of 450 rows, 90.0% of the 500 rows read with it. Label these rows" in result.reason
    assert compare(candidate, active, labels, mode="superior", attempt=1).passed


def test_harm_where_few_gate_rows_fall_is_seen_in_rows_of_other_roles() -> None:
    """In a region of two expected gate rows, the candidate is certain of the wrong class; elsewhere it gains a little.

    Fit and certify rows show the region without their labels, unless by chance none of all rows lies in it.
    """
    rng, gate, worlds, passed = np.random.default_rng(7), 300, 400, [0, 0]
    for _ in range(worlds):
        region = rng.random(3 * gate) < 2 / gate
        right = region | (rng.random(3 * gate) < 0.8)
        old, new = np.where(region, 0.98, 0.75), np.where(region, 1e-6, 0.755)
        active, candidate = (np.column_stack([1 - side, side]) for side in (old, new))
        labels = right.astype(np.int64)
        rest = potential(candidate[gate:], active[gate:], np.arange(2 * gate))
        for at, elsewhere in enumerate([None, rest]):
            verdict = compare(
                candidate[:gate], active[:gate], labels[:gate], mode="superior", attempt=1, elsewhere=elsewhere
            )
            passed[at] += verdict.passed
    assert passed[0] > binom.isf(0.001, worlds, 0.025), "what gate rows alone let pass"
    assert passed[1] <= binom.isf(0.001, worlds, 0.025), passed


def test_rows_are_thinned_to_the_smallest_propensity() -> None:
    candidate, active, labels = sides(40_000, 0.5, 1.0)
    propensity = np.tile([1.0, 0.1, 0.0, np.nan], 10_000)
    result = compare(candidate, active, labels, mode="superior", attempt=1, propensity=propensity, seed=5)
    # All 10,000 rows at 0.1 stay; of those at 1 a tenth; of the others none.
    assert abs(result.rows - 11_000) < 200
    assert result.rows + result.excluded == 40_000
    again = compare(candidate, active, labels, mode="superior", attempt=1, propensity=propensity, seed=5)
    assert again == result
    flipped = compare(candidate, active, 1 - labels, mode="superior", attempt=1, propensity=propensity, seed=5)
    assert flipped.rows == result.rows


@pytest.mark.parametrize("propensity", [0.0, np.nan])
def test_without_known_propensities_there_is_nothing_to_compare(propensity: float) -> None:
    candidate, active, labels = sides(100, 0.5, 1.0)
    with pytest.raises(TooFewLabelsError):
        compare(candidate, active, labels, mode="superior", attempt=1, propensity=np.full(100, propensity))
    with pytest.raises(TooFewLabelsError):
        compare(candidate, active, labels, np.zeros(100, dtype=np.int64), mode="superior", attempt=1)


def test_bad_rows_name_themselves() -> None:
    candidate, active, labels = sides(50, 0.5, 1.0)
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InputShapeError, "candidate", {"candidate": candidate[:, :1], "active": active[:, :1]}),
        (InputShapeError, "active", {"active": active[:-1]}),
        (InputShapeError, "labels", {"labels": labels[:-1]}),
        (InputShapeError, "groups", {"groups": labels[:-1]}),
        (InputValueError, "labels", {"labels": labels + 1}),
        (InputValueError, "candidate", {"candidate": candidate * 2}),
        (InputValueError, "active", {"active": active * np.nan}),
        (InputValueError, "propensity", {"propensity": np.full(50, 1.5)}),
        (InputShapeError, "traffic", {"traffic": (active, active[:-1])}),
        (InputValueError, "traffic", {"traffic": (active, active + 1)}),
    ]
    for error, where, columns in cases:
        arguments = {"candidate": candidate, "active": active, "labels": labels} | columns
        with pytest.raises(error) as refusal:
            compare(**arguments, mode="superior", attempt=1)
        assert refusal.value.where == where  # type: ignore[attr-defined]


def test_the_verdict_is_json() -> None:
    candidate, active, labels = sides(300, 0.5, 1.0)
    document = compare(candidate, active, labels, mode="superior", attempt=1).document
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    intervals = {"interval_before", "interval_after", "interval"}
    assert set(document["nll"]) == {"before", "after", "difference", "upper", "margin"} | intervals


@cache
def difference(active: float, candidate: float) -> float:
    """Return the true difference of two temperatures: that of very many rows."""
    return compare(*sides(400_000, active, candidate, seed=1), mode="superior", attempt=1).difference


@pytest.mark.parametrize("per_group", [1, 4])
@pytest.mark.parametrize(("active", "candidate"), [(1.0, 0.5), (0.5, 1.0)])
def test_temperatures_at_the_margin_pass_at_most_alpha(active: float, candidate: float, per_group: int) -> None:
    """Whole comparisons: the margin is the true difference, so that each pass is a false one."""
    n, worlds = 300, 1000 if per_group == 1 else 500  # repeated rows change nothing, as shown above
    truth = difference(active, candidate)
    new, old, labels = sides(n * worlds, active, candidate, seed=2)
    passed = covered = 0
    for world in range(worlds):
        rows = np.repeat(np.arange(world * n, (world + 1) * n), per_group)
        result = compare(
            new[rows],
            old[rows],
            labels[rows],
            rows,
            mode="non_inferior",
            attempt=1,
            margin=truth,
            brier_margin=2.0,
        )
        passed += result.passed
        covered += result.nll.interval[0] <= truth <= result.nll.interval[1]
    assert at_most(passed, 0.025, worlds), passed / worlds
    assert 0.93 <= covered / worlds <= 0.975


def test_a_clearly_better_candidate_passes() -> None:
    passed = [compare(*sides(1500, 0.6, 1.0, seed=seed), mode="superior", attempt=1).passed for seed in range(200)]
    assert np.mean(passed) >= 0.95


def test_a_harmless_candidate_passes_with_the_margin() -> None:
    passed = [compare(*sides(2000, 1.0, 1.02, seed=seed), mode="non_inferior", attempt=1).passed for seed in range(200)]
    assert np.mean(passed) >= 0.95
