"""Thresholds that stay while the calibrator changes: `on_calibrator_change: keep_threshold`.

Another calibrator puts other rows above the same number, so that what was certified of the old set says nothing of the
new one. The kept threshold is then one hypothesis, fixed before the rows that test it were seen: their first look tests
it at the whole level. On rows already shown it may have been chosen with an answer in mind, and is not tested.
"""

from __future__ import annotations

from service.decisions.binomial import labels_needed, p_value
from service.decisions.claims import Outcome, Shown, absent_rows, certificate, objection
from service.decisions.conditions import Metric
from service.decisions.counting import Sample
from service.decisions.grid import grid_at
from service.decisions.policy import Policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedBand, SolvedPolicy
from service.revision import Threshold

_CHANGED = "partition_changed: the calibrator has changed and the threshold has stayed"


def kept_bands(solved: SolvedPolicy | None, segment: str | None = None) -> tuple[SolvedBand, ...] | None:
    """Return the bands whose thresholds stay: those of a part that decides; None where nothing does, or nothing stays.

    Args:
        solved: The policy as it is in force; None where thresholds do not stay.
        segment: The part; None for a policy without segments.
    """
    part = solved if solved is None or segment is None else solved.parts.get(segment)
    return None if part is None or part.review_all else part.bands


def retest(
    policy: Policy, kept: tuple[SolvedBand, ...], fit: ScoredRows, certify: ScoredRows, shown: Shown, seed: int
) -> tuple[SolvedBand, ...]:
    """Test thresholds that stay, each as one hypothesis.

    Args:
        policy: What was promised.
        kept: Its bands with the thresholds that stay.
        fit: Rows that say how often labels are sought at or above each.
        certify: Rows that test.
        shown: Which rows these are.
        seed: Of the draws; fixed before any label is seen.

    Returns:
        The bands. What is not certified stays without a certificate, or goes under `on_invalid: review_all`.
    """
    cuts = [band.threshold for band in kept if band.threshold is not None]
    grid = grid_at(cuts, fit, certify)
    sample = Sample(certify, grid.cells(certify), grid.floor, seed)
    missing, absent = certify.missing_share(), absent_rows(fit, certify, shown)
    share = policy.certify.delta / policy.claims
    bands = []
    for index, band in enumerate(kept):
        when = policy.bands[index].when
        if when is None or when.metric is None or band.threshold is None:
            bands.append(band)
            continue
        outcome = _test(sample, when.metric, grid.index(band.threshold), band.threshold, policy, index, share, shown)
        reason = objection(policy, index, when, shown, missing, absent, outcome)
        if not shown.fresh:
            reason = f"{_CHANGED}; only rows that were never shown test it, and these have been (look {shown.look})"
        elif reason is not None:
            reason = f"{_CHANGED}; {reason}"
        stays = reason is None or policy.on_invalid == "keep"
        claim = certificate(when, when.metric, outcome, shown, reason)
        bands.append(SolvedBand(band.action, band.threshold if stays else None, claim))
    return tuple(bands)


def _test(
    sample: Sample,
    metric: Metric,
    at: int,
    threshold: Threshold,
    policy: Policy,
    index: int,
    share: float,
    shown: Shown,
) -> Outcome:
    once = policy.certify.looks == "once"
    level = share if once else share / (shown.look * (shown.look + 1))
    counts = sample.count(metric)
    n, errors = int(counts.n[at]), int(counts.errors[at])
    tolerance = policy.tolerance(index)
    succeeded = shown.fresh and float(p_value(counts.errors[at], counts.n[at], tolerance)) <= level
    # On rows already shown no number of further labels would do: a first look at others has to.
    needed = labels_needed(n, errors, tolerance, level)
    if not shown.fresh:
        needed = labels_needed(0, 0, tolerance, share if once else share / 2)
    return Outcome(level, threshold, succeeded, n, errors, n - int(counts.known[at]), needed or None)
