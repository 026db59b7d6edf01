"""What a test lets a certificate say: that the promise is shown, or why not and how many labels are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from service.decisions.conditions import Condition, Metric
from service.decisions.policy import Policy
from service.decisions.rows import ScoredRows
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


_AMONG: Final[Mapping[Basis, str]] = {
    "reference": "the bundle's reference rows",
    "traffic": "the rows of the traffic",
    "uploaded": "the uploaded rows",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """Which rows certify, for the certificates.

    Attributes:
        look: How many times they have been looked at, this one included; from 1.
        basis: The bundle's reference rows, or traffic.
        window: Their first and last time (ISO 8601).
        segment: The part of the traffic that they are of; None for all of it.
        fresh: Whether nobody has been shown any of them so far.
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
    """What the tests of one promise gave.

    Attributes:
        share: Error probability that they were allowed.
        threshold: Where the last success was, else where a test came closest; None without candidates.
        succeeded: Whether the promise is shown there.
        n: Rows in the denominator there.
        errors: Errors among them.
        unlabelled: Rows among them that lack a label.
        needed: At least this many more rows without an error are needed; None where it succeeded.
    """

    share: float
    threshold: Threshold | None
    succeeded: bool
    n: int
    errors: int
    unlabelled: int
    needed: int | None


def absent_rows(fit: ScoredRows, certify: ScoredRows, shown: Shown) -> str | None:
    """Return why there is nothing to solve with, None when there is."""
    if not len(fit) and shown.segment is not None and shown.basis == "reference":
        return "the bundle's reference rows are of no segment"
    among = _AMONG[shown.basis]
    if not len(fit):
        return f"there are no fit rows among {among} to choose a threshold from"
    return None if len(certify) else f"there are no certify rows among {among}"


def objection(
    policy: Policy, index: int, when: Condition, shown: Shown, missing: float, absent: str | None, outcome: Outcome
) -> str | None:
    """Return why the promise of a band is not certified, None when it is.

    Args:
        policy: Whose band it is.
        index: Of the band.
        when: Its condition.
        shown: Which rows certify.
        missing: Share of the labels sought among them that have not come.
        absent: Why there is nothing to test with, from `absent_rows`.
        outcome: What the tests gave.
    """
    metric = when.metric
    if metric is not None and metric in shown.void:
        return shown.void[metric]
    if policy.certify.looks == "once" and shown.look > 1:
        if shown.fresh:
            return (
                f"looks is once, and another policy for the same class was solved on these rows just before (look "
                f"{shown.look}): of several that are solved together only the first can be once"
            )
        return f"looks is once, and these rows have been shown before (look {shown.look}): only fresh rows certify"
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


def certificate(when: Condition, metric: Metric, outcome: Outcome, shown: Shown, reason: str | None) -> Certificate:
    """Return the certificate of one promise; `reason` says why it is none, None when it is one."""
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


def refusal(
    action: str, index: int, when: Condition, outcome: Outcome, reason: str, segment: str | None
) -> PolicyError:
    """Return the error for a policy that must be certified or refused."""
    of = "" if segment is None else f" for the segment {segment!r}"
    return PolicyError(
        f"The band {action!r} cannot be certified{of}: {reason}",
        where=f"/bands/{index}/when/{when.name}",
        found={"n": outcome.n, "errors": outcome.errors},
        expected=_promise(when).removeprefix("a "),
        remedy="Collect more labels, promise less, or let on_uncertifiable be review_all.",
    )
