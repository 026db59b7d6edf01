"""Every condition, solved: where the threshold ends up, what the certificate says, and what it says when it cannot."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from candor.contract.certificates import Certificate, SolvedBand
from candor.contract.policies import Policy
from service.decisions.binomial import labels_needed
from service.decisions.certify import solve
from service.decisions.decide import decide, decide_rows
from service.decisions.policy import parse_policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.errors import PolicyError


def policy(*bands: dict[str, Any], **more: Any) -> Policy:
    document = {"id": "p", "bands": [*bands, {"action": "allow"}], "certify": {"looks": "once"}, **more}
    return parse_policy(document)


def one(name: str, value: float, **more: Any) -> Policy:
    return policy({"action": "flag", "when": {name: value}}, **more)


def draw(n: int, seed: int = 0, **columns: Any) -> ScoredRows:
    """Return calibrated rows: a row at p is positive with probability p² (rare at the bottom)."""
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    return ScoredRows(probability=p, score=p, positive=rng.random(n) < p**2, **columns)


def solved(wanted: Policy, fit: ScoredRows, test: ScoredRows, look: int = 1) -> SolvedPolicy:
    return solve(wanted, version=1, fit=fit, certify=test, look=look, basis="traffic")


def certificate_of(band: SolvedBand) -> Certificate:
    assert band.certificate is not None
    return band.certificate


# Thresholds c at which the population's metric of all rows at or above equals the promise: rows are uniform on (0, 1).
@pytest.mark.parametrize(
    ("name", "promise", "metric", "boundary"),
    [
        ("min_precision", 0.8, "precision", 0.788),  # (1 − c³)/3(1 − c) = 0.8
        ("max_selective_risk", 0.2, "selective_risk", 0.788),
        ("min_recall", 0.9, "recall", 0.464),  # 1 − c³ = 0.9
        ("max_false_positive_rate", 0.05, "false_positive_rate", 0.811),  # 1 − (c − c³/3)/(2/3) = 0.05
        ("max_flag_rate", 0.1, "flag_rate", 0.9),
    ],
)
@pytest.mark.parametrize("look", [1, 3])
def test_the_threshold_comes_close_to_where_the_promise_breaks(
    name: str, promise: float, metric: str, boundary: float, look: int
) -> None:
    wanted = one(name, promise, certify={"looks": "unlimited"})
    band = solved(wanted, draw(20_000), draw(40_000, 1), look).bands[0]
    assert band.threshold is not None
    certificate = certificate_of(band)
    assert (certificate.metric, certificate.valid) == (metric, True)
    assert (certificate.at_least, certificate.at_most) == ((promise, None) if "min" in name else (None, promise))
    safe = -1 if name == "min_recall" else 1
    slack = 0.03 if look == 1 else 0.08  # a band of 25 candidates is coarser than the sequence
    assert 0 < safe * (band.threshold.probability - boundary) < slack


@pytest.mark.parametrize(
    ("name", "promise", "of"),
    [("min_recall", 0.9, "positives"), ("max_false_positive_rate", 0.01, "negatives"), ("max_flag_rate", 0.02, "rows")],
)
def test_a_shortfall_says_how_many_labels_are_missing(name: str, promise: float, of: str) -> None:
    tolerance = 0.1 if name == "min_recall" else promise
    least = labels_needed(0, 0, tolerance, 0.05)
    score = np.linspace(0, 1, least - 5, dtype=np.float32)
    fit = draw(500)
    few = ScoredRows(
        probability=score * np.float32(0.9), score=score, positive=np.full(len(score), name == "min_recall")
    )
    band = solved(one(name, promise), fit, few).bands[0]
    certificate = certificate_of(band)
    assert band.threshold is None
    assert (certificate.valid, certificate.n, certificate.needed) == (False, least - 5, 5)
    assert f"0 errors among {least - 5} {of}" in (certificate.reason or "")
    assert "at least 5 more" in (certificate.reason or "")
    assert "if none of them is an error" in (certificate.reason or "")
    with pytest.raises(PolicyError) as refusal:
        solved(one(name, promise, on_uncertifiable="fail"), fit, few)
    assert refusal.value.where == f"/bands/0/when/{name}"


def test_a_recall_that_few_rows_can_show_takes_every_row() -> None:
    fit = draw(300)
    score = np.linspace(0, 1, 29, dtype=np.float32)
    certificate = certificate_of(
        solved(one("min_recall", 0.9), fit, ScoredRows(probability=score, score=score, positive=score >= 0)).bands[0]
    )
    assert (certificate.valid, certificate.n, certificate.errors) == (True, 29, 0)


def test_a_flag_rate_needs_no_labels() -> None:
    n = 2000
    nothing = {"labelled": np.zeros(n, dtype=bool), "sought": np.zeros(n, dtype=bool), "propensity": np.zeros(n)}
    fit, test = draw(n, **nothing), draw(n, 1, **nothing)
    assert certificate_of(solved(one("max_flag_rate", 0.1), fit, test).bands[0]).valid
    assert not certificate_of(solved(one("min_precision", 0.1), fit, test).bands[0]).valid


def test_a_flag_rate_leaves_room_for_what_is_explored() -> None:
    fit, test = draw(20_000), draw(40_000, 1)
    alone = solved(one("max_flag_rate", 0.1), fit, test).bands[0].threshold
    beside = one("max_flag_rate", 0.1, explore={"share": 0.05, "actions": ["allow"]})
    explored = solved(beside, fit, test).bands[0].threshold
    assert alone is not None
    assert explored is not None
    assert 1 - alone.probability == pytest.approx(0.1, abs=0.01)
    assert 1 - explored.probability == pytest.approx((0.1 - 0.05) / 0.95, abs=0.01)


def test_labels_that_do_not_come_do_not_hinder_a_flag_rate() -> None:
    n = 3000
    late = {"labelled": np.arange(n) % 2 == 0, "sought": np.ones(n, dtype=bool)}
    wanted = policy(
        {"action": "block", "when": {"min_precision": 0.5}}, {"action": "review", "when": {"max_flag_rate": 0.5}}
    )
    bands = solved(wanted, draw(n), draw(n, 1, **late)).bands
    assert [certificate_of(band).valid for band in bands[:2]] == [False, True]


def test_three_kinds_of_promise_share_delta() -> None:
    wanted = policy(
        {"action": "block", "when": {"min_precision": 0.9}},
        {"action": "review", "when": {"max_flag_rate": 0.3}},
        {"action": "look", "when": {"min_recall": 0.95}},
    )
    result = solved(wanted, draw(10_000), draw(20_000, 1))
    assert [certificate_of(band).delta for band in result.bands[:3]] == [pytest.approx(0.05 / 3)] * 3
    cuts = [band.threshold.probability for band in result.bands[:3] if band.threshold]
    assert cuts == sorted(cuts, reverse=True)
    assert not result.review_all


def segmented(n: int, seed: int) -> ScoredRows:
    """Return rows of three countries; in FR the scores are worth nothing."""
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    country = rng.choice(["DE", "FR", "IT"], n)
    return ScoredRows(
        probability=p, score=p, positive=rng.random(n) < np.where(country == "FR", 0.5, p), segment=country
    )


def test_segments_are_solved_for_themselves() -> None:
    wanted = policy(
        {"action": "block", "when": {"min_precision": 0.85}},
        {"action": "review", "when": {"min_probability": 0.2}},
        segments={"values": ["DE", "FR"], "fallback": "review"},
    )
    result = solved(wanted, segmented(9000, 0), segmented(9000, 1))
    assert {value: part.certified for value, part in result.segments.items()} == {"DE": True, "FR": False}
    german = result.segments["DE"].bands[0]
    assert certificate_of(german).delta == pytest.approx(0.05 / 2)
    assert 2500 < len(segmented(9000, 1).of_segment("DE")) < 3500
    assert certificate_of(german).n < 1500
    # Decisions: DE by its thresholds, FR and everything else to the fallback.
    p = np.array([0.99, 0.1, 0.99, 0.1, 0.99, 0.99], dtype=np.float32)
    values = ["DE", "DE", "FR", "FR", "IT", None]
    probabilities = np.stack([p, 1 - p], axis=1)
    arguments = (("a", "b"), np.log(probabilities + 1e-9), probabilities, np.zeros(6, dtype=np.int64), p)
    decided = decide_rows(result, *arguments, segments=values)
    assert [result.actions[i] for i in decided] == ["block", "allow", "review", "review", "review", "review"]
    for i in range(6):
        row = slice(i, i + 1)
        alone = decide_rows(result, ("a", "b"), *(column[row] for column in arguments[1:]), segments=values[row])
        assert alone[0] == decided[i]
    assert (decide(result, p, p) == result.actions.index("review")).all()
    assert SolvedPolicy.from_dict(result.to_dict()) == result


def test_a_segment_that_is_chosen_with_the_rows_in_view_pays_for_the_choice() -> None:
    """Each of 1,000 segments is right a little less often than promised. The caller names the luckiest."""
    rng, false, delta = np.random.default_rng(15), 0, 0.2
    names = np.array([f"s{number:03}" for number in range(1_000)], object)
    segment = np.repeat(names, 70)
    for _ in range(20):
        p = rng.uniform(0.5, 1.0, (2, len(segment))).astype(np.float32)
        positive = rng.random(p.shape) < 0.8995
        fit, certify = (
            ScoredRows(probability=each, score=each, positive=right, segment=segment)
            for each, right in zip(p, positive, strict=True)
        )
        luckiest = names[positive[1].reshape(1_000, 70).sum(axis=1).argmax()]
        of_it = {"segments": {"values": [luckiest]}, "certify": {"delta": delta}}
        wanted = one("min_precision", 0.9, **of_it)
        false += solved(wanted, fit, certify, look=2).segments[luckiest].certified
    assert false <= binom.isf(0.001, 20, delta / 6)


def test_rows_without_segments_certify_no_segment() -> None:
    wanted = one("min_precision", 0.5, segments={"values": ["DE"]})
    result = solved(wanted, draw(900), draw(900, 1))
    certificate = certificate_of(result.segments["DE"].bands[0])
    assert (certificate.valid, certificate.n) == (False, 0)


def test_a_segment_that_fails_is_named() -> None:
    wanted = one("min_precision", 0.85, segments={"values": ["DE", "FR"]}, on_uncertifiable="fail")
    with pytest.raises(PolicyError, match="segment 'FR'"):
        solved(wanted, segmented(9000, 0), segmented(9000, 1))


def test_an_empty_certify_split_is_a_shortfall() -> None:
    for name in ("min_precision", "min_recall", "max_false_positive_rate", "max_flag_rate", "max_selective_risk"):
        certificate = certificate_of(solved(one(name, 0.5), draw(500), draw(0)).bands[0])
        assert (certificate.valid, certificate.n) == (False, 0)
        assert certificate.needed


coarse = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["min_precision", "max_selective_risk", "min_recall", "max_false_positive_rate", "max_flag_rate"]),
    st.lists(st.tuples(coarse, coarse, st.booleans()), min_size=1, max_size=60),
    st.integers(1, 2),
)
def test_serving_takes_the_very_rows_that_were_certified(
    name: str, table: list[tuple[float, float, bool]], look: int
) -> None:
    """Rows on thresholds, ties of probability and of both: recounting what `decide` takes gives n and errors."""
    p, s, positive = (np.array(column) for column in zip(*table, strict=True))
    rows = ScoredRows(probability=p.astype(np.float32), score=s.astype(np.float32), positive=positive)
    result = solved(one(name, 0.5, certify={"delta": 0.9, "looks": "unlimited"}), rows, rows, look)
    certificate = certificate_of(result.bands[0])
    if not certificate.valid:
        return
    above = decide(result, rows.probability, rows.score) == 0
    of = {"recall": positive, "false_positive_rate": ~positive, "flag_rate": np.ones(len(p), dtype=bool)}
    wrong = {"recall": ~above, "false_positive_rate": above, "flag_rate": above}
    denominator = of.get(certificate.metric, above)
    assert certificate.n == denominator.sum()
    assert certificate.errors == (denominator & wrong.get(certificate.metric, ~positive)).sum()
