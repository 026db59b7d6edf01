from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from candor.contract.policies import Policy
from service.decisions.binomial import labels_needed
from service.decisions.certify import solve
from service.decisions.decide import decide
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS
from service.errors import PolicyError


def policy(
    *promises: float,
    looks: str = "unlimited",
    delta: float = 0.05,
    on_uncertifiable: str = "review_all",
    per: str = "row",
) -> Policy:
    bands: list[dict[str, Any]] = [
        {"action": f"band-{i}", "when": {"min_precision": promise}} for i, promise in enumerate(promises)
    ]
    return parse_policy(
        {
            "id": "p",
            "bands": [*bands, {"action": "review"}],
            "certify": {"delta": delta, "looks": looks, "per": per},
            "on_uncertifiable": on_uncertifiable,
        }
    )


def rows(n: int, *, errors: int = 0, seed: int = 0, **columns: NDArray[Any]) -> ScoredRows:
    """Return rows with distinct pairs, the given number of errors at the loose end."""
    score = np.sort(np.random.default_rng(seed).random(n)).astype(np.float32)
    return ScoredRows(probability=score, score=score, positive=np.arange(n) >= errors, **columns)


def solved(fit: ScoredRows, test: ScoredRows, promise: float = 0.95, looks: str = "once", look: int = 1, **more: Any):  # type: ignore[no-untyped-def]
    return solve(policy(promise, looks=looks), version=1, fit=fit, certify=test, look=look, basis="reference", **more)


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


def test_no_rows_at_all_is_a_shortfall_not_an_error() -> None:
    certificate = solved(rows(0), rows(0), looks="unlimited").bands[0].certificate
    assert (certificate.valid, certificate.n, certificate.needed) == (False, 0, 72)
    assert "fit rows" in certificate.reason
    certificate = solved(rows(50), rows(0)).bands[0].certificate
    assert (certificate.valid, certificate.n, certificate.needed) == (False, 0, 59)
    assert certificate.reason.startswith("the bundle's reference rows contain no certify rows; at least 59")


def test_policies_solved_at_once_are_looks_of_one_another_and_see_no_answer() -> None:
    """The second has its own share of delta, so that the best of several may be taken; else it is a first look."""
    arguments: dict[str, Any] = {"version": 1, "fit": rows(2000), "certify": rows(2000), "basis": "traffic"}
    second = solve(policy(0.95), look=2, fresh=True, **arguments).bands[0]
    first = solve(policy(0.95, delta=0.05 / 3), look=1, **arguments).bands[0]
    assert second.threshold == first.threshold
    assert second.certificate is not None
    assert first.certificate is not None
    assert (second.certificate.valid, second.certificate.looks) == (True, 2)
    assert second.certificate.delta == pytest.approx(first.certificate.delta)
    few = {**arguments, "certify": rows(130)}
    assert not solve(policy(0.95), look=2, **few).bands[0].certificate.valid  # type: ignore[union-attr]
    assert solve(policy(0.95), look=2, fresh=True, **few).bands[0].certificate.valid  # type: ignore[union-attr]
    once = solve(policy(0.95, looks="once"), look=2, fresh=True, **arguments).bands[0].certificate
    assert once is not None
    assert not once.valid  # it spends the whole of delta: only one of several may
    assert "only the first can use once" in str(once.reason)


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
    assert "only new rows can certify" in certificate.reason


def test_too_many_missing_labels_certify_nothing() -> None:
    fit = rows(400)
    few, many = (rows(3000, labelled=np.arange(3000) >= missing) for missing in (150, 180))
    assert not solved(fit, few, promise=0.9).review_all
    result = solved(fit, many, promise=0.9)
    assert result.review_all
    assert "6.0%" in result.bands[0].certificate.reason


def test_bands_are_cumulative_and_looser_promises_reach_further() -> None:
    rng = np.random.default_rng(4)

    def draw() -> ScoredRows:
        u = rng.random(20_000).astype(np.float32)
        return ScoredRows(probability=u, score=u, positive=rng.random(len(u)) < u)

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
    result = solve(parse_policy(document), version=1, fit=rows(0), certify=rows(0), look=1, basis="reference")
    assert result.bands[0].threshold is not None
    assert result.bands[0].threshold.probability == float(np.float32(0.9))
    assert not result.review_all


def test_ties_are_broken_by_the_score() -> None:
    rng = np.random.default_rng(5)

    def draw() -> ScoredRows:
        score = rng.normal(0, 1, 4000).astype(np.float32)
        return ScoredRows(
            probability=np.full(4000, 0.7, dtype=np.float32),
            score=score,
            positive=rng.random(4000) < 1 / (1 + np.exp(-3 * score)),
        )

    band = solved(draw(), draw(), promise=0.9).bands[0]
    assert band.certificate.valid
    assert band.threshold.probability == float(np.float32(0.7))
    assert -0.5 < band.threshold.score < 1.0


def test_weights_move_the_choice_but_not_the_certificate() -> None:
    rng = np.random.default_rng(6)
    u = rng.random(4000).astype(np.float32)
    fit = ScoredRows(probability=u, score=u, positive=u > 0.3)
    heavy = replace(fit, weight=np.where(u < 0.5, 5.0, 1.0))
    test = ScoredRows(probability=u, score=u, positive=u > 0.3)
    assert solved(heavy, test).bands[0].certificate.valid
    weighted = replace(test, weight=np.full(4000, 1e-6))
    assert solved(fit, weighted).to_dict() == solved(fit, test).to_dict()


def test_one_row_of_a_group_counts() -> None:
    fit = rows(400)
    test = rows(600, group=np.repeat(np.arange(100), 6))
    per_group = policy(0.95, looks="once", per="group")
    certificate, again = (
        solve(per_group, version=1, fit=fit, certify=test, look=1, basis="reference", seed=3).bands[0].certificate
        for _ in range(2)
    )
    assert certificate == again
    assert certificate is not None
    assert certificate.n <= 100


def test_what_counts_as_an_error_for_want_of_a_label_is_said() -> None:
    come = np.arange(10_000) % 25 > 0
    test = rows(10_000, seed=1, labelled=come, sought=np.ones(10_000, dtype=bool))
    assert "without a label" in solved(rows(10_000, seed=2), test, promise=0.97).bands[0].certificate.reason


def test_unknown_propensity_never_certifies() -> None:
    test = rows(600, propensity=np.where(np.arange(600) % 2, np.nan, 1.0))
    assert solved(rows(400), test).bands[0].certificate.n <= 300
    nothing = rows(600, propensity=np.full(600, np.nan))
    assert solved(rows(400), nothing).bands[0].certificate.n == 0


def test_where_labels_are_never_sought_nothing_is_claimed() -> None:
    # Labels come for the lower half only, as when everything above is blocked; those labels are all right.
    score = np.linspace(0, 1, 4000, dtype=np.float32)
    propensity = np.where(score > 0.5, 0.0, 1.0)
    data = ScoredRows(
        probability=score, score=score, positive=np.ones(4000, dtype=bool), propensity=propensity, labelled=score <= 0.5
    )
    certificate = solved(data, data).bands[0].certificate
    assert not certificate.valid
    assert certificate.errors >= certificate.n / 2 - 1


def test_later_looks_choose_among_fewer_candidates() -> None:
    data = rows(5000)
    first = solved(data, data, looks="unlimited").bands[0]
    second = solved(data, rows(150), looks="unlimited", look=2).bands[0]
    assert first.certificate.valid
    assert second.certificate.needed == labels_needed(150, 0, 0.05, 0.05 / 6 / BAND_POINTS)


def test_looks_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        solved(rows(9), rows(9), look=0)
