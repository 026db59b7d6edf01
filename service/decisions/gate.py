"""The gate: does a candidate calibrator do no harm on rows that neither fit has seen?

Losses of both sides are compared row by row; the verdict rests on one-sided upper bounds for the mean differences. How
the bound is made, its simulated levels and its power are in `docs/statistics.md`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from service.decisions.caps import Cap
from service.errors import InputShapeError, InputValueError, TooFewLabelsError

Mode = Literal["superior", "non_inferior"]

MIXED: Final = 1e-4
"""Share of the uniform distribution mixed into both sides, so that a probability of zero costs a finite loss."""

MIN_ROWS: Final = 25
"""Fewest groups with a row of the rarer class (two classes) or with an error of the active top label (more)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One loss before (active) and after (candidate) on the same rows.

    Attributes:
        before: Mean loss of the active revision.
        after: Mean loss of the candidate.
        difference: after − before; negative is better.
        interval_before: Two-sided 95 % interval of `before`, clustered by group.
        interval_after: Likewise of `after`.
        interval: Likewise of the difference.
        upper: One-sided upper bound of the difference at the gate's level.
        margin: What the upper bound must stay below.
    """

    before: float
    after: float
    difference: float
    interval_before: tuple[float, float]
    interval_after: tuple[float, float]
    interval: tuple[float, float]
    upper: float
    margin: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        intervals = ("interval_before", "interval_after", "interval")
        return asdict(self) | {name: list(getattr(self, name)) for name in intervals}


@dataclass(frozen=True, slots=True)
class GateResult:
    """The gate's verdict, in numbers and in words.

    Attributes:
        mode: "superior" or "non_inferior".
        passed: The verdict.
        difference: Mean difference of the log loss in nats, candidate minus active.
        upper: Its upper bound at level `alpha`.
        alpha: Level of this attempt.
        attempt: How many times these rows have been used, this one included.
        rows: Rows compared, after thinning.
        groups: Groups among them.
        errors: Rows whose active top label is wrong (K > 2), or rows of the rarer class (K = 2).
        excluded: Rows left out: of unknown or zero propensity, or thinned away.
        nll: The log loss before and after.
        brier: The Brier score before and after.
        reason: One plain sentence; a second one where the rows do not stand for all traffic.
        unidentified_share: Share of the gate role's rows, labelled or not, that no label stands for: their propensity
            is zero or unknown, or lower than that of every label that came.
        missing_share: Share of the labels sought for rows of that role that have not come.
        caps: How much the refit changes, and how much it may.
        unattended: Whether it may be activated without a person.
        unattended_reason: Why not; None when it may.
    """

    mode: Mode
    passed: bool
    difference: float
    upper: float
    alpha: float
    attempt: int
    rows: int
    groups: int
    errors: int
    excluded: int
    nll: Comparison
    brier: Comparison
    reason: str
    unidentified_share: float = 0.0
    missing_share: float = 0.0
    caps: tuple[Cap, ...] = ()
    unattended: bool = False
    unattended_reason: str | None = "Not judged yet."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        parts = {"nll": self.nll.to_dict(), "brier": self.brier.to_dict()}
        return asdict(self) | parts | {"caps": [cap.to_dict() for cap in self.caps]}


def compare(
    candidate: NDArray[np.floating[Any]],
    active: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64] | None = None,
    *,
    mode: Mode,
    attempt: int,
    alpha: float = 0.05,
    margin: float = 0.002,
    brier_margin: float = 0.001,
    propensity: NDArray[np.float64] | None = None,
    traffic: tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]] | None = None,
    seed: int = 0,
) -> GateResult:
    """Compare a candidate with the active revision on gate rows.

    Args:
        candidate: The candidate's probabilities, shape (N, K).
        active: The active revision's probabilities on the same rows, shape (N, K).
        labels: True labels in 0 … K − 1, shape (N,).
        groups: Cluster numbers, shape (N,); None when every row is its own group.
        mode: "superior" passes when the upper bound of the log-loss difference is below 0, "non_inferior" when it is
            below `margin`; both need the upper bound of the Brier difference to be below `brier_margin`.
        attempt: How many times these gate rows have been used, this one included; from 1. Attempt k runs at
            alpha/(k(k + 1)).
        alpha: Largest probability over all attempts that harm of the margin or more passes.
        margin: Tolerated log-loss difference in nats.
        brier_margin: Tolerated Brier difference.
        propensity: Probability in [0, 1] with which each label was sought, NaN where unknown; rows of unknown or zero
            propensity are left out, the others thinned to the smallest. None when every label was sought.
        traffic: Probabilities (candidate, active) on any other recent rows, each of shape (M, K). They need no labels:
            what the worst label would do there tells of harm in regions that the gate rows miss.
        seed: Of the draw that thins; fixed before any label is seen.

    Returns:
        The verdict; `unattended.judge` completes it.

    Raises:
        InputShapeError: When shapes disagree or K < 2.
        InputValueError: When a label, probability or propensity is out of range.
        TooFewLabelsError: When fewer than two groups are left.

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
    cluster = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    if cluster.max(initial=0) < 1:
        raise TooFewLabelsError(
            "The gate needs rows of at least two groups with a known propensity above zero.",
            found=len(labels),
            expected=MIN_ROWS,
            remedy="Label more rows, or explore actions whose labels are never sought.",
        )
    level = alpha / (attempt * (attempt + 1))
    new, old = _mixed(candidate), _mixed(active)
    nll_worst, brier_worst = _log_worst(new, old), _brier_worst(new, old)
    elsewhere = (0.0, 0.0)
    if traffic is not None:
        sides = _mixed(traffic[0]), _mixed(traffic[1])
        elsewhere = _log_worst(*sides).max(initial=0.0), _brier_worst(*sides).max(initial=0.0)
    rows = np.arange(len(labels))
    nll_losses = -np.log(new[rows, labels]), -np.log(old[rows, labels])
    brier_losses = _brier(new, labels), _brier(old, labels)
    nll = _compare(*nll_losses, nll_worst, elsewhere[0], cluster, level, 0.0 if mode == "superior" else margin)
    brier = _compare(*brier_losses, brier_worst, elsewhere[1], cluster, level, brier_margin)
    binary = new.shape[1] == 2
    rare = labels == np.bincount(labels, minlength=2).argmin() if binary else labels != active.argmax(axis=1)
    objection = _objection(len(np.unique(cluster[rare])), binary, nll, brier)
    return GateResult(
        mode=mode,
        passed=objection is None,
        difference=nll.difference,
        upper=nll.upper,
        alpha=level,
        attempt=attempt,
        rows=len(labels),
        groups=int(cluster.max()) + 1,
        errors=int(rare.sum()),
        excluded=total - len(labels),
        nll=nll,
        brier=brier,
        reason=objection or _approval(nll),
    )


def even_sample(propensity: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """Return the rows that `compare` compares: an even sample, in which all labels were as likely to be sought.

    Args:
        propensity: Probability in [0, 1] with which each label was sought, NaN where unknown, shape (N,).
        seed: Of the draw; fixed before any label is seen.

    Returns:
        Indices in ascending order: each row of a positive propensity with a chance of the smallest over its own.
    """
    known = np.flatnonzero(propensity > 0)
    uniform = np.random.default_rng((seed, 1)).random(len(propensity))[known]
    kept: NDArray[np.intp] = known[uniform * propensity[known] < propensity[known].min(initial=1.0)]
    return kept


def upper_bound(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], worst: NDArray[np.float64], level: float
) -> NDArray[np.float64]:
    """Return a one-sided upper bound for a mean difference that holds when the harm sits in few rows.

    One pseudo-group, in which every label is the worst possible one, joins the sample; then the t-bound is corrected
    for skewness. Positive skewness (harm in few rows) takes the second-order term that makes the bound nearly exact for
    a Poisson number of equal losses; negative skewness takes Hall's transformation.

    Args:
        sums: Sum of the differences of each of G ≥ 2 groups, shape (…, G).
        sizes: Rows in each group, shape (…, G).
        worst: Largest sum that any group would have if its labels were the worst for the candidate, at least 0,
            shape (…).
        level: Probability in (0, 0.5) that the bound lies below the mean.

    Returns:
        Upper bounds, shape (…).

    References:
        Hall, P. (1992). On the removal of skewness by transformation. JRSS B 54, 221–228.

    Example:
        >>> differences = np.linspace(-0.3, 0.1, 400)
        >>> upper_bound(differences, np.ones(400), np.array(0.2), 0.025).round(4)
        np.float64(-0.0878)
    """
    pseudo = np.mean(sizes, axis=-1, keepdims=True)
    sums = np.concatenate([sums, np.asarray(worst)[..., None]], axis=-1)
    sizes = np.concatenate([sizes, pseudo], axis=-1)
    mean, error, skewness = _moments(sums, sizes)
    quantile = float(stdtrit(sums.shape[-1] - 1, 1.0 - level))
    poisson = quantile + skewness * (quantile**2 - 1.0) / 3.0
    return mean + error * np.where(skewness > 0, poisson, -_hall(-quantile, skewness))


def interval(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], level: float = 0.05
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a two-sided interval for a mean difference, clustered by group and corrected for skewness.

    Args:
        sums: Sum of the differences of each of G ≥ 2 groups, shape (…, G).
        sizes: Rows in each group, shape (…, G).
        level: One minus the coverage.

    Returns:
        Lower and upper ends, each of shape (…).

    References:
        Hall, P. (1992). On the removal of skewness by transformation. JRSS B 54, 221–228.
    """
    mean, error, skewness = _moments(sums, sizes)
    quantile = float(stdtrit(sums.shape[-1] - 1, 1.0 - level / 2))
    return mean - error * _hall(quantile, skewness), mean - error * _hall(-quantile, skewness)


def _moments(
    sums: NDArray[np.float64], sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the ratio estimate of the mean, its standard error, and the skewness of the estimate."""
    groups, rows = sums.shape[-1], sizes.sum(axis=-1)
    mean = sums.sum(axis=-1) / rows
    residuals = sums - mean[..., None] * sizes
    squares = (residuals**2).sum(axis=-1)
    error = np.sqrt(squares * groups / (groups - 1)) / rows
    skewness = np.divide((residuals**3).sum(axis=-1), squares**1.5, out=np.zeros_like(squares), where=squares > 0)
    return mean, error, skewness


def _hall(quantile: float, skewness: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where Hall's transformed t statistic takes a normal-like quantile; `skewness` is that of the estimate."""
    some = np.where(np.abs(skewness) < 1e-9, 1e-9, skewness)
    return 3.0 / some * (np.cbrt(1.0 + some * (quantile - some / 6.0)) - 1.0)


def _compare(
    after: NDArray[np.float64],
    before: NDArray[np.float64],
    worst: NDArray[np.float64],
    elsewhere: float,
    cluster: NDArray[np.intp],
    level: float,
    margin: float,
) -> Comparison:
    sizes = np.bincount(cluster).astype(np.float64)
    sums = np.bincount(cluster, after - before).astype(np.float64)
    potential = np.asarray(max(elsewhere, np.bincount(cluster, np.maximum(worst, 0.0)).max()), dtype=np.float64)
    sides = [np.bincount(cluster, side).astype(np.float64) for side in (before, after)]
    intervals = [(float(low), float(high)) for low, high in (interval(each, sizes) for each in (*sides, sums))]
    return Comparison(
        before=float(before.mean()),
        after=float(after.mean()),
        difference=float((after - before).mean()),
        interval_before=intervals[0],
        interval_after=intervals[1],
        interval=intervals[2],
        upper=float(upper_bound(sums, sizes, potential, level)),
        margin=margin,
    )


def _mixed(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    mixed: NDArray[np.float64] = (1.0 - MIXED) * probabilities.astype(np.float64) + MIXED / probabilities.shape[1]
    return mixed


def _brier(side: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = 1.0 + np.einsum("nk,nk->n", side, side) - 2.0 * side[np.arange(len(labels)), labels]
    return scores


def _log_worst(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest log-loss difference that any label could make, per row."""
    worst: NDArray[np.float64] = np.log((old / new).max(axis=1))
    return worst


def _brier_worst(new: NDArray[np.float64], old: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest Brier difference that any label could make, per row."""
    squares = np.einsum("nk,nk->n", new, new) - np.einsum("nk,nk->n", old, old)
    worst: NDArray[np.float64] = squares + 2.0 * (old - new).max(axis=1)
    return worst


def _objection(evidence: int, binary: bool, nll: Comparison, brier: Comparison) -> str | None:
    """Return why the candidate does not pass, None when it does."""
    if evidence < MIN_ROWS:
        what = "with a row of the rarer class" if binary else "with a row that the active revision gets wrong"
        return f"Not judged: {evidence} groups {what} are too few to see harm; at least {MIN_ROWS} are needed."
    if nll.upper >= nll.margin:
        if nll.difference == nll.upper == brier.difference == brier.upper == 0:
            return "Nothing gained: on every gate row the refit gives the probabilities that are in service."
        goal = f"the tolerated {nll.margin:g}" if nll.margin else "0"
        return (
            f"Not shown to be {'harmless' if nll.margin else 'better'}: log loss changes by {nll.difference:+.4f} "
            f"nats, but its upper bound {nll.upper:+.4f} is not below {goal}."
        )
    if brier.upper >= brier.margin:
        return (
            f"Not shown to be harmless: the Brier score changes by {brier.difference:+.4f}, "
            f"but its upper bound {brier.upper:+.4f} is not below the tolerated {brier.margin:g}."
        )
    return None


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
