"""From thresholds to actions, on the hot path.

A row carries a pair: its calibrated probability and, to break ties, its raw score (log-odds from the uncalibrated
logits). It falls into the first band whose threshold pair is not above it, in lexicographic order. Both sides are
float32, the same numbers when thresholds are solved and when rows are served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from service.decisions.conditions import REVIEW
from service.decisions.policy import TOP, Policy
from service.revision import Certificate, Threshold

_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class SolvedBand:
    """One band with the threshold that rows must reach.

    Attributes:
        action: Name of the action.
        threshold: Lowest pair that the band takes; None when it takes every row (the last band) or none could be
            certified.
        certificate: What is promised about all rows at or above the threshold; None when nothing is.
    """

    action: str
    threshold: Threshold | None
    certificate: Certificate | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "action": self.action,
            "threshold": self.threshold.to_dict() if self.threshold else None,
            "certificate": self.certificate.to_dict() if self.certificate else None,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        threshold, certificate = document["threshold"], document["certificate"]
        return cls(
            document["action"],
            Threshold.from_dict(threshold) if threshold else None,
            Certificate.from_dict(certificate) if certificate else None,
        )


@dataclass(frozen=True, slots=True)
class SolvedSegment:
    """One part of the traffic with its own thresholds.

    Attributes:
        bands: One solved band per band of the policy.
        certified: Whether every promise could be certified, or its threshold stays all the same; the rows get the
            policy's fallback otherwise.
    """

    bands: tuple[SolvedBand, ...]
    certified: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {"bands": [band.to_dict() for band in self.bands], "certified": self.certified}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(tuple(SolvedBand.from_dict(band) for band in document["bands"]), document["certified"])


@dataclass(frozen=True)
class SolvedPolicy:
    """A policy with its thresholds and certificates, as a revision holds it.

    Attributes:
        policy: What the operator wants.
        version: Version of that policy.
        bands: One solved band per band of the policy; without thresholds where the policy has segments.
        review_all: Whether every row of no segment goes to review (with segments: to their fallback), because a promise
            could not be certified.
        segments: Solutions of the policy's segments, by value; empty without segments.
    """

    policy: Policy
    version: int
    bands: tuple[SolvedBand, ...]
    review_all: bool
    segments: Mapping[str, SolvedSegment] = field(default_factory=dict)

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """Action per index that `decide` returns: those of the bands, then "review" if no band has it."""
        actions = tuple(band.action for band in self.bands)
        return actions if REVIEW in actions else (*actions, REVIEW)

    @cached_property
    def parts(self) -> Mapping[str, SolvedPolicy]:
        """The solution of each segment, in a form that decides."""
        return {
            value: replace(self, bands=part.bands, review_all=not part.certified, segments={})
            for value, part in self.segments.items()
        }

    @cached_property
    def propensities(self) -> NDArray[np.float64]:
        """Probability that a row's label is sought, per index that `decide` returns."""
        return np.array([self.policy.propensity(action) for action in self.actions])

    @cached_property
    def cuts(self) -> tuple[tuple[float, float], ...]:
        """Threshold pairs of all bands but the last, as plain floats that hold float32 values."""
        return tuple(
            (band.threshold.probability, band.threshold.score) if band.threshold else (math.inf, math.inf)
            for band in self.bands[:-1]
        )

    @cached_property
    def certified(self) -> Mapping[str, Mapping[str, Any]]:
        """The document of each action's certificate, made once; of a policy with segments there are its parts'."""
        return {band.action: band.certificate.to_dict() for band in self.bands if band.certificate is not None}

    @cached_property
    def ties(self) -> tuple[float, ...]:
        """Probabilities at which the raw score decides."""
        parts = (self, *self.parts.values())
        return tuple({cut for part in parts for cut, tie in part.cuts if math.isfinite(tie)})

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], ...]:
        """The answer for one row, per index: read-only arrays of shape (1,), made once."""
        answers = tuple(np.array([index], dtype=np.intp) for index in range(len(self.actions)))
        for answer in answers:
            answer.flags.writeable = False
        return answers

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "policy": self.policy.to_dict(),
            "version": self.version,
            "bands": [band.to_dict() for band in self.bands],
            "review_all": self.review_all,
        } | ({"segments": {value: part.to_dict() for value, part in self.segments.items()}} if self.segments else {})

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            Policy.from_dict(document["policy"]),
            document["version"],
            tuple(SolvedBand.from_dict(band) for band in document["bands"]),
            document["review_all"],
            {value: SolvedSegment.from_dict(part) for value, part in document.get("segments", {}).items()},
        )


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
        >>> policy = Policy.from_dict({"id": "flag", "positive": "b", "bands": [{"action": "allow"}]})
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
) -> NDArray[np.intp]:
    """Return each row's index into `solved.actions`.

    Args:
        solved: The solved policy.
        probability: From `score_rows`, float32 of shape (N,).
        score: From `score_rows`, float32 of shape (N,).
        segments: The request's segment of each row, N of them; None where it names none.

    Returns:
        Band indices, shape (N,); that of the policy's fallback for every row under `review_all`. Treat as read-only.
    """
    if solved.segments and segments is not None:
        return _decide_segments(solved, probability, score, segments)
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
        cut32, tie32 = np.float32(solved.cuts[index][0]), np.float32(solved.cuts[index][1])
        indices[(probability > cut32) | ((probability == cut32) & (score >= tie32))] = index
    return indices


def _decide_segments(
    solved: SolvedPolicy,
    probability: NDArray[np.float32],
    score: NDArray[np.float32],
    segments: Sequence[str | None] | NDArray[np.str_] | NDArray[np.object_],
) -> NDArray[np.intp]:
    if len(probability) == 1:
        return decide(solved.parts.get(segments[0] or "", solved), probability, score)
    indices = np.array(decide(solved, probability, score))
    names = segments if isinstance(segments, np.ndarray) else np.array(segments, dtype=np.object_)
    for value in solved.parts.keys() & set(names.tolist()):
        rows = names == value
        indices[rows] = decide(solved.parts[value], probability[rows], score[rows])
    return indices


def decide_rows(
    solved: SolvedPolicy,
    labels: Sequence[str],
    logits: NDArray[np.floating[Any]],
    probabilities: NDArray[np.floating[Any]],
    top_labels: NDArray[np.int64],
    confidence: NDArray[np.floating[Any]],
    segments: Sequence[str | None] | NDArray[np.object_] | None = None,
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

    Returns:
        Band indices, shape (N,). Treat as read-only.
    """
    column = None if solved.policy.positive == TOP else labels.index(solved.policy.positive)
    values = confidence if column is None else probabilities[:, column]
    probability = values if values.dtype == np.float32 else values.astype(np.float32)
    if len(probability) == 1 and probability.item() not in solved.ties:
        return decide(solved, probability, probability, segments)
    tied = np.flatnonzero(np.isin(probability, np.array(solved.ties, dtype=np.float32)))
    score = np.zeros(len(probability), dtype=np.float32)
    if len(tied):
        score[tied] = log_odds(logits[tied], top_labels[tied] if column is None else column)
    return decide(solved, probability, score, segments)
