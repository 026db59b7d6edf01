from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from service.decisions import certify
from service.decisions.certify import (
    BAND_POINTS,
    GRID_POINTS,
    ScoredRows,
    choose_start,
    critical_errors,
    labels_needed,
    solve,
    walk,
)
from service.decisions.decide import decide
from service.decisions.policy import Policy
from service.errors import InputValueError, PolicyError


def policy(
    *promises: float, looks: str = "unlimited", delta: float = 0.05, on_uncertifiable: str = "review_all"
) -> Policy:
    bands: list[dict[str, Any]] = [
        {"action": f"band-{i}", "when": {"min_precision": promise}} for i, promise in enumerate(promises)
    ]
    return Policy.from_dict(
        {
            "id": "p",
            "bands": [*bands, {"action": "review"}],
            "certify": {"delta": delta, "looks": looks},
            "on_uncertifiable": on_uncertifiable,
        }
    )


def rows(n: int, *, errors: int = 0, seed: int = 0, **columns: NDArray[Any]) -> ScoredRows:
    """Return rows with distinct pairs, the given number of errors at the loose end."""
    score = np.sort(np.random.default_rng(seed).random(n)).astype(np.float32)
    return ScoredRows(score, score, np.arange(n) >= errors, **columns)


def solved(fit: ScoredRows, test: ScoredRows, promise: float = 0.95, looks: str = "once", look: int = 1, **more: Any):  # type: ignore[no-untyped-def]
    return solve(policy(promise, looks=looks), version=1, fit=fit, certify=test, look=look, basis="reference", **more)


def test_critical_errors_are_exact() -> None:
    n = np.concatenate([np.arange(0, 400), [1000, 10_000, 1_000_000]])
    for tolerance in (0.001, 0.05, 0.3, 0.9):
        for level in (0.05, 0.0083, 1e-5):
            critical = critical_errors(n, tolerance, level)
            held = critical >= 0
            assert np.all(binom.cdf(critical[held], n[held], tolerance) <= level)
            assert np.all((binom.cdf(critical + 1, n, tolerance) > level) | (n == 0))


@pytest.mark.parametrize(("looks", "fewest"), [("once", 59), ("unlimited", 72)])
def test_the_fewest_rows_that_certify(looks: str, fewest: int) -> None:
    fit = rows(400)
    enough = solved(fit, rows(fewest), looks=looks).bands[0].certificate
    assert (enough.valid, enough.n, enough.errors, enough.needed, enough.reason) == (True, fewest, 0, None, None)
    short = solved(fit, rows(fewest - 9), looks=looks)
    certificate = short.bands[0].certificate
    assert (certificate.valid, certificate.n, certificate.needed) == (False, fewest - 9, 9)
    assert "at least 9 more" in certificate.reason
    assert "if none of them is an error" in certificate.reason
    assert short.review_all
    assert short.bands[0].threshold is None


def test_needed_labels_are_the_fewest() -> None:
    for n, errors, tolerance, level in [
        (10, 1, 0.05, 0.05),
        (100, 9, 0.05, 0.025),
        (0, 0, 0.1, 0.05),
        (7, 7, 0.3, 0.01),
    ]:
        more = labels_needed(n, errors, tolerance, level)
        assert binom.cdf(errors, n + more, tolerance) <= level < binom.cdf(errors, n + more - 1, tolerance)
    assert labels_needed(59, 0, 0.05, 0.05) == 0


def test_no_rows_at_all_is_a_shortfall_not_an_error() -> None:
    certificate = solved(rows(0), rows(0), looks="unlimited").bands[0].certificate
    assert (certificate.valid, certificate.n, certificate.needed) == (False, 0, 72)
    assert "fit rows" in certificate.reason
    certificate = solved(rows(50), rows(0)).bands[0].certificate
    assert (certificate.valid, certificate.n, certificate.needed) == (False, 0, 59)


def test_fail_names_the_band() -> None:
    with pytest.raises(PolicyError) as refusal:
        solve(policy(0.95, on_uncertifiable="fail"), version=1, fit=rows(50), certify=rows(50), look=1, basis="traffic")
    assert refusal.value.where == "/bands/0/when/min_precision"
    assert refusal.value.found == {"n": 50, "errors": 0}


def test_delta_is_shared_among_bands_and_looks() -> None:
    data = rows(3000)
    for look in (1, 2, 7):
        result = solve(
            policy(0.95, 0.9), version=3, fit=data, certify=data, look=look, basis="traffic", window=("a", "b")
        )
        for band in result.bands[:2]:
            assert band.certificate is not None
            assert band.certificate.delta == pytest.approx(0.05 / 2 / look / (look + 1))
            assert (band.certificate.looks, band.certificate.window) == (look, ("a", "b"))
        assert result.version == 3


def test_once_certifies_nothing_on_rows_already_shown() -> None:
    data = rows(3000)
    assert solved(data, data).bands[0].certificate.delta == 0.05
    certificate = solved(data, data, look=2).bands[0].certificate
    assert (certificate.valid, certificate.needed) == (False, 59)
    assert "fresh" in certificate.reason


def test_too_many_missing_labels_certify_nothing() -> None:
    fit = rows(400)
    few, many = (rows(3000, labelled=np.arange(3000) >= missing) for missing in (150, 180))
    assert not solved(fit, few, promise=0.9).review_all
    result = solved(fit, many, promise=0.9)
    assert result.review_all
    assert "6.0%" in result.bands[0].certificate.reason


@pytest.mark.parametrize("propensity", [None, 1.0, 0.2])
def test_a_label_that_was_sought_and_has_not_come_is_an_error(propensity: float | None) -> None:
    rng = np.random.default_rng(9)
    column = {} if propensity is None else {"propensity": np.full(10_000, propensity)}
    fit, data = rows(10_000, seed=2, **column), rows(10_000, seed=1, **column)
    drawn = rng.random(10_000) < (propensity or 1.0)
    comes = np.arange(10_000) % 25 > 0
    everything, some = (replace(data, sought=drawn, labelled=drawn & which) for which in (comes | True, comes))
    tests, full = certify._count(fit, some, 0), certify._count(fit, everything, 0)
    assert np.array_equal(tests.n, full.n)
    assert not full.errors.any()
    assert np.array_equal(tests.errors, tests.unlabelled)
    assert tests.errors[-1] == pytest.approx(0.04 * tests.n[-1], rel=0.3)
    assert tests.missing == pytest.approx(0.04, rel=0.3)
    assert "for want of a label" in solved(fit, some, promise=0.97).bands[0].certificate.reason


def test_bands_are_cumulative_and_looser_promises_reach_further() -> None:
    rng = np.random.default_rng(4)

    def draw() -> ScoredRows:
        u = rng.random(20_000).astype(np.float32)
        return ScoredRows(u, u, rng.random(len(u)) < u)

    fit, test = draw(), draw()
    result = solve(policy(0.9, 0.7), version=1, fit=fit, certify=test, look=1, basis="traffic")
    strict, loose = result.bands[0], result.bands[1]
    assert strict.threshold is not None and loose.threshold is not None and loose.certificate is not None  # noqa: PT018
    assert strict.threshold.probability > loose.threshold.probability
    indices = decide(result, test.probability, test.score)
    assert np.sum(indices <= 1) == loose.certificate.n
    assert np.sum((indices <= 1) & ~test.positive) == loose.certificate.errors
    assert np.sum(indices == 0) == strict.certificate.n  # type: ignore[union-attr]


def test_a_policy_without_promises_reads_no_rows() -> None:
    document = {"id": "p", "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}]}
    result = solve(Policy.from_dict(document), version=1, fit=rows(0), certify=rows(0), look=1, basis="reference")
    assert result.bands[0].threshold is not None
    assert result.bands[0].threshold.probability == float(np.float32(0.9))
    assert not result.review_all


def test_ties_are_broken_by_the_score() -> None:
    rng = np.random.default_rng(5)

    def draw() -> ScoredRows:
        score = rng.normal(0, 1, 4000).astype(np.float32)
        return ScoredRows(np.full(4000, 0.7, dtype=np.float32), score, rng.random(4000) < 1 / (1 + np.exp(-3 * score)))

    band = solved(draw(), draw(), promise=0.9).bands[0]
    assert band.certificate.valid
    assert band.threshold.probability == float(np.float32(0.7))
    assert -0.5 < band.threshold.score < 1.0


def test_the_grid_is_small_and_made_of_fit_rows() -> None:
    fit = rows(5000, seed=1)
    grid = certify._make_grid(fit, rows(0))
    assert 100 < len(grid.keys) <= GRID_POINTS
    assert np.isin(grid.probability, fit.probability).all()
    assert np.isin(grid.score, fit.score).all()
    assert np.all(np.diff(grid.probability) < 0)
    assert grid.volume[-1] == 1.0


def test_weights_move_the_choice_but_not_the_certificate() -> None:
    rng = np.random.default_rng(6)
    u = rng.random(4000).astype(np.float32)
    fit = ScoredRows(u, u, u > 0.3)
    heavy = replace(fit, weight=np.where(u < 0.5, 5.0, 1.0))
    test = ScoredRows(u, u, u > 0.3)
    assert solved(heavy, test).bands[0].certificate.valid
    weighted = replace(test, weight=np.full(4000, 1e-6))
    assert solved(fit, weighted).to_dict() == solved(fit, test).to_dict()


def test_one_row_of_a_group_counts() -> None:
    fit = rows(400)
    test = rows(600, group=np.repeat(np.arange(100), 6))
    certificate = solved(fit, test).bands[0].certificate
    assert certificate.n <= 100
    assert solved(fit, test, seed=3).to_dict() == solved(fit, test, seed=3).to_dict()
    chosen = [certify._one_per_group(test, seed) for seed in range(200)]
    assert all(np.array_equal(np.sort(one.group), np.arange(100)) for one in chosen)  # type: ignore[arg-type]
    hits = np.bincount(np.concatenate([np.searchsorted(test.score, one.score) % 6 for one in chosen]), minlength=6)
    assert np.all(np.abs(hits / hits.sum() - 1 / 6) < 0.01)


def test_the_choice_of_rows_does_not_depend_on_labels() -> None:
    data = rows(500, group=np.repeat(np.arange(100), 5), propensity=np.tile([1.0, 0.5, 0.1, 0.2, np.nan], 100))
    flipped = replace(data, positive=~data.positive)
    for first, second in [(data, flipped)]:
        one, other = certify._count(first, first, 7), certify._count(first, second, 7)
        assert np.array_equal(one.n, other.n)
        assert np.array_equal(one.errors, other.n - other.errors)


def test_unknown_propensity_never_certifies() -> None:
    test = rows(600, propensity=np.where(np.arange(600) % 2, np.nan, 1.0))
    assert solved(rows(400), test).bands[0].certificate.n <= 300
    nothing = rows(600, propensity=np.full(600, np.nan))
    assert solved(rows(400), nothing).bands[0].certificate.n == 0


def test_where_labels_are_never_sought_nothing_is_claimed() -> None:
    # Labels come for the lower half only, as when everything above is blocked; those labels are all right.
    score = np.linspace(0, 1, 4000, dtype=np.float32)
    propensity = np.where(score > 0.5, 0.0, 1.0)
    data = ScoredRows(score, score, np.ones(4000, dtype=bool), propensity=propensity, labelled=score <= 0.5)
    certificate = solved(data, data).bands[0].certificate
    assert not certificate.valid
    assert certificate.errors >= certificate.n / 2 - 1


def test_thinning_takes_rows_at_the_smallest_propensity_of_the_denominator() -> None:
    rng = np.random.default_rng(8)
    score = rng.random(60_000).astype(np.float32)
    propensity = np.where(score > 0.5, 1.0, 0.1)
    sought = rng.random(60_000) < propensity
    right = score > rng.random(60_000) * 0.4
    full = ScoredRows(score, score, right, propensity=propensity, labelled=sought)
    tests = certify._count(full, full, 0)
    strict = tests.grid.probability > 0.5
    at_or_above = np.array([(score >= cut).sum() for cut in tests.grid.probability])
    assert np.array_equal(tests.n[strict], at_or_above[strict])
    expected = at_or_above[~strict] * 0.1
    assert np.all(np.abs(tests.n[~strict] - expected) < 5 * np.sqrt(expected))
    # Every row of the even sample has its label, so its error rate is that of all rows.
    truth = np.array([(~right & (score >= cut)).sum() for cut in tests.grid.probability]) / at_or_above
    assert np.abs(tests.errors / tests.n - truth)[~strict].max() < 0.03
    labelled_only = certify._count(full.take(sought), full.take(sought), 0)
    assert np.abs(labelled_only.errors / labelled_only.n)[-1] == pytest.approx(truth[-1], abs=0.03)


def test_bad_columns_name_themselves() -> None:
    p = np.zeros(3, dtype=np.float32)
    right = np.ones(3, dtype=bool)
    cases: list[tuple[str, dict[str, NDArray[Any]]]] = [
        ("score", {"score": p[:2]}),
        ("probability", {"probability": np.array([0, np.nan, 1], dtype=np.float32)}),
        ("weight", {"weight": np.array([1.0, -1.0, 1.0])}),
        ("propensity", {"propensity": np.array([1.0, 1.5, np.nan])}),
        ("propensity", {"propensity": np.array([1.0, -0.5, np.nan])}),
        ("group", {"group": np.zeros(4, dtype=np.int64)}),
    ]
    for where, columns in cases:
        with pytest.raises(InputValueError) as refusal:
            ScoredRows(**({"probability": p, "score": p, "positive": right} | columns))
        assert refusal.value.where == where
    with pytest.raises(ValueError, match="counted from 1"):
        solved(rows(9), rows(9), look=0)


def test_the_walk_stops_at_the_first_failure() -> None:
    n = np.array([[60, 80, 90, 300], [60, 80, 90, 300], [10, 80, 90, 300]])
    errors = np.array([[0, 0, 9, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert walk(n, errors, 0, 0.05, 0.05).tolist() == [1, 3, -1]
    assert walk(n, errors, 1, 0.05, 0.05).tolist() == [1, 3, 3]


def test_the_start_is_where_power_is_largest() -> None:
    expected = np.array([10.0, 100.0, 1000.0, 2000.0])
    errors, fit_rows = np.array([0.0, 2.0, 20.0, 200.0]), expected
    assert choose_start(expected, errors, fit_rows, 0.05, 0.05) == 2
    # Where no test can succeed the closest is reported.
    assert (
        choose_start(np.array([3.0, 30.0, 40.0]), np.array([0.0, 0.0, 20.0]), np.array([3.0, 30.0, 40.0]), 0.05, 0.05)
        == 1
    )


def test_later_looks_choose_among_fewer_candidates() -> None:
    data = rows(5000)
    first = solved(data, data, looks="unlimited").bands[0]
    second = solved(data, rows(150), looks="unlimited", look=2).bands[0]
    assert first.certificate.valid
    assert second.certificate.needed == labels_needed(150, 0, 0.05, 0.05 / 6 / BAND_POINTS)
