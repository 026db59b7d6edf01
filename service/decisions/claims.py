"""Certificates from test outcomes: whether the promise is shown, or why not and how many labels are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from candor.contract.certificates import Basis, Certificate, Threshold
from candor.contract.conditions import Condition, Metric
from candor.contract.policies import Policy
from service.decisions.rows import ScoredRows
from service.errors import PolicyError

MAX_MISSING_SHARE: Final = 0.05
"""Largest share of missing labels at which labels can certify."""

DENOMINATORS: Final[dict[Metric, tuple[str, str]]] = {
    "precision": ("rows", "labelled rows at or above the threshold"),
    "selective_risk": ("rows", "labelled rows at or above the threshold"),
    "recall": ("positives", "labelled positives"),
    "false_positive_rate": ("negatives", "labelled negatives"),
    "flag_rate": ("rows", "rows"),
}


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
        void: Metrics that these rows cannot certify, and why.
    """

    look: int
    basis: Basis
    window: tuple[str, str] | None = None
    segment: str | None = None
    fresh: bool = False
    void: Mapping[Metric, str] = field(default_factory=dict)


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
        needed: Minimum number of additional rows, none of them an error; None if it succeeded.
    """

    share: float
    threshold: Threshold | None
    succeeded: bool
    n: int
    errors: int
    unlabelled: int
    needed: int | None


def absent_rows(fit: ScoredRows, certify: ScoredRows, shown: Shown) -> str | None:
    """Return which rows are missing to solve a policy; None if there are fit and certify rows."""
    if not len(fit) and shown.segment is not None and shown.basis == "reference":
        return "the bundle has no reference rows of this segment"
    among = _AMONG[shown.basis]
    if not len(fit):
        return f"{among} contain no fit rows to choose a threshold from"
    return None if len(certify) else f"{among} contain no certify rows"


def objection(
    policy: Policy, index: int, when: Condition, shown: Shown, missing: float, absent: str | None, outcome: Outcome
) -> str | None:
    """Return why the promise of a band is not certified; None if it is.

    Args:
        policy: The policy.
        index: Index of the band.
        when: Condition of the band.
        shown: The rows that certify.
        missing: Share of their sought labels that have not arrived.
        absent: Which rows are missing, from `absent_rows`.
        outcome: Result of the tests.
    """
    metric = when.metric
    if metric is not None and metric in shown.void:
        return shown.void[metric]
    if policy.certify.looks == "once" and shown.look > 1:
        if shown.fresh:
            return (
                f"looks is once, but another policy for the same class was solved on these rows just before (look "
                f"{shown.look}): of policies that are solved together, only the first can use once"
            )
        return f"looks is once, but these rows were shown before (look {shown.look}): only new rows can certify"
    if missing > MAX_MISSING_SHARE and metric != "flag_rate":
        return (
            f"{missing:.1%} of the sought labels have not arrived; above {MAX_MISSING_SHARE:.0%}, nothing is certified"
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
        f"{outcome.errors} errors{unknown} among {outcome.n} {denominator} do not show {_promise(when)}{explored}; at "
        f"least {outcome.needed} more {labels} are needed, if none of them is an error"
        + (", and more if they are added to rows already shown" if outcome.n else "")
    )


def _promise(when: Condition) -> str:
    return f"a {(when.metric or '').replace('_', ' ')} of {'at least' if when.at_least else 'at most'} {when.value:g}"


def certificate(when: Condition, metric: Metric, outcome: Outcome, shown: Shown, reason: str | None) -> Certificate:
    """Return the certificate of one promise; `reason` says why it is not valid, None if it is."""
    return Certificate(
        metric=metric,
        at_least=when.value if when.at_least else None,
        at_most=None if when.at_least else when.value,
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


def refusal(
    action: str, index: int, when: Condition, outcome: Outcome, reason: str, segment: str | None
) -> PolicyError:
    """Return the error of an uncertified policy with `on_uncertifiable: fail`."""
    of = "" if segment is None else f" for segment {segment!r}"
    return PolicyError(
        f"The band {action!r} cannot be certified{of}: {reason}",
        where=f"/bands/{index}/when/{when.name}",
        found={"n": outcome.n, "errors": outcome.errors},
        expected=_promise(when).removeprefix("a "),
        remedy="Collect more labels, promise less, or set on_uncertifiable: review_all.",
    )
