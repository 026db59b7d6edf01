"""Prediction sets: the scores, the rank of the threshold, its coverage in worlds, and what is said of few rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom

from calibrators import Identity
from candor.contract.certificates import SolvedSet
from candor.contract.policies import Policy
from service.decisions.approval import lost_certificates
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import lost, warnings
from service.decisions.claims import Shown
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.rows import Rows
from service.decisions.sets import in_sets, set_scores, sets_of, solve_sets
from service.decisions.solved import SolvedPolicy
from service.errors import PolicyError

NAMES = ("a", "b", "c")
SHOWN = Shown(1, "traffic", fresh=True)


def policy(**wanted: Any) -> Policy:
    document = {"id": "p", "bands": [{"action": "allow"}], "set": {"coverage": 0.9}, "certify": {"looks": "once"}}
    return parse_policy(document | wanted)


def world(rng: np.random.Generator, n: int, classes: int = 3) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw logits, and labels that follow another, sharper model: the probabilities are miscalibrated."""
    logits = rng.normal(size=(n, classes)) * 1.5 + np.linspace(1.0, -1.0, classes)
    odds = np.cumsum(np.exp(0.7 * logits) / np.exp(0.7 * logits).sum(axis=1, keepdims=True), axis=1)
    return logits.astype(np.float32), (rng.random((n, 1)) > odds[:, :-1]).sum(axis=1)


def rows_of(logits: NDArray[np.float32], label: NDArray[np.int64], **columns: Any) -> Calibrated:
    names = NAMES[: logits.shape[1]]
    return Calibrated.of(Identity().fit(logits, label % 2), names, Rows(logits=logits, label=label, **columns))


def limits_of(found: SolvedSet) -> list[float]:
    return [math.inf if limit is None else limit for limit in found.thresholds]


def by_hand(method: str, row: list[float]) -> list[float]:
    scores = []
    for label, own in enumerate(row):
        before = [p for other, p in enumerate(row) if p > own or (p == own and other < label)]
        rank = len(before)
        scores.append(1 - own if method == "lac" else sum(before) + own + 0.01 * rank * (method == "raps"))
    return scores


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_scores_are_those_of_the_papers_row_by_row(method: Any) -> None:
    drawn = np.random.default_rng(1).dirichlet(np.ones(5), 200).astype(np.float32)
    drawn[0] = 0.2  # ties: in the order of the labels
    found = set_scores(method, drawn)
    assert found == pytest.approx(np.array([by_hand(method, row) for row in drawn.tolist()]), abs=1e-6)
    alone = np.concatenate([set_scores(method, drawn[row : row + 1]) for row in range(200)])
    assert alone.tobytes() == found.tobytes()


def test_the_threshold_is_the_smallest_rank_with_the_coverage() -> None:
    """The coverage at rank k has Beta(k, n + 1 − k): below 0.9 with probability delta at most."""
    rng = np.random.default_rng(2)
    logits, label = world(rng, 400)
    wanted = policy(set={"coverage": 0.9, "per_class": False})
    certify = rows_of(logits, label)
    (found,) = solve_sets(wanted, certify, SHOWN, 0).values()
    own = np.sort(set_scores("lac", certify.probabilities)[np.arange(400), label])
    rank = int((own <= np.float32(found.thresholds[0])).sum())
    assert beta.cdf(0.9, rank, 401 - rank) <= 0.05 < beta.cdf(0.9, rank - 1, 402 - rank)
    assert len(set(found.thresholds)) == 1
    assert found.expected == pytest.approx(rank / 401)
    assert (found.n, found.delta, found.valid, found.always) == (400, 0.05, True, ())


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
@pytest.mark.parametrize("per_class", [True, False])
def test_the_coverage_falls_short_no_more_often_than_delta(method: str, per_class: bool) -> None:
    rng = np.random.default_rng(3)
    wanted = policy(
        set={"coverage": 0.8, "per_class": per_class, "score": method}, certify={"delta": 0.1, "looks": "once"}
    )
    logits, label = world(rng, 100_000)
    later = rows_of(logits, label)
    own = set_scores(wanted.set.score, later.probabilities)[np.arange(len(label)), label]  # type: ignore[union-attr]
    of_class = [np.sort(own[label == one]) for one in range(3)]
    broken, worlds, covered = 0, 250, []
    for _ in range(worlds):
        (found,) = solve_sets(wanted, rows_of(*world(rng, 300)), SHOWN, 0).values()
        limits = np.array(limits_of(found), np.float32)
        inside = [int(np.searchsorted(scores, limits[one], side="right")) for one, scores in enumerate(of_class)]
        shares = [inside[one] / len(of_class[one]) for one in range(3)] if per_class else [sum(inside) / len(own)]
        broken += min(shares) < 0.8
        covered.append(np.mean(shares))
    assert broken <= binom.ppf(0.999, worlds, 0.1)
    assert np.mean(covered) < 0.95  # it does not hide behind large sets


def test_a_coverage_that_is_chosen_with_the_rows_in_view_pays_for_the_choice() -> None:
    """The score of the true label is uniform, so a threshold covers what it says. The caller takes any coverage."""
    rng, worlds, delta = np.random.default_rng(12), 150, 0.2
    wanted = [
        policy(set={"coverage": round(share, 3), "per_class": False}, certify={"delta": delta})
        for share in np.linspace(0.5, 0.98, 33)
    ]
    false = certified = 0
    for _ in range(worlds):
        score = rng.random(200)
        p = np.stack([1 - score, score], axis=1).astype(np.float32)
        rows = rows_of(np.log(p), np.zeros(200, np.int64))
        found = [solve_sets(one, rows, Shown(2, "traffic"), 0)[""] for one in wanted]
        certified += sum(one.valid for one in found)
        false += any(one.valid and (one.thresholds[0] or 1.0) < one.coverage for one in found)
    assert certified > 0.9 * worlds * len(wanted)
    assert false <= binom.isf(0.001, worlds, delta / 6)


def test_an_even_sample_where_labels_are_explored() -> None:
    """Rows of a high score are always labelled, others at 30 %: without thinning, the coverage would be wrong."""
    rng = np.random.default_rng(4)
    wanted = policy(set={"coverage": 0.8, "per_class": False}, certify={"delta": 0.1, "looks": "once"})
    logits, label = world(rng, 100_000, classes=2)
    later = np.sort(set_scores("lac", rows_of(logits, label).probabilities)[np.arange(len(label)), label])
    broken, worlds = 0, 200
    for number in range(worlds):
        logits, label = world(rng, 1500, classes=2)
        propensity = np.where(logits[:, 1] > logits[:, 0], 1.0, 0.3)
        sought = rng.random(1500) < propensity
        certify = rows_of(logits, np.where(sought, label, -1), propensity=propensity, sought=sought, labelled=sought)
        (found,) = solve_sets(wanted, certify, SHOWN, number).values()
        assert 300 < found.n < 600
        broken += np.searchsorted(later, np.float32(found.thresholds[0]), side="right") < 0.8 * len(later)
    assert broken <= binom.ppf(0.999, worlds, 0.1)


def test_labels_that_have_not_come_count_against_the_sets() -> None:
    logits, label = world(np.random.default_rng(5), 1000)
    whole = rows_of(logits, label)
    some = np.arange(1000) >= 40
    partial = rows_of(logits, np.where(some, label, -1), labelled=some, sought=np.ones(1000, bool))
    wanted = policy(set={"coverage": 0.8})
    before, after = (solve_sets(wanted, rows, SHOWN, 0)[""] for rows in (whole, partial))
    assert all(was <= now for was, now in zip(limits_of(before), limits_of(after), strict=True))
    assert limits_of(before)[0] < limits_of(after)[0]
    many = np.arange(1000) >= 60
    missing = rows_of(logits, np.where(many, label, -1), labelled=many, sought=np.ones(1000, bool))
    refused = solve_sets(wanted, missing, SHOWN, 0)[""]
    assert not refused.valid
    assert "6.0% of the sought labels have not arrived" in str(refused.reason)
    assert in_sets(refused, whole.probabilities).all()


def test_few_rows_are_said_and_make_full_sets() -> None:
    rng = np.random.default_rng(6)
    logits, label = world(rng, 600)
    rare = np.where(label == 2, np.where(np.arange(600) < 60, 2, 1), label)
    found = solve_sets(policy(), rows_of(logits, rare), SHOWN, 0)[""]
    assert (found.valid, found.always, found.needed) == (True, ("c",), 39)  # 0.9³⁹ ≤ 0.05 / 3 < 0.9³⁸
    assert in_sets(found, rows_of(logits, rare).probabilities)[:, 2].all()
    solved = SolvedPolicy(policy(), 1, (), review_all=False, sets={"": found})
    assert warnings(solved) == ["'c' are in every prediction set: each needs 39 labelled rows."]
    assert SolvedPolicy.from_dict(solved.to_dict()).sets == solved.sets
    none = solve_sets(policy(), rows_of(logits[:20], label[:20]), SHOWN, 0)[""]
    assert (none.valid, none.thresholds) == (False, (None,) * 3)
    assert "20 labelled rows certify; at least 39 labelled rows of one class are needed" in str(none.reason)
    worse = replace(solved, sets={"": none})
    assert list(lost(solved, worse)) == [None]
    said = "Policy 'p' loses the certified prediction sets that r1 has."
    assert lost_certificates(_revision("r2", worse), _revision("r1", solved), {"p": solved}) == (said,)
    assert lost_certificates(_revision("r2", solved), _revision("r1", worse), {"p": worse}) == ()


def _revision(id_: str, solved: SolvedPolicy) -> Revision:
    made: dict[str, Any] = {"parent": None, "cause": "policy", "by": "a", "gate": "not_run", "created_at": 0}
    return Revision(id_, "m", "b", 1, "d", Identity(), {"p": solved}, **made)


def test_looks_and_promises_share_delta() -> None:
    rows = rows_of(*world(np.random.default_rng(7), 900))
    bands = [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}]
    both = policy(bands=bands, certify={"delta": 0.1})
    assert both.claims == 2
    assert solve_sets(both, rows, Shown(3, "traffic"), 0)[""].delta == pytest.approx(0.1 / 2 / 12)
    of_year = solve_sets(policy(certify={"delta": 0.1}), rows, Shown(1, "traffic", spent=4), 0)[""]
    assert of_year.delta == pytest.approx(0.1 / 20)
    again = solve_sets(policy(), rows, Shown(2, "traffic"), 0)[""]
    assert "looks is once" in str(again.reason)
    voided = solve_sets(policy(), rows, Shown(1, "reference", void={"set": "weight: of the rows"}), 0)[""]
    assert (voided.valid, voided.reason) == (False, "weight: of the rows")


def test_each_segment_has_its_own_sets_and_other_rows_every_label() -> None:
    logits, label = world(np.random.default_rng(8), 900)
    segment = np.repeat(["DE", "FR", "IT"], [500, 380, 20])
    wanted = policy(segments={"values": ["DE", "FR", "IT"]}, set={"coverage": 0.8})
    rows = rows_of(logits, label, segment=segment)
    found = solve_sets(wanted, rows, SHOWN, 0)
    assert [found[value].valid for value in ("DE", "FR", "IT")] == [True, True, False]
    assert found["DE"].thresholds != found["FR"].thresholds
    given = [*segment[:899], None]
    sets = sets_of(found, rows.probabilities, given)
    assert (sets[:500] == in_sets(found["DE"], rows.probabilities[:500])).all()
    assert sets[880:].all()
    assert sets_of(found, rows.probabilities, None).all()


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"coverage": 1.0}, "/set/coverage"),
        ({"coverage": 0.9, "per_class": 1}, "/set/per_class"),
        ({"coverage": 0.9, "score": "best"}, "/set/score"),
        ({"size": 2}, "/set/size"),
    ],
)
def test_bad_documents_are_refused(document: dict[str, Any], where: str) -> None:
    with pytest.raises(PolicyError) as refused:
        policy(set=document)
    assert refused.value.where == where


def test_certificates_that_grow_make_no_sets() -> None:
    with pytest.raises(PolicyError, match="Sets are solved anew"):
        policy(certify={"looks": "anytime", "planned": 100})
