"""Scores and sets beside those of MAPIE and crepes, which use the rank of plain conformal prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crepes import ConformalClassifier
from crepes.extras import hinge
from mapie.conformity_scores import APSConformityScore, LACConformityScore, RAPSConformityScore
from scipy.stats import binom

from calibrators import Identity
from service.decisions.calibrated import Calibrated
from service.decisions.claims import Shown
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.sets import in_sets, set_scores, solve_sets

CLASSES = 6


def drawn(rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(CLASSES), rows).astype(np.float32), rng.integers(0, CLASSES, rows)


def test_scores_are_those_of_mapie() -> None:
    p, label = drawn(500, 1)
    rows = np.arange(500)
    lac = LACConformityScore().get_conformity_scores(label, p, y_enc=label).ravel()
    assert set_scores("lac", p)[rows, label] == pytest.approx(lac, abs=1e-6)
    for method, score in (("aps", APSConformityScore()), ("raps", RAPSConformityScore())):
        # MAPIE's own randomisation, which ours leaves out, comes after these.
        sums, rank = score.get_true_label_cumsum_proba(label, p, np.arange(CLASSES))
        penalty = 0.01 * np.maximum(rank - 1, 0) if method == "raps" else 0.0
        assert set_scores(method, p)[rows, label] == pytest.approx(sums.ravel() + penalty, abs=1e-6)  # type: ignore[arg-type]


def test_sets_per_class_are_those_of_crepes_at_the_same_rank() -> None:
    (p, label), (later, _) = drawn(600, 2), drawn(300, 3)
    scores, confidence = set_scores("lac", p), 0.9
    limits = np.empty(CLASSES, np.float32)
    for one in range(CLASSES):
        own = np.sort(scores[label == one, one])
        limits[one] = own[int(np.ceil((len(own) + 1) * confidence)) - 1]
    found = set_scores("lac", later) <= limits
    theirs = ConformalClassifier().fit(hinge(p.astype(float), np.arange(CLASSES), label), bins=label)
    alphas = hinge(later.astype(float))
    for one in range(CLASSES):
        sets = theirs.predict_set(alphas, bins=np.full(300, one), confidence=confidence, smoothing=False)
        assert (sets[:, one].astype(bool) == found[:, one]).all()


def test_what_a_policy_solves_are_the_sets_of_crepes_at_its_rank() -> None:
    """crepes takes rank ⌈(n + 1)c⌉; a policy takes the smallest rank that shows the coverage, so c follows from it."""
    (p, label), (later, _) = drawn(3_000, 4), drawn(300, 5)
    names = tuple("abcdef")
    document = {"id": "p", "bands": [{"action": "show"}], "set": {"coverage": 0.8}, "certify": {"looks": "once"}}
    logits = np.log(p)
    certify = Calibrated.of(Identity().fit(logits, label), names, Rows(logits=logits, label=label))
    solved = solve_sets(parse_policy(document), certify, Shown(1, "traffic"), 0)[""]
    assert (solved.valid, solved.always) == (True, ())
    found = in_sets(solved, later)
    theirs = ConformalClassifier().fit(
        hinge(certify.probabilities.astype(float), np.arange(CLASSES), label), bins=label
    )
    for one, limit in enumerate(solved.thresholds):
        own = set_scores("lac", certify.probabilities)[label == one, one]
        rank = int((own <= np.float32(limit or 0.0)).sum())
        assert (
            binom.cdf(len(own) - rank, len(own), 0.2) <= 0.05 / CLASSES < binom.cdf(len(own) - rank + 1, len(own), 0.2)
        )
        confidence = (rank - 0.5) / (len(own) + 1)
        sets = theirs.predict_set(
            hinge(later.astype(float)), bins=np.full(300, one), confidence=confidence, smoothing=False
        )
        assert (sets[:, one].astype(bool) == found[:, one]).all()
