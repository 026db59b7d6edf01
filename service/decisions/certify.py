"""Solve a policy's thresholds on labelled rows, and certify what it promises about them.

What is claimed, under which assumption and why it holds is in `docs/statistics.md`; in short: candidate thresholds and
the order in which they are tested come from fit rows alone, the tests are exact binomial tests on certify rows, and
delta is shared among bands, segments and looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from service.decisions.binomial import labels_needed, p_value
from service.decisions.conditions import Condition, Metric
from service.decisions.counting import Counts, Sample
from service.decisions.decide import SolvedBand, SolvedPolicy, SolvedSegment
from service.decisions.grid import Grid, make_grid
from service.decisions.policy import Certify, Policy
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS, band, choose_in_band, choose_start, walk
from service.errors import PolicyError
from service.revision import Basis, Certificate, Threshold

MAX_MISSING_SHARE: Final = 0.05
"""Largest share of sought labels that have not come under which anything is certified from labels."""

DENOMINATORS: Final[dict[Metric, tuple[str, str]]] = {
    "precision": ("rows", "labelled rows at or above the threshold"),
    "selective_risk": ("rows", "labelled rows at or above the threshold"),
    "recall": ("positives", "labelled positives"),
    "false_positive_rate": ("negatives", "labelled negatives"),
    "flag_rate": ("rows", "rows"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """Which rows certify, for the certificates.

    Attributes:
        look: How many times they have been looked at, this one included; from 1.
        basis: The bundle's reference rows, or traffic.
        window: Their first and last time (ISO 8601).
        segment: The part of the traffic that they are of; None for all of it.
    """

    look: int
    basis: Basis
    window: tuple[str, str] | None = None
    segment: str | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the tests of one promise gave."""

    share: float
    threshold: Threshold | None
    succeeded: bool
    n: int
    errors: int
    unlabelled: int
    needed: int | None


def solve(
    policy: Policy,
    *,
    version: int,
    fit: ScoredRows,
    certify: ScoredRows,
    look: int,
    basis: Basis,
    window: tuple[str, str] | None = None,
    seed: int = 0,
) -> SolvedPolicy:
    """Find and certify the thresholds of a policy.

    Args:
        policy: What must hold.
        version: Version of the policy.
        fit: Rows that choose candidates and the order of tests.
        certify: Rows that test; none of their groups is among the fit rows. When more than 5 % of the labels that were
            sought among them have not come, nothing is certified from labels.
        look: How many times these certify rows have been looked at, this one included; from 1.
        basis: Which rows these are, for the certificates.
        window: Their first and last time (ISO 8601), for the certificates.
        seed: Of the draws that choose one row per group and thin by propensity; fixed before any label is seen.

    Returns:
        The solved policy; under `review_all` when a promise could not be certified.

    Raises:
        PolicyError: When a promise cannot be certified and the policy says "fail"; `where` names the band.

    Example:
        >>> policy = Policy.from_dict(
        ...     {
        ...         "id": "auto-read",
        ...         "bands": [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}],
        ...     }
        ... )
        >>> p = np.linspace(0.5, 1.0, 300, dtype=np.float32)
        >>> rows = ScoredRows(p, p, p > 0.6)
        >>> solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="reference")
        >>> solved.review_all, solved.bands[0].threshold.probability < 0.6
        (False, True)
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1, found {look}")
    shown = Shown(look, basis, window)
    if policy.segments is None:
        bands = _solve_part(policy, fit, certify, shown, seed)
        return SolvedPolicy(policy, version, bands, _uncertified(bands))
    segments = {}
    for value in policy.segments.values:
        of_it = replace(shown, segment=value)
        bands = _solve_part(policy, fit.of_segment(value), certify.of_segment(value), of_it, seed)
        segments[value] = SolvedSegment(bands, certified=not _uncertified(bands))
    nothing = tuple(SolvedBand(band.action, None, None) for band in policy.bands)
    return SolvedPolicy(policy, version, nothing, review_all=True, segments=segments)


def _uncertified(bands: tuple[SolvedBand, ...]) -> bool:
    return any(band.certificate is not None and not band.certificate.valid for band in bands)


def _solve_part(
    policy: Policy, fit: ScoredRows, certify: ScoredRows, shown: Shown, seed: int
) -> tuple[SolvedBand, ...]:
    """Solve the bands on the rows of one segment, or on all rows."""
    grid: Grid | None = None
    bands: list[SolvedBand] = []
    for index, wanted in enumerate(policy.bands):
        when = wanted.when
        if when is None or when.metric is None:
            fixed = None if when is None else Threshold(float(np.float32(when.value)), -math.inf)
            bands.append(SolvedBand(wanted.action, fixed, None))
            continue
        if grid is None:
            grid = make_grid(fit, certify)
            sample = Sample(certify, grid.cells(certify), grid.floor, seed)
            missing = certify.missing_share()
            absent = _absent(fit, certify, shown)
        share = policy.certify.delta / policy.claims
        outcome = _test(grid, sample, when.metric, policy.certify, policy.tolerance(index), share, shown.look)
        reason = _objection(policy, index, when, shown.look, missing, absent, outcome)
        if reason is not None and policy.on_uncertifiable == "fail":
            raise _refusal(wanted.action, index, when, outcome, reason, shown.segment)
        bands.append(
            SolvedBand(
                wanted.action,
                outcome.threshold if reason is None else None,
                _certificate(when, when.metric, outcome, shown, reason),
            )
        )
    return tuple(bands)


def _test(
    grid: Grid, sample: Sample, metric: Metric, certify: Certify, tolerance: float, share: float, look: int
) -> _Outcome:
    """Test one promise: along a fixed sequence on rows not shown before, in a simultaneous band on others."""
    once = certify.looks == "once"
    share = share / (1 if once else look * (look + 1))
    points = len(grid.keys)
    if not points:
        return _Outcome(share, None, False, 0, 0, 0, labels_needed(0, 0, tolerance, share))
    counts = sample.count(metric)
    # From the candidate that keeps the promise most surely to the one that risks it most: loosest first for a recall.
    order = np.arange(points)[::-1] if metric == "recall" else np.arange(points)
    n, errors = counts.n[order], counts.errors[order]
    if once or look == 1:
        level = share
        closest = _start(grid, sample, metric, tolerance, level)
        chosen = int(walk(n, errors, closest, tolerance, level))
    else:
        level = share / BAND_POINTS
        chosen = int(choose_in_band(n, errors, tolerance, share))
        tested = band(points)
        closest = int(tested[p_value(errors[tested], n[tested], tolerance).argmin()])
    at = int(order[chosen if chosen >= 0 else closest])
    return _outcome(grid, counts, at, chosen >= 0, share, tolerance, level, afresh=once and look > 1)


def _start(grid: Grid, sample: Sample, metric: Metric, tolerance: float, level: float) -> int:
    """Return where the sequence starts: where power is largest, or at the safe end where the metric is monotone."""
    if metric not in ("precision", "selective_risk"):
        return 0
    return choose_start(grid.volume * grid.floor * sample.size, grid.errors, grid.rows, tolerance, level)


def _outcome(
    grid: Grid, counts: Counts, at: int, succeeded: bool, share: float, tolerance: float, level: float, *, afresh: bool
) -> _Outcome:
    n, errors = int(counts.n[at]), int(counts.errors[at])
    needed = labels_needed(0, 0, tolerance, level) if afresh else labels_needed(n, errors, tolerance, level)
    unlabelled = n - int(counts.known[at])
    return _Outcome(share, grid.threshold(at), succeeded, n, errors, unlabelled, needed or None)


def _absent(fit: ScoredRows, certify: ScoredRows, shown: Shown) -> str | None:
    """Return why there is nothing to solve with, None when there is."""
    if not len(fit) and shown.segment is not None and shown.basis == "reference":
        return "the bundle's reference rows are of no segment"
    among = "the bundle's reference rows" if shown.basis == "reference" else "the rows of the traffic"
    if not len(fit):
        return f"there are no fit rows among {among} to choose a threshold from"
    return None if len(certify) else f"there are no certify rows among {among}"


def _objection(
    policy: Policy, index: int, when: Condition, look: int, missing: float, absent: str | None, outcome: _Outcome
) -> str | None:
    """Return why the promise is not certified, None when it is."""
    metric = when.metric
    if policy.certify.looks == "once" and look > 1:
        return f"looks is once, and these rows have been shown before (look {look}): only fresh rows certify"
    if missing > MAX_MISSING_SHARE and metric != "flag_rate":
        return (
            f"{missing:.1%} of the labels that were sought have not come; above {MAX_MISSING_SHARE:.0%} nothing is "
            "certified"
        )
    if outcome.succeeded or metric is None:
        return None
    denominator, labels = DENOMINATORS[metric]
    if absent is not None:
        return f"{absent}; at least {outcome.needed} {labels} are needed, if none of them is an error"
    unknown = f" ({outcome.unlabelled} of them for want of a label)" if outcome.unlabelled else ""
    tolerance = policy.tolerance(index)
    explored = "" if tolerance == when.tolerance else f" ({tolerance:.4g} beside what is explored)"
    return (
        f"{outcome.errors} errors{unknown} among {outcome.n} {denominator} do not show {_promise(when)}{explored}; at "
        f"least {outcome.needed} more {labels} are needed, if none of them is an error"
        + (", and more than that when they are added to rows already shown" if outcome.n else "")
    )


def _promise(when: Condition) -> str:
    return f"a {(when.metric or '').replace('_', ' ')} of {when.kind.direction.replace('_', ' ')} {when.value:g}"


def _certificate(when: Condition, metric: Metric, outcome: _Outcome, shown: Shown, reason: str | None) -> Certificate:
    least = when.kind.direction == "at_least"
    return Certificate(
        metric=metric,
        at_least=when.value if least else None,
        at_most=None if least else when.value,
        delta=outcome.share,
        n=outcome.n,
        errors=outcome.errors,
        looks=shown.look,
        basis=shown.basis,
        window=shown.window,
        valid=reason is None,
        reason=reason,
        needed=outcome.needed,
        segment=shown.segment,
    )


def _refusal(
    action: str, index: int, when: Condition, outcome: _Outcome, reason: str, segment: str | None
) -> PolicyError:
    of = "" if segment is None else f" for the segment {segment!r}"
    return PolicyError(
        f"The band {action!r} cannot be certified{of}: {reason}",
        where=f"/bands/{index}/when/{when.name}",
        found={"n": outcome.n, "errors": outcome.errors},
        expected=_promise(when).removeprefix("a "),
        remedy="Collect more labels, promise less, or let on_uncertifiable be review_all.",
    )
