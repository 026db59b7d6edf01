"""Thresholds that stay when the calibrator changes: `on_calibrator_change: keep_threshold`.

A new calibrator puts other rows above the same number, so the old certificates say nothing about them. The kept
threshold is one hypothesis, fixed before the rows that test it were seen: the first look at these rows tests it at the
whole level. It is not tested on rows already shown, which may have influenced its choice.
"""

from __future__ import annotations

import numpy as np

from candor.contract.certificates import SolvedBand, Threshold
from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.binomial import p_value
from service.decisions.claims import Outcome, Shown, absent_rows, certificate, objection
from service.decisions.clustered import Clustered, clustered
from service.decisions.counting import Sample
from service.decisions.grid import Grid, grid_at
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy
from service.decisions.wrong_labels import WrongLabels

_CHANGED = "partition_changed: the calibrator changed and the threshold stayed"


def kept_bands(solved: SolvedPolicy | None, segment: str | None = None) -> tuple[SolvedBand, ...] | None:
    """Return the bands whose thresholds stay; None if thresholds do not stay, or do not decide.

    Args:
        solved: The policy in force; None if thresholds do not stay.
        segment: The segment; None for a policy without segments.
    """
    part = solved if solved is None or segment is None else solved.parts.get(segment)
    return None if part is None or part.review_all else part.bands


def retest(
    policy: Policy, kept: tuple[SolvedBand, ...], fit: ScoredRows, certify: ScoredRows, shown: Shown, seed: int
) -> tuple[SolvedBand, ...]:
    """Test each threshold that stays as one hypothesis.

    Args:
        policy: The policy.
        kept: Its bands with the thresholds that stay.
        fit: Rows that show how often labels are sought at or above each threshold.
        certify: Rows that test.
        shown: Which rows test.
        seed: Seed of the draws; fixed before any label is seen.

    Returns:
        The bands. A threshold that is not certified stays with an invalid certificate, or is removed by `on_invalid:
        review_all`.
    """
    cuts = [band.threshold for band in kept if band.threshold is not None]
    grid = grid_at(cuts, fit, certify)
    sample = clustered(policy, grid, fit, certify, seed) or Sample(certify, grid.cells(certify), grid.floor, seed)
    missing, absent = certify.missing_share(), absent_rows(fit, certify, shown)
    share = policy.certify.delta / policy.claims
    bands = []
    for index, band in enumerate(kept):
        when = policy.condition(index)
        if when is None or when.metric is None or band.threshold is None:
            bands.append(band)
            continue
        outcome = _test(sample, when.metric, grid, band.threshold, policy, index, share, shown)
        reason = objection(policy, index, when, shown, missing, absent, outcome, certify)
        if not shown.fresh:
            reason = f"{_CHANGED}; only rows that were never shown can test it, and these were (look {shown.look})"
        elif reason is not None:
            reason = f"{_CHANGED}; {reason}"
        stays = reason is None or policy.on_invalid == "keep"
        claim = certificate(when, when.metric, outcome, shown, reason, policy.certify.unit)
        bands.append(SolvedBand(action=band.action, threshold=band.threshold if stays else None, certificate=claim))
    return tuple(bands)


def _test(
    sample: Sample | Clustered,
    metric: Metric,
    grid: Grid,
    threshold: Threshold,
    policy: Policy,
    index: int,
    share: float,
    shown: Shown,
) -> Outcome:
    once = policy.certify.looks == "once"
    level = share / shown.divisor(policy.certify)
    at, tolerance = grid.index(threshold), policy.tolerance(index)
    if isinstance(sample, Clustered):
        shows = shown.fresh and bool(sample.test(metric, np.array([at]), tolerance, level)[0])
        return sample.outcome(metric, grid, at, tolerance, level, level, succeeded=shows, alone=True)
    counts = sample.count(metric)
    n, errors = int(counts.n[at]), int(counts.errors[at])
    rows, counted = shown.wrong.worst(metric, counts.n[at : at + 1], counts.errors[at : at + 1], tolerance)
    succeeded = shown.fresh and float(p_value(counted, rows, tolerance)[0]) <= level
    # No number of further labels helps on rows already shown: it takes a first look at other rows.
    needed = shown.wrong.needed(metric, n, errors, tolerance, level)
    if not shown.fresh:
        afresh = WrongLabels(shown.wrong.share)
        needed = afresh.needed(metric, 0, 0, tolerance, share if once else share / 2)
    return Outcome(level, threshold, succeeded, n, errors, n - int(counts.known[at]), needed or None)
