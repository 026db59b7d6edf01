import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from candor.contract.certificates import Certificate, SolvedBand, SolvedSegment, Threshold
from candor.contract.policies import Policy
from service.decisions.decide import decide, decide_rows, log_odds, order_keys, score_rows
from service.decisions.policy import parse_policy
from service.decisions.solved import SolvedPolicy

POLICY = parse_policy(
    {
        "id": "p",
        "bands": [
            {"action": "accept", "when": {"min_precision": 0.9}},
            {"action": "review", "when": {"min_probability": 0.3}},
            {"action": "block"},
        ],
        "explore": {"share": 0.25, "actions": ["accept"]},
    }
)
FLAG = parse_policy(
    {"id": "f", "positive": "1", "bands": [{"action": "flag", "when": {"min_precision": 0.9}}, {"action": "allow"}]}
)

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
coarse = st.sampled_from([np.float32(x) for x in (0.0, 0.1, 0.25, 0.3, 0.5, 0.9, 0.95, 1.0)])
coarse_scores = st.sampled_from([np.float32(x) for x in (-np.inf, -2.0, -0.0, 0.0, 0.5, 3.0)])


def solved(policy: Policy, *cuts: tuple[float, float] | None, review_all: bool = False) -> SolvedPolicy:
    thresholds = [None if cut is None else Threshold.at(float(np.float32(cut[0])), cut[1]) for cut in cuts]
    bands = zip(policy.bands, [*thresholds, None], strict=True)
    return SolvedPolicy(
        policy,
        1,
        tuple(SolvedBand(action=band.action, threshold=cut, certificate=None) for band, cut in bands),
        review_all,
    )


def column(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


@given(st.lists(st.tuples(coarse, coarse_scores), min_size=1, max_size=30), coarse, coarse_scores)
def test_a_batch_is_its_rows_alone_and_both_are_the_lexicographic_order(
    pairs: list[tuple[np.float32, np.float32]], cut: np.float32, tie: np.float32
) -> None:
    policy = solved(POLICY, (float(cut), float(tie)), (0.3, -math.inf))
    p, s = column(*(p for p, _ in pairs)), column(*(s for _, s in pairs))
    expected = [0 if (p, s) >= (cut, tie) else 1 if p >= np.float32(0.3) else 2 for p, s in pairs]
    assert decide(policy, p, s).tolist() == expected
    assert [decide(policy, p[i : i + 1], s[i : i + 1])[0] for i in range(len(p))] == expected


@given(st.tuples(finite32, finite32), st.tuples(finite32, finite32))
def test_keys_compare_as_pairs(a: tuple[float, float], b: tuple[float, float]) -> None:
    first, second = order_keys(column(a[0], b[0]), column(a[1], b[1]))
    assert (first < second, first == second) == (a < b, a == b)


def test_a_row_exactly_on_a_threshold_passes_in_float32() -> None:
    policy = solved(POLICY, (0.9, 1.5), (0.3, -math.inf))
    p = column(0.9, 0.9, np.nextafter(np.float32(0.9), np.float32(0)), np.nextafter(np.float32(0.9), np.float32(1)))
    s = column(1.5, np.nextafter(np.float32(1.5), np.float32(0)), 9.0, -9.0)
    assert decide(policy, p, s).tolist() == [0, 1, 1, 0]
    # 0.3 has no exact float32; the condition is rounded as the rows are.
    assert decide(policy, column(0.3), column(-np.inf)).tolist() == [1]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_review_all(rows: int) -> None:
    p = np.linspace(0, 1, rows, dtype=np.float32)
    policy = solved(POLICY, None, (0.3, -math.inf), review_all=True)
    assert [policy.actions[i] for i in decide(policy, p, p)] == ["review"] * rows
    without = solved(FLAG, None, review_all=True)
    assert without.actions == ("flag", "allow", "review")
    assert [without.actions[i] for i in decide(without, p, p)] == ["review"] * rows


def test_a_band_without_threshold_takes_no_row() -> None:
    policy = solved(POLICY, None, (0.3, -math.inf))
    assert decide(policy, column(1.0), column(99.0)).tolist() == [1]
    assert decide(policy, column(1.0, 0.1), column(99.0, np.inf)).tolist() == [1, 2]


def test_propensities_follow_the_actions() -> None:
    assert solved(POLICY, None, None).propensities.tolist() == [0.25, 1.0, 0.0]
    assert solved(FLAG, None).propensities.tolist() == [0.0, 0.0, 1.0]


def test_answers_for_one_row_cannot_be_changed() -> None:
    policy = solved(POLICY, (0.9, 0.0), (0.3, -math.inf))
    with pytest.raises(ValueError, match="read-only"):
        decide(policy, column(0.95), column(0.0))[0] = 2


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # slow to draw on a busy machine
@given(
    st.integers(2, 40).flatmap(
        lambda k: st.lists(
            st.lists(st.one_of(finite32, st.floats(-30, 30, width=32)), min_size=k, max_size=k), min_size=1, max_size=9
        )
    ),
    st.data(),
)
def test_log_odds_of_a_row_do_not_depend_on_the_batch(rows: list[list[float]], data: st.DataObject) -> None:
    logits = np.array(rows, dtype=np.float32)
    columns = np.array([data.draw(st.integers(0, logits.shape[1] - 1)) for _ in rows])
    together = log_odds(logits, columns)
    assert np.isfinite(together).all()
    for i in range(len(rows)):
        assert log_odds(logits[i : i + 1], columns[i : i + 1])[0] == together[i]
        assert log_odds(np.asfortranarray(logits), columns)[i] == together[i]


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = np.random.default_rng(0).normal(0, 4, (500, 7)).astype(np.float32)
    for k in range(7):
        rest = logsumexp(np.delete(logits.astype(np.float64), k, axis=1), axis=1)
        np.testing.assert_allclose(log_odds(logits, k), logits[:, k] - rest, rtol=1e-6, atol=1e-6)


def test_log_odds_survive_infinities_and_extremes() -> None:
    big = np.finfo(np.float32).max
    logits = np.array(
        [[-np.inf, 1.0, 2.0], [1.0, -np.inf, -np.inf], [big, -big, -big], [-big, big, 0], [1e4, 1e4, -1e4]],
        dtype=np.float32,
    )
    assert log_odds(logits, 0).tolist() == [-big, big, big, -big, 0.0]


def test_two_classes_give_the_plain_difference() -> None:
    logits = np.array([[1.25, -2.0], [0.5, 0.5]], dtype=np.float32)
    assert log_odds(logits, 0).tolist() == [3.25, 0.0]


def test_score_rows_reads_the_right_columns() -> None:
    logits = np.array([[0.0, 1.0, 3.0], [2.0, 1.0, 0.0]], dtype=np.float32)
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]])
    top, confidence = np.array([2, 1]), np.array([0.7, 0.4])
    p, s = score_rows(POLICY, ("0", "1", "2"), logits, probabilities, top, confidence)
    assert (p.dtype, s.dtype) == (np.float32, np.float32)
    assert p.tolist() == column(0.7, 0.4).tolist()
    assert s.tolist() == log_odds(logits, np.array([2, 1])).tolist()
    p, s = score_rows(FLAG, ("0", "1", "2"), logits, probabilities, top, confidence)
    assert p.tolist() == column(0.2, 0.4).tolist()
    assert s.tolist() == log_odds(logits, 1).tolist()


@pytest.mark.parametrize("policy", [POLICY, FLAG])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_hot_path_decides_as_scoring_every_row_does(policy: Policy, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(3)
    labels = ("0", "1", "2")
    logits = rng.normal(0, 2, (400, 3)).astype(np.float32)
    # A calibrator with plateaus: many rows stand exactly on the threshold.
    probabilities = np.round(rng.dirichlet((1, 1, 1), 400) * 5 + 1) / 9
    top = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1).astype(dtype)
    probabilities = probabilities.astype(dtype)
    p, s = score_rows(policy, labels, logits, probabilities, top, confidence)
    cut = (float(np.sort(p)[-150]), float(np.median(s)))
    target = solved(policy, *((cut, (0.3, -math.inf)) if policy is POLICY else (cut,)))
    expected = decide(target, p, s)
    assert len(set(expected[p == np.float32(cut[0])])) == 2
    assert np.array_equal(decide_rows(target, labels, logits, probabilities, top, confidence), expected)
    for i in range(len(p)):
        row = slice(i, i + 1)
        assert decide_rows(target, labels, logits[row], probabilities[row], top[row], confidence[row])[0] == expected[i]


@given(st.floats(0, 1, width=32), st.one_of(st.just(-math.inf), finite32), st.booleans())
def test_a_solved_policy_survives_json(p: float, s: float, review_all: bool) -> None:
    certificate = Certificate(
        metric="precision",
        at_least=0.9,
        at_most=None,
        delta=0.025,
        n=80,
        errors=1,
        looks=1,
        basis="traffic",
        window=("2026-01-01", "2026-02-01"),
        valid=not review_all,
        reason="why",
        needed=3,
    )
    bands = (
        SolvedBand(action="accept", threshold=Threshold.at(p, s), certificate=certificate),
        SolvedBand(action="review", threshold=None, certificate=None),
        SolvedBand(action="block", threshold=None, certificate=None),
    )
    policy = SolvedPolicy(POLICY, 4, bands, review_all)
    document = json.loads(json.dumps(policy.to_dict(), allow_nan=False))
    assert SolvedPolicy.from_dict(document) == policy


def test_a_segment_decides_alike_in_whatever_form_it_comes() -> None:
    parts = {"DE": solved(POLICY, (0.2, -math.inf), (0.1, -math.inf)), "FR": solved(POLICY, None, (0.6, -math.inf))}
    segments = {value: SolvedSegment(bands=part.bands, certified=True) for value, part in parts.items()}
    target = SolvedPolicy(POLICY, 1, parts["DE"].bands, review_all=True, segments=segments)
    p = column(0.15, 0.25, 0.5, 0.7, 0.9, 0.9)
    names = ["DE", "DE", "FR", "FR", "IT", None]
    expected = [
        int(
            decide(parts[name] if name in parts else solved(POLICY, None, None, review_all=True), p[[row]], p[[row]])[0]
        )
        for row, name in enumerate(names)
    ]
    forms = names, np.array(names, dtype=object), np.array([name or "" for name in names])
    for form in forms:
        assert decide(target, p, p, form).tolist() == expected
        assert [int(decide(target, p[[row]], p[[row]], form[row : row + 1])[0]) for row in range(6)] == expected
    nowhere = decide(target, p, p, None)
    assert nowhere.tolist() == [expected[-1]] * 6


def test_documents_of_certificates_are_made_once() -> None:
    claim = Certificate(
        metric="precision",
        at_least=0.9,
        at_most=None,
        delta=0.05,
        n=100,
        errors=1,
        looks=1,
        basis="reference",
        window=None,
        valid=True,
        segment="DE",
    )
    target = SolvedPolicy(
        POLICY, 1, (SolvedBand(action="accept", threshold=Threshold.at(0.5, 0.0), certificate=claim),), review_all=False
    )
    assert target.certified == {"accept": claim.model_dump(mode="json")}
    assert target.certified is target.certified
    assert Certificate.model_validate(claim.model_dump(mode="json")) == claim
