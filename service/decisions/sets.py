"""Prediction sets: labels among which the true one is, with a certified coverage.

A label is in the set of a row if its score is at most the label's threshold: a rank among the scores of the true labels
of certify rows (split conformal prediction). The rank is the smallest at which an exact binomial test shows the
coverage, so that with probability 1 − delta over the certify rows the threshold covers at least as many later rows as
promised. The mean coverage over all draws of certify rows, the promise of plain conformal prediction, is higher.
Where the rows may have been shown before, the coverage may have been chosen for its rank. Then each rank has an equal
part of the error probability.

References:
    Vovk (2012), Conditional validity of inductive conformal predictors, Propositions 2 (delta) and 3 (per class).
    Sadinle, Lei & Wasserman (2019), Least ambiguous set-valued classifiers with bounded error levels (`lac`).
    Romano, Sesia & Candès (2020), Classification with valid and adaptive coverage (`aps`).
    Angelopoulos, Bates, Malik & Jordan (2021), Uncertainty sets for image classifiers (`raps`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import SolvedSet
from candor.contract.policies import Policy, PredictionSet, SetScore
from service.decisions.binomial import critical_errors, labels_needed
from service.decisions.calibrated import Calibrated
from service.decisions.claims import Shown, too_few_arrived

_PENALTY: Final = 0.01
_FREE_RANKS: Final = 1


def set_scores(method: SetScore, probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of each label, small for probable ones: float32 of shape (N, K).

    The scores of a row do not depend on the rows beside it, bit for bit.

    Args:
        method: "lac": one minus the label's probability. "aps": the sum of the probabilities down to the label's, from
            the largest on, with its own. "raps": the same plus 0.01 for each rank from the second on.
        probabilities: Calibrated probabilities, float32 of shape (N, K).

    Example:
        >>> p = np.array([[0.25, 0.5, 0.25]], np.float32)
        >>> [set_scores(method, p).astype(float).round(2).tolist() for method in ("lac", "aps", "raps")]
        [[[0.75, 0.5, 0.75]], [[0.75, 0.5, 1.0]], [[0.76, 0.5, 1.02]]]
    """
    if method == "lac":
        return np.float32(1) - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1, dtype=np.float64)
    if method == "raps":
        sums += _PENALTY * np.maximum(np.arange(1, sums.shape[1] + 1) - _FREE_RANKS, 0)
    scores = np.empty(probabilities.shape, np.float32)
    np.put_along_axis(scores, order, sums.astype(np.float32), axis=1)
    return scores


def in_sets(solved: SolvedSet, probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return whether each label is in the set of each row, (N, K)."""
    limits = np.array([math.inf if limit is None else limit for limit in solved.thresholds], np.float32)
    found: NDArray[np.bool_] = set_scores(solved.score, probabilities) <= limits
    return found


def solve_sets(policy: Policy, certify: Calibrated, shown: Shown, seed: int) -> dict[str, SolvedSet]:
    """Return the prediction sets of a policy by segment, "" for all rows; empty if the policy has none.

    Args:
        policy: What must hold.
        certify: Rows that certify; none of their groups has fitted the calibrator.
        shown: What these rows are, and how often they were looked at. `void["set"]` says why they certify no set.
        seed: Of the draws; fixed before any label is seen.
    """
    if policy.set is None:
        return {}
    if policy.segments is None:
        return {"": _solve(policy, policy.set, certify, shown, seed)}
    found, among = {}, shown.among(policy, certify.rows.segment)
    for value in policy.segments.values:
        rows = certify.take(certify.rows.segment == value)
        found[value] = _solve(policy, policy.set, rows, replace(among, segment=value), seed)
    return found


def _solve(policy: Policy, wanted: PredictionSet, certify: Calibrated, shown: Shown, seed: int) -> SolvedSet:
    """Solve the sets on the rows of one segment, or on all rows."""
    share = policy.certify.for_looks / policy.claims / shown.divisor(policy.certify)
    names, tolerance = certify.names, 1.0 - wanted.coverage
    classes = len(names)
    level = share / classes if wanted.per_class else share
    # With the rows in view, the coverage may have been chosen for its rank: then all ranks share the level.
    chosen = not shown.unseen(policy.certify)
    needed, more = 0, labels_needed(0, 0, tolerance, level)
    while needed < more:
        needed, more = more, labels_needed(0, 0, tolerance, level / more) if chosen else more
    reason = shown.void.get("set") or _objection(policy, certify, shown)
    limits, expected = np.full(classes, np.inf, np.float32), 1.0
    sample = certify.take(_even(certify, seed)) if reason is None else certify.take(np.empty(0, np.intp))
    scores = set_scores(wanted.score, sample.probabilities)
    known = sample.rows.known()
    # A row of the sample without a label may have any label, whose score is as large as possible.
    unknown = np.full(int((~known).sum()), np.inf, np.float32)
    label = sample.rows.label[known]
    own = scores[known, label]
    for which in range(classes) if wanted.per_class else [slice(None)]:
        found = np.concatenate([own if isinstance(which, slice) else own[label == which], unknown])
        of_rank = level / len(found) if chosen and len(found) else level
        allowed = int(critical_errors(np.array(len(found)), tolerance, of_rank)) if len(found) else -1
        if allowed >= 0:
            rank = len(found) - allowed
            limits[which] = np.sort(found)[rank - 1]
            expected = min(expected, rank / (len(found) + 1))
    sets = scores <= limits
    if reason is None and np.isinf(limits).all():
        of = "labelled rows of one class" if wanted.per_class else "labelled rows"
        reason = f"{len(label)} labelled rows certify; at least {needed} {of} are needed"
    sizes = sets.sum(axis=1)
    return SolvedSet(
        coverage=wanted.coverage,
        per_class=wanted.per_class,
        score=wanted.score,
        delta=share,
        n=len(label),
        per="group",
        expected=expected,
        looks=shown.look,
        basis=shown.basis,
        window=shown.window,
        valid=reason is None,
        reason=reason,
        needed=needed,
        segment=shown.segment,
        always=tuple(name for name, limit in zip(names, limits.tolist(), strict=True) if math.isinf(limit)),
        size=float(sizes.mean()) if len(sizes) else None,
        empty=float((sizes == 0).mean()) if len(sizes) else None,
        full=float((sizes == classes).mean()) if len(sizes) else None,
        thresholds=tuple(None if math.isinf(limit) else limit for limit in limits.tolist()),
    )


def _objection(policy: Policy, certify: Calibrated, shown: Shown) -> str | None:
    """Return why these rows cannot certify a set; None if they can."""
    rows = certify.rows
    if policy.certify.looks == "once" and (shown.windows > 1 or shown.look > 1):
        return f"looks is once, but these rows were shown before (look {shown.look}), or their window was chosen"
    if (reason := too_few_arrived(rows.missing_share())) is not None:
        return reason
    if (rows.propensity == 0).any():
        return "the labels of some rows are never sought: explore every action, or name it in `labels.actions`"
    return None


def _even(certify: Calibrated, seed: int) -> NDArray[np.intp]:
    """Return an even sample of the rows, one of each group: each was as likely to be sought as the least likely.

    Every row gets a uniform number below its propensity if its label was sought, above it otherwise.
    """
    rows = certify.rows
    which = rows.sample(seed, known_propensity=True)
    chosen: NDArray[np.intp] = np.arange(len(rows))[which]
    if not len(chosen):
        return chosen
    propensity, sought = rows.propensity[chosen], rows.was_sought()[chosen]
    draw = np.random.default_rng((seed, 2)).random(len(chosen))
    uniform = np.where(sought, draw * propensity, propensity + draw * (1.0 - propensity))
    even: NDArray[np.intp] = chosen[uniform < propensity.min()]
    return even


def sets_of(
    solved: Mapping[str, SolvedSet], probabilities: NDArray[np.float32], segments: Sequence[str | None] | None
) -> NDArray[np.bool_]:
    """Return whether each label is in the set of each row, (N, K); rows of no segment of the policy have every label.

    Args:
        solved: From `solve_sets`.
        probabilities: Calibrated probabilities, float32 of shape (N, K).
        segments: Segment of each row; None where the request names none.
    """
    if "" in solved:
        return in_sets(solved[""], probabilities)
    found = np.ones(probabilities.shape, np.bool_)
    names: NDArray[Any] = np.array(segments if segments is not None else [None] * len(probabilities), np.object_)
    for value in solved.keys() & set(names.tolist()):
        rows = names == value
        found[rows] = in_sets(solved[value], probabilities[rows])
    return found
