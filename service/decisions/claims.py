"""Certificates from test outcomes: whether the promise is shown, or why not and how many labels are missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import Basis, Certificate, Threshold
from candor.contract.conditions import Condition, Metric, Per
from candor.contract.policies import Certify, Policy
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS
from service.decisions.windows import windows
from service.decisions.wrong_labels import ALL_RIGHT, WrongLabels
from service.errors import PolicyError
from service.places import in_body
from service.times import DAY_US, iso

MAX_MISSING_SHARE: Final = 0.05
"""Largest share of missing labels at which labels can certify."""

MAX_WITHOUT_AMOUNT: Final = 0.05
"""Largest share of rows without an amount at which amounts can be certified, whatever stands for a missing one."""

DENOMINATORS: Final[dict[Metric, tuple[str, str]]] = {
    "precision": ("rows", "labelled rows at or above the threshold"),
    "selective_risk": ("rows", "labelled rows at or above the threshold"),
    "recall": ("positives", "labelled positives"),
    "false_positive_rate": ("negatives", "labelled negatives"),
    "flag_rate": ("rows", "rows"),
}


_CHOSEN: Final = "`since` and `until`"
_DIVIDED: Final = (
    f". The request chose the window, which divides delta by {{:.3g}}: leave out {_CHOSEN}, or use whole UTC days"
)

_YEAR: Final = (
    ". Delta is shared among the looks of a year, and this is number {}: recalibrate less often, or use looks: anytime"
)

_AMONG: Final[Mapping[Basis, str]] = {
    "reference": "the bundle's reference rows",
    "traffic": "the traffic rows",
    "uploaded": "the uploaded rows",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows that certify.

    Attributes:
        look: Number of looks at them, including this one; from 1.
        basis: Source of the rows.
        window: Their first and last time (ISO 8601).
        segment: Segment that they belong to; None for all traffic.
        fresh: Whether none of them was shown before.
        void: Metrics that these rows cannot certify, and why; "set" stands for prediction sets.
        windows: Number of windows that this one counts as the best of, see `windows`; 1 if a rule chose it.
        spent: Number of this look among those of its year, at any rows of this kind.
        wrong: Labels of all of them, whatever their segment, that may be wrong.
        choices: Segments among which each that the policy names counts as the best.
    """

    look: int
    basis: Basis
    window: tuple[str, str] | None = None
    segment: str | None = None
    fresh: bool = False
    void: Mapping[str, str] = field(default_factory=dict)
    windows: float = 1.0
    spent: int = 1
    wrong: WrongLabels = ALL_RIGHT
    choices: float = 1.0

    def unseen(self, certify: Certify) -> bool:
        """Return whether no promise can have been chosen with these rows in view."""
        return (certify.looks == "once" or self.fresh) and self.windows == 1

    def among(self, policy: Policy, segments: NDArray[Any]) -> Shown:
        """Return the rows with the choices of a policy's segments, among certify rows of these segments, shape (N,)."""
        if policy.segments is None or self.unseen(policy.certify):
            return self
        found = len(set(segments.tolist()) - {None, ""})
        return replace(self, choices=max(1.0, found / len(policy.segments.values)))

    def divisor(self, certify: Certify) -> float:
        """Return by how much a promise's part of delta is divided at this look."""
        if certify.looks == "once":
            return self.windows
        place = max(self.look, self.spent) if certify.horizon == "year" else self.look
        return self.windows * self.choices * place * (place + 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the tests of one promise.

    Attributes:
        share: Error probability allowed to the tests.
        threshold: Threshold of the last success, or of the closest test; None without candidates.
        succeeded: Whether the promise is shown at the threshold.
        n: Rows in the denominator at the threshold.
        errors: Errors among them.
        unlabelled: Rows among them without a label.
        needed: Minimum number of additional rows, none of them an error; None if it succeeded. Where groups repeat,
            about this number.
        groups: Groups of these rows, where groups repeat; None otherwise.
        limit: What a group counts with at most, where groups repeat; None otherwise.
        beyond: Share of the denominator that lies beyond this limit.
        allowed: Share beyond it that the test counts as errors; with a larger one, nothing is certified.
    """

    share: float
    threshold: Threshold | None
    succeeded: bool
    n: int
    errors: int
    unlabelled: int
    needed: int | None
    groups: int | None = None
    limit: float | None = None
    beyond: float = 0.0
    allowed: float = 0.0


def absent_rows(fit: ScoredRows, certify: ScoredRows, shown: Shown) -> str | None:
    """Return which rows are missing to solve a policy; None if there are fit and certify rows."""
    if not len(fit) and shown.segment is not None and shown.basis == "reference":
        return "the bundle has no reference rows of this segment"
    among = _AMONG[shown.basis]
    if not len(fit):
        return f"{among} contain no fit rows to choose a threshold from"
    return None if len(certify) else f"{among} contain no certify rows"


def counted(certify: ScoredRows, metric: Metric, outcome: Outcome, shown: Shown, *, since: bool) -> str:
    """Return what makes fewer rows count than are labelled, as the end of a sentence; empty if nothing does.

    Args:
        certify: The rows that certify.
        metric: The metric.
        outcome: Result of its tests.
        shown: The rows that certify.
        since: Whether a chosen window could certify.
    """
    known = certify.known() & (certify.propensity > 0)
    where = ""
    if metric in ("precision", "selective_risk") and outcome.threshold is not None:
        known &= certify.probability >= outcome.threshold.probability
        where = " at or above the threshold"
    rows = certify.take(known)
    groups = len(np.unique(rows.group))
    if not groups:
        return ""
    said = ""
    if groups < len(rows) and outcome.limit is None:
        said = f"; of {len(rows):,} labelled rows{where}, one of each of {groups:,} groups counts"
    floor = float(rows.propensity.min())
    if floor == 1:
        return said
    said += f"; rows are thinned to the smallest probability with which a label was sought, {floor:.2%}"
    # From each time on: the smallest probability, and the rows that are left when all are thinned to it.
    order = np.argsort(rows.predicted_at, kind="stable")[::-1]
    lowest = np.minimum.accumulate(rows.propensity[order])[::-1]
    worth = np.cumsum(1 / rows.propensity[order])[::-1] * lowest
    order = order[::-1]
    best = int(worth.argmax())
    day = -(-int(rows.predicted_at[order[best]]) // DAY_US) * DAY_US  # a window of whole days costs nothing
    later = int(np.searchsorted(rows.predicted_at[order], day))
    if not since or shown.basis != "traffic" or later == len(rows) or outcome.share <= 0:
        return said
    # Evidence grows with the rows, and the level of a chosen window requires more of it.
    level, last = outcome.share, int(rows.predicted_at[order[-1]])
    chosen = level / BAND_POINTS / windows(day, None, at_us=last + 1, rows=len(rows) - later)
    if worth[later] < worth[0] * math.log(chosen) / math.log(level):
        return said
    return f"{said}: since {iso(day)} it is at least {lowest[later]:.2%}, so recalibrate with `since`"


def objection(
    policy: Policy,
    index: int,
    when: Condition,
    shown: Shown,
    missing: float,
    absent: str | None,
    outcome: Outcome,
    certify: ScoredRows,
) -> str | None:
    """Return why the promise of a band is not certified; None if it is.

    Args:
        policy: The policy.
        index: Index of the band.
        when: Condition of the band.
        shown: The rows that certify.
        missing: Share of their sought labels that have not arrived, or that the model lacks.
        absent: Which rows are missing, from `absent_rows`.
        outcome: Result of the tests.
        certify: The rows that certify.
    """
    metric = when.metric
    if metric is not None and metric in shown.void:
        return shown.void[metric]
    if policy.certify.looks == "once" and shown.windows > 1:
        return f"looks is once, but the request chose the window: only a window without {_CHOSEN} can certify"
    if policy.certify.looks == "once" and shown.look > 1:
        if shown.fresh:
            return (
                f"looks is once, but another policy for the same class, or with sets, was solved on these rows just "
                f"before (look {shown.look}): of policies that are solved together, only the first can use once"
            )
        return f"looks is once, but these rows were shown before (look {shown.look}): only new rows can certify"
    if metric != "flag_rate" and (reason := too_few_arrived(missing)) is not None:
        return reason
    if metric is not None and policy.certify.unit == "amount":
        without = _without_amount(metric, outcome, certify)
        if without > MAX_WITHOUT_AMOUNT:
            return (
                f"{without:.1%} of the certify rows have no amount; above {MAX_WITHOUT_AMOUNT:.0%}, nothing is "
                "certified per amount, whatever amount_when_missing is. Send `amount` with predictions, or certify "
                "per row"
            )
    if outcome.beyond > outcome.allowed:
        return (
            f"{outcome.beyond:.2%} of the certify rows at this threshold lie beyond the first "
            f"{_limit(policy, outcome)} of their group, and at most {outcome.allowed:.2%} may: the fit rows at this "
            "threshold come in smaller groups. Collect more fit rows, or certify per group"
        )
    if outcome.succeeded or metric is None:
        return None
    denominator, labels = DENOMINATORS[metric]
    if absent is not None:
        return f"{absent}; at least {outcome.needed} {labels} are needed, if none of them is an error"
    unknown = f" ({outcome.unlabelled} of them rows without a label)" if outcome.unlabelled else ""
    tolerance = policy.tolerance(index)
    explored = "" if tolerance == when.tolerance else f" ({tolerance:.4g} without the explored rows)"
    return (
        f"{outcome.errors} error{'s' * (outcome.errors != 1)}{unknown} among {outcome.n} {denominator} do not show "
        f"{promise_of(when)}{explored}; "
        f"at least {outcome.needed} more {labels} are needed, if none of them is an error"
        + (", and more if they are added to rows already shown" if outcome.n else "")
        + (f"; {shown.wrong.count} of the labels may be wrong" if shown.wrong.share and metric != "flag_rate" else "")
        + (f"; a group counts with at most {_limit(policy, outcome)}" if outcome.limit is not None else "")
        + (
            ""
            if metric == "flag_rate"
            else counted(certify, metric, outcome, shown, since=policy.certify.looks != "once")
        )
        + (_DIVIDED.format(shown.windows) if shown.windows > 1 else "")
        + (_YEAR.format(shown.spent) if policy.certify.horizon == "year" and shown.spent > shown.look else "")
    )


def _limit(policy: Policy, outcome: Outcome) -> str:
    """Return the limit of a group in words."""
    limit = outcome.limit or 0.0
    if policy.certify.unit != "row":
        return f"{limit:,.6g} of the amount"
    return f"{limit:,.0f} row{'s' * (round(limit) != 1)}"


def _without_amount(metric: Metric, outcome: Outcome, certify: ScoredRows) -> float:
    """Return the share of rows without an amount among those that a metric counts, or could if it counts none."""
    counts = np.ones(len(certify), np.bool_)
    if metric != "flag_rate":
        counts = certify.was_sought() & (certify.propensity > 0)
    if metric in ("precision", "selective_risk") and outcome.threshold is not None:
        above = counts & (certify.probability >= outcome.threshold.probability)
        counts = above if above.any() else counts
    elif metric in ("recall", "false_positive_rate"):
        counts &= ~certify.known() | (certify.positive == (metric == "recall"))
    return int((counts & np.isnan(certify.amount)).sum()) / max(int(counts.sum()), 1)


def too_few_arrived(missing: float) -> str | None:
    """Return why nothing is certified with this share of the sought labels missing; None if it may be."""
    if missing <= MAX_MISSING_SHARE:
        return None
    return (
        f"{missing:.1%} of the sought labels have not arrived, or the model lacks them; above "
        f"{MAX_MISSING_SHARE:.0%}, nothing is certified"
    )


def promise_of(when: Condition) -> str:
    """Return a promise in words."""
    of_a_day = f" ({when.value:,.0f} of {when.rows_per_day:,} rows per day)" if when.rows_per_day is not None else ""
    relation = "at least" if when.at_least else "at most"
    return f"a {(when.metric or '').replace('_', ' ')} of {relation} {when.bound:g}{of_a_day}"


def certificate(
    when: Condition, metric: Metric, outcome: Outcome, shown: Shown, reason: str | None, per: Per
) -> Certificate:
    """Return the certificate of one promise; `reason` says why it is not valid, None if it is."""
    return Certificate(
        metric=metric,
        at_least=when.bound if when.at_least else None,
        at_most=None if when.at_least else when.bound,
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
        per=per,
        groups=outcome.groups,
        group_limit=outcome.limit,
        wrong_labels=0.0 if metric == "flag_rate" else shown.wrong.share,
        per_day=int(when.value) if when.per_day else None,
        rows_per_day=when.rows_per_day,
    )


def refusal(
    action: str, index: int, when: Condition, outcome: Outcome, reason: str, segment: str | None
) -> PolicyError:
    """Return the error of an uncertified policy with `on_uncertifiable: fail`."""
    of = "" if segment is None else f" for segment {segment!r}"
    return PolicyError(
        f"The band {action!r} cannot be certified{of}: {reason}",
        where=in_body("bands", index, "when", when.name),
        found={"n": outcome.n, "errors": outcome.errors},
        expected=promise_of(when).removeprefix("a "),
        remedy="Collect more labels, promise less, or set on_uncertifiable: review_all.",
    )
