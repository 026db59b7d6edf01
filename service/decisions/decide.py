"""From thresholds to actions, on the hot path.

A row carries a pair: its calibrated probability and, to break ties, its raw score (log-odds from the uncalibrated
logits). It falls into the first band whose threshold pair is not above it, in lexicographic order. Both sides are
float32, the same numbers when thresholds are solved and when rows are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import REVIEW
from candor.contract.policies import TOP, Policy
from service.decisions.amounts import amounts_of
from service.decisions.solved import SolvedPolicy

_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


def score_rows(
    policy: Policy,
    labels: Sequence[str],
    logits: NDArray[np.floating[Any]],
    probabilities: NDArray[np.floating[Any]],
    top_labels: NDArray[np.int64],
    confidence: NDArray[np.floating[Any]],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the pair that a policy compares with its thresholds.

    Args:
        policy: Names the positive class, or "top".
        labels: The model's K ≥ 2 labels.
        logits: Raw logits, shape (N, K); −inf is a probability of zero.
        probabilities: Calibrated probabilities, shape (N, K).
        top_labels: Predicted label per row, shape (N,), as the calibrator gives it.
        confidence: Its calibrated probability, shape (N,).

    Returns:
        Probability of the positive class, and its raw log-odds, both float32 of shape (N,) and finite.

    Example:
        >>> from service.decisions.policy import parse_policy
        >>> policy = parse_policy({"id": "flag", "positive": "b", "bands": [{"action": "allow"}]})
        >>> logits = np.array([[0.0, 2.0]], dtype=np.float32)
        >>> p = np.array([[0.2, 0.8]], dtype=np.float32)
        >>> score_rows(policy, ("a", "b"), logits, p, np.array([1]), p[:, 1])
        (array([0.8], dtype=float32), array([2.], dtype=float32))
    """
    if policy.positive == TOP:
        return np.asarray(confidence, np.float32), log_odds(logits, top_labels)
    column = labels.index(policy.positive)
    return probabilities[:, column].astype(np.float32), log_odds(logits, column)


def log_odds(logits: NDArray[np.floating[Any]], columns: NDArray[np.int64] | int) -> NDArray[np.float32]:
    """Return the logit of one class minus the log-sum-exp of all others, per row.

    The value of a row does not depend on the rows beside it, bit for bit.

    Args:
        logits: Shape (N, K), K ≥ 2.
        columns: The class, one for all rows or one per row, shape (N,).

    Returns:
        Log-odds clipped to what float32 can hold, shape (N,).
    """
    others = np.array(logits, dtype=np.float64, order="C")
    rows = np.arange(len(others))
    own = others[rows, columns]
    others[rows, columns] = -np.inf
    peak = others.max(axis=1)
    peak[np.isneginf(peak)] = 0.0
    others -= peak[:, None]
    np.exp(others, out=others)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = own - (np.log(others.sum(axis=1)) + peak)
    odds[np.isneginf(own)] = -np.inf
    clipped: NDArray[np.float32] = np.clip(odds, -_FLOAT32_MAX, _FLOAT32_MAX).astype(np.float32)
    return clipped


def order_keys(probability: NDArray[np.floating[Any]], score: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """Return integers that compare as the pairs (probability, score) do in lexicographic float32 order.

    Args:
        probability: Shape (N,), no NaN.
        score: Shape (N,), no NaN; infinities are fine.

    Returns:
        Keys, shape (N,).
    """
    return (_ordered(probability).astype(np.uint64) << np.uint64(32)) | _ordered(score)


def _ordered(values: NDArray[np.floating[Any]]) -> NDArray[np.uint32]:
    # IEEE 754 numbers sort as integers once the negatives are flipped; adding zero turns −0.0 into 0.0.
    bits = (np.asarray(values, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(0x80000000)).astype(np.uint32)


def decide(
    solved: SolvedPolicy,
    probability: NDArray[np.float32],
    score: NDArray[np.float32],
    segments: Sequence[str | None] | NDArray[np.str_] | NDArray[np.object_] | None = None,
    amounts: Sequence[float | None] | NDArray[np.float64] | None = None,
) -> NDArray[np.intp]:
    """Return each row's index into `solved.actions`.

    Args:
        solved: The solved policy.
        probability: From `score_rows`, float32 of shape (N,).
        score: From `score_rows`, float32 of shape (N,).
        segments: The request's segment of each row, N of them; None where it names none.
        amounts: Amount of each row, N of them, None or NaN where unknown; None where the request gives none.

    Returns:
        Band indices, shape (N,); that of the policy's fallback for every row under `review_all`. Treat as read-only.
    """
    if solved.segments and segments is not None:
        return _decide_segments(solved, probability, score, segments, amounts)
    if solved.by_amount and not solved.review_all:
        return _decide_amounts(solved, probability, score, amounts)
    if solved.review_all:
        fallback = solved.actions.index(solved.policy.fallback)
        return solved.single[fallback] if len(probability) == 1 else np.full(len(probability), fallback, dtype=np.intp)
    if len(probability) == 1:
        # One row is the common request: plain floats cost a tenth of what array operations would.
        p, s = probability.item(), score.item()
        for index, (cut, tie) in enumerate(solved.cuts):
            if p > cut or (p == cut and s >= tie):
                return solved.single[index]
        return solved.single[len(solved.cuts)]
    indices = np.full(len(probability), len(solved.cuts), dtype=np.intp)
    for index in range(len(solved.cuts) - 1, -1, -1):
        indices[_at_or_above(solved.cuts[index], probability, score)] = index
    return indices


def _at_or_above(
    cut: tuple[float, float], probability: NDArray[np.float32], score: NDArray[np.float32]
) -> NDArray[np.bool_]:
    cut32, tie32 = np.float32(cut[0]), np.float32(cut[1])
    above: NDArray[np.bool_] = (probability > cut32) | ((probability == cut32) & (score >= tie32))
    return above


def _decide_amounts(
    solved: SolvedPolicy,
    probability: NDArray[np.float32],
    score: NDArray[np.float32],
    amounts: Sequence[float | None] | NDArray[np.float64] | None,
) -> NDArray[np.intp]:
    """Decide by amounts: a row without one that no earlier band takes goes to review."""
    given = amounts_of(amounts, len(probability), solved.policy.amount_when_missing)
    unknown, exact = np.isnan(given), probability.astype(np.float64)
    indices = np.full(len(probability), len(solved.cuts), dtype=np.intp)
    first = min(solved.by_amount)
    for index in range(len(solved.cuts) - 1, -1, -1):
        rule = solved.by_amount.get(index)
        taken = _at_or_above(solved.cuts[index], probability, score) if rule is None else rule.takes(exact, given)
        indices[taken] = index
        if index == first:
            indices[unknown] = solved.actions.index(REVIEW)
    return indices


def _decide_segments(
    solved: SolvedPolicy,
    probability: NDArray[np.float32],
    score: NDArray[np.float32],
    segments: Sequence[str | None] | NDArray[np.str_] | NDArray[np.object_],
    amounts: Sequence[float | None] | NDArray[np.float64] | None,
) -> NDArray[np.intp]:
    if len(probability) == 1:
        return decide(solved.parts.get(segments[0] or "", solved), probability, score, None, amounts)
    given = None if amounts is None else np.array(amounts, dtype=np.float64)
    indices = np.array(decide(solved, probability, score, None, given))
    names = segments if isinstance(segments, np.ndarray) else np.array(segments, dtype=np.object_)
    for value in solved.parts.keys() & set(names.tolist()):
        rows = names == value
        of_them = None if given is None else given[rows]
        indices[rows] = decide(solved.parts[value], probability[rows], score[rows], None, of_them)
    return indices


def decide_rows(
    solved: SolvedPolicy,
    labels: Sequence[str],
    logits: NDArray[np.floating[Any]],
    probabilities: NDArray[np.floating[Any]],
    top_labels: NDArray[np.int64],
    confidence: NDArray[np.floating[Any]],
    segments: Sequence[str | None] | NDArray[np.str_] | NDArray[np.object_] | None = None,
    amounts: Sequence[float | None] | NDArray[np.float64] | None = None,
) -> NDArray[np.intp]:
    """Return what `decide` gives on `score_rows`, computing raw scores only for rows that stand on a threshold.

    Args:
        solved: The solved policy.
        labels: The model's K ≥ 2 labels.
        logits: Raw logits, shape (N, K).
        probabilities: Calibrated probabilities, shape (N, K).
        top_labels: Predicted label per row, shape (N,).
        confidence: Its calibrated probability, shape (N,).
        segments: The request's segment of each row, N of them; None where it names none.
        amounts: Amount of each row, as in `decide`.

    Returns:
        Band indices, shape (N,). Treat as read-only.
    """
    column = None if solved.policy.positive == TOP else labels.index(solved.policy.positive)
    values = confidence if column is None else probabilities[:, column]
    probability = values if values.dtype == np.float32 else values.astype(np.float32)
    if len(probability) == 1 and probability.item() not in solved.ties:
        return decide(solved, probability, probability, segments, amounts)
    score = np.zeros(len(probability), dtype=np.float32)
    if solved.ties:
        tied = np.flatnonzero(np.isin(probability, np.array(solved.ties, dtype=np.float32)))
        if len(tied):
            score[tied] = log_odds(logits[tied], top_labels[tied] if column is None else column)
    return decide(solved, probability, score, segments, amounts)
