"""Solve a policy's thresholds on labelled rows, and certify what it promises about them.

`docs/explanation/statistics.md` says what is claimed, under which assumptions, and why it holds. In short: candidate
thresholds and the order in which they are tested come from fit rows alone, the tests are exact binomial tests on
certify rows, and delta is shared among bands, segments and looks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from candor.contract.certificates import Basis, SolvedBand, SolvedSegment, Threshold
from candor.contract.conditions import Metric
from candor.contract.policies import Certify, Policy
from service.decisions.binomial import p_value
from service.decisions.claims import Outcome, Shown, absent_rows, certificate, objection, refusal
from service.decisions.clustered import Clustered, clustered
from service.decisions.counting import Sample
from service.decisions.grid import Grid, make_grid
from service.decisions.kept import kept_bands, retest
from service.decisions.per_day import of_rows_per_day
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS, band, choose_in_band, choose_start, walk
from service.decisions.solved import SolvedPolicy
from service.decisions.standing import Standing
from service.decisions.wrong_labels import WrongLabels

# Short calls into NumPy give Python's lock back and take it again before a thread that waits for it has woken: the
# event loop of a service that solves many segments would wait for all of them.
_TURN_S: Final = 1e-5


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
    keep: SolvedPolicy | None = None,
    fresh: bool | None = None,
    void: Mapping[Metric, str] | None = None,
    windows: float = 1.0,
    spent: int = 1,
    stays: Standing | None = None,
    rows_per_day: int | None = None,
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
        keep: The same policy, solved with another calibrator. Where its thresholds decide they stay, each tested again
            as one hypothesis.
        fresh: Whether nobody has been shown any of the certify rows so far. None: on a first look. At a later one it
            may be so where several policies are solved at once: each has its share of delta, and no answer was seen.
        void: Metrics that these rows cannot certify, and why.
        windows: Number of windows that this one counts as the best of, from `windows.windows`; 1 if a rule chose it.
        spent: Number of this look among those of its year, at any rows of this kind; from 1.
        stays: Bands that are certified already, from `standing.standing`; they are not tested.
        rows_per_day: Rows of a busy day in the traffic, for a policy that needs and lacks them; None if unknown.

    Returns:
        The solved policy; under `review_all` when a promise could not be certified.

    Raises:
        PolicyError: When a promise cannot be certified and the policy says "fail"; `where` names the band. When the
            rows of a day are needed and unknown.

    Example:
        >>> from service.decisions.policy import parse_policy
        >>> policy = parse_policy(
        ...     {
        ...         "id": "auto-read",
        ...         "bands": [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}],
        ...     }
        ... )
        >>> p = np.linspace(0.5, 1.0, 300, dtype=np.float32)
        >>> rows = ScoredRows(probability=p, score=p, positive=p > 0.6)
        >>> solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="reference")
        >>> solved.review_all, solved.bands[0].threshold.probability < 0.6
        (False, True)
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1, found {look}")
    shown = Shown(
        look,
        basis,
        window,
        fresh=look == 1 if fresh is None else fresh,
        void={str(metric): why for metric, why in (void or {}).items()},
        windows=windows,
        spent=spent,
        wrong=WrongLabels.among(policy.certify.wrong_labels or 0.0, certify),
    )
    if policy.segments is None:
        bands = _solve_part(
            of_rows_per_day(policy, rows_per_day), fit, certify, shown, seed, kept_bands(keep), stays or {}
        )
        return SolvedPolicy(policy, version, bands, _uncertified(bands))
    segments, among = {}, shown.among(policy, certify.segment)
    for value in policy.segments.values:
        time.sleep(_TURN_S)
        of_it = replace(among, segment=value)
        rows = fit.of_segment(value), certify.of_segment(value)
        bands = _solve_part(policy, *rows, of_it, seed, kept_bands(keep, value), stays or {})
        segments[value] = SolvedSegment(bands=bands, certified=not _uncertified(bands))
    nothing = tuple(SolvedBand(action=band.action, threshold=None, certificate=None) for band in policy.bands)
    return SolvedPolicy(policy, version, nothing, review_all=True, segments=segments)


def _uncertified(bands: tuple[SolvedBand, ...]) -> bool:
    """Return whether a promise is not certified, and its threshold does not stay all the same."""
    return any(not band.stands and band.threshold is None for band in bands)


def _solve_part(
    policy: Policy,
    fit: ScoredRows,
    certify: ScoredRows,
    shown: Shown,
    seed: int,
    kept: tuple[SolvedBand, ...] | None,
    stays: Standing,
) -> tuple[SolvedBand, ...]:
    """Solve the bands on the rows of one segment, or on all rows."""
    if kept is not None:
        return retest(policy, kept, fit, certify, shown, seed)
    grid: Grid | None = None
    bands: list[SolvedBand] = []
    for index, wanted in enumerate(policy.bands):
        when = policy.condition(index)
        if (shown.segment, index) in stays:
            bands.append(stays[shown.segment, index])
            continue
        if when is None or when.metric is None:
            fixed = None if when is None or when.by_amount else Threshold.at(float(np.float32(when.value)), -math.inf)
            bands.append(SolvedBand(action=wanted.action, threshold=fixed, certificate=None))
            continue
        if grid is None:
            grid = make_grid(fit, certify)
            sample = Sample(certify, grid.cells(certify), grid.floor, seed)
            groups = clustered(policy, grid, fit, certify, seed)
            missing = certify.missing_share()
            absent = absent_rows(fit, certify, shown)
        share = policy.certify.for_looks / policy.claims
        outcome = _test(grid, groups or sample, when.metric, policy.certify, policy.tolerance(index), share, shown)
        reason = objection(policy, index, when, shown, missing, absent, outcome, certify)
        if reason is not None and policy.on_uncertifiable == "fail":
            raise refusal(wanted.action, index, when, outcome, reason, shown.segment)
        bands.append(
            SolvedBand(
                action=wanted.action,
                threshold=outcome.threshold if reason is None else None,
                certificate=certificate(when, when.metric, outcome, shown, reason, policy.certify.unit),
            )
        )
    return tuple(bands)


def _test(
    grid: Grid,
    sample: Sample | Clustered,
    metric: Metric,
    certify: Certify,
    tolerance: float,
    share: float,
    shown: Shown,
) -> Outcome:
    """Test one promise: along a fixed sequence on rows not shown before, in a simultaneous band on others.

    Rows of a chosen window count as shown: the caller who chose it may have seen them.
    """
    once = certify.looks == "once"
    share = share / shown.divisor(certify)
    points = len(grid.keys)
    if not points:
        return Outcome(share, None, False, 0, 0, 0, shown.wrong.needed(metric, 0, 0, tolerance, share))
    # From the safest candidate to the boldest: loosest first for a recall.
    order = np.arange(points)[::-1] if metric == "recall" else np.arange(points)
    if isinstance(sample, Clustered):
        first = shown.unseen(certify)
        test, level = (sample.walk, share) if first else (sample.band, share / BAND_POINTS)
        closest, chosen = test(metric, order, tolerance, share)
        at = int(order[chosen if chosen >= 0 else closest])
        return sample.outcome(metric, grid, at, tolerance, level, share, succeeded=chosen >= 0, alone=first)
    counts = sample.count(metric)
    n, errors = shown.wrong.worst(metric, counts.n[order], counts.errors[order], tolerance)
    if shown.unseen(certify):
        level = share
        closest = _start(grid, sample, metric, tolerance, level, shown.wrong)
        chosen = int(walk(n, errors, closest, tolerance, level))
    else:
        level = share / BAND_POINTS
        chosen = int(choose_in_band(n, errors, tolerance, share))
        tested = band(points)
        closest = int(tested[p_value(errors[tested], n[tested], tolerance).argmin()])
    at = int(order[chosen if chosen >= 0 else closest])
    found = int(counts.n[at]), int(counts.errors[at])
    if once and shown.look > 1:  # only other rows can show it
        needed = WrongLabels(shown.wrong.share).needed(metric, 0, 0, tolerance, level)
    else:
        needed = shown.wrong.needed(metric, *found, tolerance, level)
    unlabelled = found[0] - int(counts.known[at])
    return Outcome(share, grid.threshold(at), chosen >= 0, *found, unlabelled, needed or None)


def _start(grid: Grid, sample: Sample, metric: Metric, tolerance: float, level: float, wrong: WrongLabels) -> int:
    """Return where the sequence starts: where power is largest, or at the safe end where the metric is monotone."""
    if metric not in ("precision", "selective_risk"):
        return 0
    expected = grid.volume * grid.floor * sample.size
    return choose_start(expected, grid.errors, grid.rows, tolerance, level, wrong.count)
