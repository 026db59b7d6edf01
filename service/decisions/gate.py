"""The gate: test that a candidate calibrator does no harm, on rows that neither fit has seen.

The losses of both sides are compared row by row, and the verdict uses one-sided upper bounds of the mean differences.
`docs/explanation/statistics.md` has the bound, its simulated levels and its power.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from candor.contract.gate import Comparison, Gate, GateMode
from service.decisions.mean_bounds import interval, upper_bound
from service.errors import InputShapeError, InputValueError, TooFewLabelsError

MIXED: Final = 1e-4
"""Weight of the uniform distribution mixed into both sides, so that a probability of zero has a finite loss."""

MIN_ROWS: Final = 25
"""Minimum number of groups with a row of the rarer class (two classes), or with a wrong active label (more)."""


class Potential(NamedTuple):
    """What a candidate could cost in a group whose labels are the worst.

    Attributes:
        nll: Largest difference of any group, in log loss.
        brier: Largest difference of any group, in Brier score.
        rows: Rows of the group with the largest difference in log loss.
        of: Rows among which it was found.
    """

    nll: float = 0.0
    brier: float = 0.0
    rows: int = 0
    of: int = 0


def compare(
    candidate: NDArray[np.floating[Any]],
    active: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64] | None = None,
    *,
    mode: GateMode,
    attempt: int,
    alpha: float = 0.05,
    margin: float = 0.002,
    brier_margin: float = 0.001,
    propensity: NDArray[np.float64] | None = None,
    traffic: tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]] | None = None,
    elsewhere: Potential | None = None,
    seed: int = 0,
) -> Gate:
    """Return the verdict on a candidate, compared with the active revision on gate rows.

    Args:
        candidate: The candidate's probabilities, shape (N, K).
        active: The active revision's probabilities on the same rows, shape (N, K).
        labels: True labels in 0 … K − 1, shape (N,).
        groups: Group numbers, shape (N,); None if every row is a group of its own.
        mode: "superior" passes if the upper bound of the log-loss difference is below 0, "non_inferior" if it is below
            `margin`. Both require that the upper bound of the Brier difference is below `brier_margin`.
        attempt: Number of looks at these gate rows, including this one; from 1. Attempt k has level alpha/(k(k + 1)).
        alpha: Maximum probability, over all attempts, that harm of the margin or more passes.
        margin: Tolerated log-loss difference in nats.
        brier_margin: Tolerated Brier difference.
        propensity: Propensity of each label in [0, 1], NaN if unknown, shape (N,). Rows with an unknown or zero
            propensity are excluded, and the others thinned to the smallest one. None if every label was sought.
        traffic: Probabilities (candidate, active) on other recent rows, each of shape (M, K), without labels. Their
            worst possible labels show harm in regions that the gate rows miss.
        elsewhere: The same of rows with other roles, from `potential`; None without such rows.
        seed: Seed of the thinning; fixed before any label is seen.

    Returns:
        The verdict; `unattended.judge` completes it.

    Raises:
        InputShapeError: Shapes disagree, or K < 2.
        InputValueError: A label, probability or propensity is out of range.
        TooFewLabelsError: Fewer than two groups remain.

    Example:
        >>> labels = np.repeat([0, 1], 100)
        >>> active = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
        >>> candidate = np.where(labels[:, None] == [0, 1], 0.8, 0.2)
        >>> compare(candidate, active, labels, mode="superior", attempt=1).passed
        True
    """
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, found {attempt}")
    _check(candidate, active, labels, groups, propensity)
    if traffic is not None:
        _check_sides(*traffic, "traffic", "traffic")
    total = len(labels)
    if propensity is not None:
        kept = even_sample(propensity, seed)
        candidate, active, labels = candidate[kept], active[kept], labels[kept]
        groups = None if groups is None else groups[kept]
    group = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    if group.max(initial=0) < 1:
        raise TooFewLabelsError(
            "The gate needs rows of at least two groups with a known propensity above zero.",
            found=len(labels),
            expected=MIN_ROWS,
            remedy="Label more rows, or explore actions whose labels are never sought.",
        )
    level = alpha / (attempt * (attempt + 1))
    new, old = _mixed(candidate), _mixed(active)
    found = [potential(candidate, active, group)] + ([] if elsewhere is None else [elsewhere])
    if traffic is not None:
        found.append(potential(*traffic, np.arange(len(traffic[0]))))
    worst = max(found, key=lambda one: one.nll)
    rows = np.arange(len(labels))
    nll_losses = -np.log(new[rows, labels]), -np.log(old[rows, labels])
    brier_losses = _brier(new, labels), _brier(old, labels)
    nll = _compare(*nll_losses, worst.nll, group, level, 0.0 if mode == "superior" else margin)
    brier = _compare(*brier_losses, max(one.brier for one in found), group, level, brier_margin)
    binary = new.shape[1] == 2
    rare = labels == np.bincount(labels, minlength=2).argmin() if binary else labels != active.argmax(axis=1)
    objection = _objection(len(np.unique(group[rare])), binary, nll, brier, worst)
    return Gate(
        mode=mode,
        passed=objection is None,
        difference=nll.difference,
        upper=nll.upper,
        alpha=level,
        attempt=attempt,
        rows=len(labels),
        groups=int(group.max()) + 1,
        errors=int(rare.sum()),
        excluded=total - len(labels),
        nll=nll,
        brier=brier,
        reason=objection or _approval(nll),
        unidentified_share=0.0,
        missing_share=0.0,
        caps=(),
        unattended=False,
        unattended_reason="Not judged yet.",
    )


def potential(
    candidate: NDArray[np.floating[Any]], active: NDArray[np.floating[Any]], groups: NDArray[np.int64]
) -> Potential:
    """Return the largest difference of any group, in log loss and in Brier score, if its labels were the worst.

    Args:
        candidate: The candidate's probabilities, shape (N, K).
        active: The active revision's probabilities on the same rows, shape (N, K).
        groups: Group numbers, shape (N,).

    Example:
        >>> certain, undecided = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
        >>> found = potential(certain, undecided, np.array([0]))
        >>> round(found.nll, 1), round(found.brier, 1), found.rows
        (9.2, 1.5, 1)
    """
    if not len(groups):
        return Potential()
    new, old, group = _mixed(candidate), _mixed(active), np.unique(groups, return_inverse=True)[1]
    nll, brier = (np.bincount(group, np.maximum(worst(new, old), 0.0)) for worst in (_log_worst, _brier_worst))
    return Potential(float(nll.max()), float(brier.max()), int(np.bincount(group)[nll.argmax()]), len(group))


def even_sample(propensity: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """Return the rows that `compare` compares: a sample in which every label was equally likely to be sought.

    Args:
        propensity: Propensity of each label in [0, 1], NaN if unknown, shape (N,).
        seed: Seed of the draw; fixed before any label is seen.

    Returns:
        Indices in ascending order. A row with propensity p > 0 is kept with probability (smallest propensity)/p.
    """
    known = np.flatnonzero(propensity > 0)
    uniform = np.random.default_rng((seed, 1)).random(len(propensity))[known]
    kept: NDArray[np.intp] = known[uniform * propensity[known] < propensity[known].min(initial=1.0)]
    return kept


def _compare(
    after: NDArray[np.float64],
    before: NDArray[np.float64],
    worst: float,
    group: NDArray[np.intp],
    level: float,
    margin: float,
) -> Comparison:
    sizes = np.bincount(group).astype(np.float64)
    sums = np.bincount(group, after - before).astype(np.float64)
    sides = [np.bincount(group, side).astype(np.float64) for side in (before, after)]
    intervals = [(float(low), float(high)) for low, high in (interval(each, sizes) for each in (*sides, sums))]
    return Comparison(
        before=float(before.mean()),
        after=float(after.mean()),
        difference=float((after - before).mean()),
        interval_before=intervals[0],
        interval_after=intervals[1],
        interval=intervals[2],
        upper=float(upper_bound(sums, sizes, np.asarray(worst, dtype=np.float64), level)),
        margin=margin,
    )


def _mixed(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    mixed: NDArray[np.float64] = (1.0 - MIXED) * probabilities.astype(np.float64) + MIXED / probabilities.shape[1]
    return mixed


def _brier(side: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = 1.0 + np.einsum("nk,nk->n", side, side) - 2.0 * side[np.arange(len(labels)), labels]
    return scores


def _log_worst(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest log-loss difference over all labels, for each row."""
    worst: NDArray[np.float64] = np.log((old / new).max(axis=1))
    return worst


def _brier_worst(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest Brier difference over all labels, for each row."""
    squares = np.einsum("nk,nk->n", new, new) - np.einsum("nk,nk->n", old, old)
    worst: NDArray[np.float64] = squares + 2.0 * (old - new).max(axis=1)
    return worst


def _objection(evidence: int, binary: bool, nll: Comparison, brier: Comparison, worst: Potential) -> str | None:
    """Return why the candidate does not pass; None if it passes."""
    if evidence < MIN_ROWS:
        what = "with a row of the rarer class" if binary else "with a row that the active revision gets wrong"
        return f"Not judged: {evidence} groups {what} are too few to see harm; at least {MIN_ROWS} are needed."
    if nll.upper >= nll.margin:
        if nll.difference == nll.upper == brier.difference == brier.upper == 0:
            return (
                "Nothing gained: on every gate row, the candidate and the active revision give the same probabilities."
            )
        goal = f"the tolerated {nll.margin:g}" if nll.margin else "0"
        return (
            f"Not shown to be {'harmless' if nll.margin else 'better'}: log loss changes by {nll.difference:+.4f} "
            f"nats, but its upper bound {nll.upper:+.4f} is not below {goal}.{_stricter(nll, worst)}"
        )
    if brier.upper >= brier.margin:
        return (
            f"Not shown to be harmless: the Brier score changes by {brier.difference:+.4f}, "
            f"but its upper bound {brier.upper:+.4f} is not below the tolerated {brier.margin:g}."
            f"{_stricter(brier, worst)}"
        )
    return None


def _stricter(comparison: Comparison, worst: Potential) -> str:
    """Return why the bound is not below the margin although the 95 % interval is; empty otherwise."""
    if comparison.interval[1] >= comparison.margin:
        return ""
    said = " The 95 % interval is below it, but the bound also counts one group with its worst possible labels:"
    if worst.rows < 2:
        return f"{said} here a group of one row. Label more rows."
    return (
        f"{said} here a group of {worst.rows:,} rows, {worst.rows / worst.of:.1%} of the {worst.of:,} rows read with "
        "it. Label these rows, send `groups` so that unrelated rows are not one group, or narrow the window."
    )


def _approval(nll: Comparison) -> str:
    if nll.upper < 0:
        return f"Better: log loss falls by at least {-nll.upper:.4f} nats."
    return f"No harm: log loss rises by at most {nll.upper:.4f} nats, less than the tolerated {nll.margin:g}."


def _check(
    candidate: NDArray[np.floating[Any]],
    active: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    propensity: NDArray[np.float64] | None,
) -> None:
    _check_sides(candidate, active, "candidate", "active")
    expected = (len(candidate),)
    for name, column in (("labels", labels), ("groups", groups), ("propensity", propensity)):
        if column is not None and column.shape != expected:
            raise InputShapeError("Rows have unequal shapes.", where=name, found=column.shape, expected=expected)
    if len(labels) and not (labels.min() >= 0 and labels.max() < candidate.shape[1]):
        raise InputValueError(
            "A label is not one of the classes.",
            where="labels",
            found=[int(labels.min()), int(labels.max())],
            expected=[0, candidate.shape[1] - 1],
        )
    if propensity is not None and ((propensity < 0) | (propensity > 1)).any():
        raise InputValueError("A propensity is not in [0, 1].", where="propensity", expected="numbers in [0, 1] or NaN")


def _check_sides(
    candidate: NDArray[np.floating[Any]], active: NDArray[np.floating[Any]], where_candidate: str, where_active: str
) -> None:
    if candidate.ndim != 2 or candidate.shape[1] < 2:
        raise InputShapeError("Expected (N, K ≥ 2).", where=where_candidate, found=candidate.shape, expected="(N, K)")
    if active.shape != candidate.shape:
        raise InputShapeError(
            "Both sides need the same rows.", where=where_active, found=active.shape, expected=candidate.shape
        )
    for name, side in ((where_candidate, candidate), (where_active, active)):
        if not ((side >= 0) & (side <= 1)).all():
            raise InputValueError("A probability is not in [0, 1].", where=name, expected="probabilities in [0, 1]")
