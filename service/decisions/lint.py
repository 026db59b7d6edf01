"""Problems of a valid policy: bands that no row reaches, conflicting promises, promises that data can never certify.

The data are fit rows and the number of certify rows. Linting reads no label of a certify row, so it uses no look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from candor.contract.conditions import Condition, Metric
from candor.contract.policies import TOP, Policy
from service.decisions.binomial import labels_needed
from service.decisions.claims import DENOMINATORS
from service.decisions.counting import Counts, Sample
from service.decisions.grid import Grid, make_grid, pairs
from service.decisions.levels import level_of
from service.decisions.per_day import of_rows_per_day
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS
from service.decisions.wrong_labels import WrongLabels


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a policy.

    Attributes:
        level: "problem" if the policy cannot work as written, otherwise "note".
        where: JSON pointer into the policy.
        message: The finding.
        remedy: What to do about it, if anything.
    """

    level: Literal["problem", "note"]
    where: str
    message: str
    remedy: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return asdict(self)


def lint(
    policy: Policy, *, classes: int | None = None, fit: ScoredRows | None = None, certify_rows: int = 0
) -> list[Finding]:
    """Return the findings about a policy.

    Args:
        policy: The policy.
        classes: Number of the model's labels; None without a model.
        fit: Labelled rows that would choose thresholds; None without data.
        certify_rows: Number of rows that would certify.

    Returns:
        Problems, then notes, each in the order of the policy's fields.

    Raises:
        PolicyError: It promises a number of rows per day and does not give the rows of a day.

    Example:
        >>> from service.decisions.policy import parse_policy
        >>> bands = [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]
        >>> policy = parse_policy({"id": "p", "bands": bands, "explore": {"share": 0.01, "actions": ["accept"]}})
        >>> lint(policy)[0].message.partition(",")[0]
        'At least 72 labelled rows at or above the threshold certify this at a first look'
    """
    policy = of_rows_per_day(policy, None)
    findings = [*_unreachable(policy, classes), *_needs(policy), *_unexplored(policy), *_unkept(policy, classes)]
    findings += [*_unsampled(policy), *_needs_of_sets(policy, classes)]
    if fit is not None and policy.segments is not None and not set(fit.segment.tolist()) - {None, ""}:
        findings += _nameless()
    elif fit is not None:
        parts = [None] if policy.segments is None else policy.segments.values
        for segment in parts:
            rows = fit if segment is None else fit.of_segment(segment)
            share = certify_rows * len(rows) / max(len(fit), 1)
            findings += _of_data(policy, rows, share, "" if segment is None else f" in segment {segment!r}")
    return sorted(findings, key=lambda finding: (finding.level == "note", finding.where))


def _unreachable(policy: Policy, classes: int | None) -> Iterator[Finding]:
    """Find fixed thresholds that leave later bands no rows."""
    if classes is None or policy.positive != TOP:
        return
    for index, band in enumerate(policy.bands[:-1]):
        when = band.condition
        if when is not None and when.metric is None and not when.by_amount and when.value <= 1 / classes:
            yield Finding(
                "problem",
                f"/bands/{index}/when/{when.name}",
                f"No row reaches the bands after {band.action!r}: with {classes} labels the largest probability is "
                f"never below {1 / classes:.4g}.",
                f"Raise the threshold above {1 / classes:.4g}.",
            )


def _nameless() -> Iterator[Finding]:
    """Report that the rows have no segment."""
    yield Finding(
        "note",
        "/segments",
        "These rows have no segment, so they certify none: every row gets the fallback until labelled traffic does.",
        "Predict with segments, label, and recalibrate; or add a column `segment` to the rows.",
    )


def _unkept(policy: Policy, classes: int | None) -> Iterator[Finding]:
    """Find a `keep_previous` that few recalibrations can honour."""
    if policy.on_uncertifiable == "keep_previous" and classes is not None and classes > 2:
        yield Finding(
            "note",
            "/on_uncertifiable",
            f"keep_previous requires a recalibration that keeps the order of rows. With {classes} labels, only an "
            "unchanged calibrator does; after any other, rows whose promise cannot be certified go to review.",
            "To keep the thresholds instead of the rows, set on_calibrator_change: keep_threshold.",
        )


def _needs(policy: Policy) -> Iterator[Finding]:
    """Report how many labels each promise needs at the first look, and at the second one at the same rows."""
    for index, when in policy.promises():
        of = "" if policy.segments is None else " of each segment"
        later = ""
        if policy.certify.looks != "once":
            later = f"; at a second look at the same rows, {_needed(policy, index, _level(policy, 2) / BAND_POINTS)}"
        yield Finding(
            "note",
            _where(index, when),
            f"At least {_needed(policy, index, _level(policy))} {_labels(when)}{of} certify this at a first look, if "
            f"none of them is an error{later}.",
        )


def _needs_of_sets(policy: Policy, classes: int | None) -> Iterator[Finding]:
    """Report how many labels prediction sets need at the first look."""
    wanted = policy.set
    if wanted is None or (wanted.per_class and classes is None):
        return
    each = " of each class" if wanted.per_class else ""
    each += "" if policy.segments is None else " in each segment"
    level = _level(policy) / (classes if wanted.per_class and classes is not None else 1)
    needed = labels_needed(0, 0, 1.0 - wanted.coverage, level)
    yield Finding("note", "/set", f"At least {needed} labelled rows{each} certify the sets at a first look.")


def _unsampled(policy: Policy) -> Iterator[Finding]:
    """Find a review queue whose labels all come from the top of its order."""
    if policy.review is not None and policy.review.max_per_day is not None and not policy.review.random_share:
        yield Finding(
            "problem",
            "/review/random_share",
            "Labels are sought for reviews of the highest priority only: nothing is learned about the others, and "
            "estimates from the labels are biased.",
            "Draw some at random: review.random_share: 0.1",
        )


def _unexplored(policy: Policy) -> Iterator[Finding]:
    """Find actions whose labels are never sought."""
    blind = [band.action for band in policy.bands if not policy.propensity(band.action)]
    if not blind:
        return
    names = " and ".join(repr(action) for action in blind)
    remedy = f"Explore a share of {'it' if len(blind) == 1 else 'them'}: explore: {{share: 0.01, actions: {blind}}}"
    needing = [
        (index, when)
        for index, when in policy.promises()
        if when.metric in ("recall", "false_positive_rate")
        or (when.metric != "flag_rate" and any(band.action in blind for band in policy.bands[: index + 1]))
    ]
    if not needing:
        yield Finding(
            "note", "/explore", f"Labels are never sought for {names}: nothing is learned about such rows.", remedy
        )
    for index, when in needing:
        yield Finding(
            "problem",
            _where(index, when),
            f"Labels are never sought for {names}, and rows without a label count as errors: traffic that this policy "
            "decides cannot certify the promise.",
            remedy.replace("'", ""),
        )


def _of_data(policy: Policy, fit: ScoredRows, certify_rows: float, of: str) -> Iterator[Finding]:
    """Find promises that these data cannot certify, and bands that get no row."""
    grid = make_grid(fit, fit)
    if not len(grid.keys):
        yield Finding("problem", "/bands", f"No fit rows{of} to choose a threshold from.", "Label some.")
        return
    sample = Sample(fit, grid.cells(fit), grid.floor, 0)
    scale = certify_rows / max(sample.size, 1)
    reached: list[tuple[int, Condition, int]] = []
    for index, band in enumerate(policy.bands[:-1]):
        when = band.condition
        if when is None or when.by_amount:
            continue
        if when.metric is None:
            place: int | None = _last_at_or_above(grid, when.value)
        else:
            counts = sample.count(when.metric)
            yield from _never(policy, index, when, counts, scale, of)
            place = furthest(policy.tolerance(index), when.metric, counts)
        if place is None:
            continue
        yield from _in_the_way(policy, index, when, place, reached, grid, of)
        reached.append((index, when, place))


def _never(policy: Policy, index: int, when: Condition, counts: Counts, scale: float, of: str) -> Iterator[Finding]:
    """Find a promise that no threshold keeps on the fit rows, or that too few certify rows can show."""
    tolerance = policy.tolerance(index)
    where = _where(index, when)
    known = counts.known > 0
    if not known.any():
        yield Finding("problem", where, f"The fit rows{of} contain no {_labels(when)}.", "Label some.")
        return
    rates = np.where(known, counts.known_errors / np.maximum(counts.known, 1), 1.0)
    needed = _needed(policy, index, _level(policy))
    if rates.min() > tolerance:
        best = 1 - rates.min() if when.at_least else rates.min()
        yield Finding(
            "problem",
            where,
            f"No threshold keeps {when.bound:g} on the fit rows{of}: the best is {best:.4g}. More labels will not "
            "help.",
            "Promise less, or improve the model.",
        )
        return
    expected = int(counts.known[rates <= tolerance].max() * scale)
    if expected < needed:
        yield Finding(
            "problem",
            where,
            f"These data can never certify this{of}: they contain about {expected} {_labels(when)}, and at least "
            f"{needed} are needed, if none of them is an error.",
            f"Collect at least {needed - expected} more, promise less, or use fewer promises.",
        )


def _in_the_way(
    policy: Policy,
    index: int,
    when: Condition,
    place: int,
    reached: list[tuple[int, Condition, int]],
    grid: Grid,
    of: str,
) -> Iterator[Finding]:
    """Find a band whose rows an earlier band takes, because its threshold is lower."""
    for earlier, other, further in reached:
        if place <= further and grid.volume[place] <= grid.volume[further]:
            yield Finding(
                "problem",
                _where(index, when),
                f"No row reaches {policy.bands[index].action!r}{of}: on the fit rows {other.name} of {other.value:g} "
                f"lets {policy.bands[earlier].action!r} take the top {grid.volume[further]:.1%} of the rows, and "
                f"{when.name} of {when.value:g} ends at {grid.volume[place]:.1%}.",
                f"Loosen {when.name}, tighten {other.name}, or leave the band out.",
            )
            return


def furthest(tolerance: float, metric: Metric, counts: Counts) -> int | None:
    """Return the best candidate if the fit rows were the population; None if no candidate keeps the promise."""
    keeps = (counts.known > 0) & (counts.known_errors <= tolerance * counts.known)
    places = np.flatnonzero(keeps)
    if not len(places):
        return None
    return int(places[0] if metric == "recall" else places[-1])


def _last_at_or_above(grid: Grid, probability: float) -> int | None:
    """Return the loosest candidate above a fixed threshold; None if no candidate is above it."""
    places = np.flatnonzero(pairs(grid.keys)[0] >= np.float32(probability))
    return int(places[-1]) if len(places) else None


def _needed(policy: Policy, index: int, level: float) -> int:
    """Return the fewest labels that show a promise at a level."""
    when, wrong = policy.condition(index), WrongLabels(policy.certify.wrong_labels or 0.0)
    assert when is not None and when.metric is not None  # noqa: S101, PT018 — it is a promise
    return wrong.needed(when.metric, 0, 0, policy.tolerance(index), level)


def _level(policy: Policy, look: int = 1) -> float:
    """Return the part of delta that a promise has at a look."""
    share = policy.certify.for_looks / policy.claims
    return share if policy.certify.looks == "once" else level_of(share, look)


def _labels(when: Condition) -> str:
    return DENOMINATORS[when.metric][1] if when.metric is not None else ""


def _where(index: int, when: Condition) -> str:
    return f"/bands/{index}/when/{when.name}"
