"""What must hold, beside the gate's verdict, before a refit goes into service without a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.decisions.caps import Cap
from service.decisions.gate import GateResult

_WHAT: Final = {
    "flipped": "policy {policy!r} may change up to {upper:.1%} of its decisions, more than {at_most:.1%}",
    "flag_rate": "policy {policy!r} may flag up to {upper:.1%} of the rows, more than {at_most:.1%}",
    "flag_rate_ratio": "policy {policy!r} may flag up to {upper:.3g} times as many rows, more than {at_most:.3g} times",
    "probability_change": "probabilities may change by up to {upper:.3g} in 99% of the rows, more than {at_most:.3g}",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a refit may leave unknown, or change, and still be activated unattended; shares in [0, 1].

    Attributes:
        unidentified: Of rows that no label stands for, since none is sought or nobody knows how.
        missing: Of labels that were sought for gate rows and have not come.
        flipped: Of decisions that change, for each policy; None for any. After a drift most change, and rightly so.
        flag_rate: Of rows that get the action of a policy's first band; None for any.
        flag_rate_ratio: That share after over that before, above 0; None for any.
        probability_change: What the largest change of a probability may be in 99 % of the rows; None for any.
    """

    unidentified: float = 0.05
    missing: float = 0.05
    flipped: float | None = None
    flag_rate: float | None = None
    flag_rate_ratio: float | None = None
    probability_change: float | None = None

    def tightened(self, wanted: Mapping[str, float]) -> Limits:
        """Return the stricter of these and others, by name: a request may ask for less than the operator allows.

        Example:
            >>> Limits(flipped=0.1).tightened({"flipped": 0.3, "flag_rate": 0.2}).flipped
            0.1
        """
        own = {name: getattr(self, name) for name in wanted}
        stricter = {name: value if own[name] is None else min(value, own[name]) for name, value in wanted.items()}
        return replace(self, **stricter)


def broken(caps: Iterable[Cap]) -> Iterator[str]:
    """Say of each cap that does not hold what the refit may change, and what was allowed."""
    for cap in caps:
        if not cap.holds:
            yield _WHAT[cap.name].format(policy=cap.policy, upper=cap.upper, at_most=cap.at_most)


def judge(
    verdict: GateResult,
    *,
    limits: Limits,
    unidentified_share: float,
    missing_share: float,
    caps: Sequence[Cap],
    uncertified: Sequence[tuple[str, str | None]],
    at_bound: bool = False,
    represents_traffic: bool = True,
) -> GateResult:
    """Complete a verdict with whether the refit may be activated unattended, and why not.

    Args:
        verdict: From `gate.compare`.
        limits: What is allowed.
        unidentified_share: Share of the gate role's rows, labelled or not, whose propensity is zero or unknown, or
            lower than that of every label that came.
        missing_share: Share of the labels sought for gate rows that have not come.
        caps: Bounded shares of changed and of flagged rows.
        uncertified: Policies that hold their certificates now and would lose them; each with the segment that would,
            None where it has none.
        represents_traffic: Whether the rows are traffic, or were declared to be a sample of it.
        at_bound: Whether the fit ran into the end of its range, as where labels contradict the model throughout.

    Returns:
        The verdict; its reason says so where the comparison does not speak for all rows.
    """

    def objections() -> Iterator[str]:
        if not verdict.passed:
            yield "the gate refuses the refit"
        if verdict.mode != "superior":
            yield "it was not asked to be better, only to do no harm"
        if unidentified_share > limits.unidentified:
            yield f"no label stands for {unidentified_share:.1%} of the rows, more than {limits.unidentified:.1%}"
        if missing_share > limits.missing:
            yield f"{missing_share:.1%} of the labels that were sought have not come, more than {limits.missing:.1%}"
        if not represents_traffic:
            yield "nobody has declared that the uploaded rows represent the traffic"
        if at_bound:
            yield "the temperature stands at its bound: the labels may be wrong, or of another model"
        for policy, segment in uncertified:
            if segment is None:
                yield f"policy {policy!r} would lose its certificate, and send every row to review"
            else:
                yield f"policy {policy!r} would lose its certificate of segment {segment!r}, and give it the fallback"
        yield from broken(caps)

    found = "; ".join(objections())
    reason = verdict.reason
    if unidentified_share > limits.unidentified:
        reason += f" No label stands for {unidentified_share:.1%} of the rows: of them nothing is known."
    if not represents_traffic:
        reason += " This speaks of the uploaded rows alone, which nobody has declared to represent the traffic."
    return replace(
        verdict,
        unidentified_share=unidentified_share,
        missing_share=missing_share,
        caps=tuple(caps),
        unattended=not found,
        unattended_reason=f"{found[0].upper()}{found[1:]}." if found else None,
        reason=reason,
    )
