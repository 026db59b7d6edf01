"""What must hold, beside the gate's verdict, before a refit goes into service without a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from service.decisions.caps import Cap
from service.decisions.gate import GateResult

_WHAT: Final = {
    "flipped": "policy {policy!r} may change up to {upper:.1%} of its decisions",
    "flag_rate": "policy {policy!r} may flag up to {upper:.1%} of the rows",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest shares, in [0, 1], at which a refit may be activated unattended.

    Attributes:
        unidentified: Of rows that no label stands for, since none is sought or nobody knows how.
        missing: Of labels that were sought for gate rows and have not come.
        flipped: Of decisions that change, for each policy; None for any. After a drift most change, and rightly so.
        flag_rate: Of rows that get the action of a policy's first band; None for any.
    """

    unidentified: float = 0.05
    missing: float = 0.05
    flipped: float | None = None
    flag_rate: float | None = None


def judge(
    verdict: GateResult,
    *,
    limits: Limits,
    unidentified_share: float,
    missing_share: float,
    caps: Sequence[Cap],
    uncertified: Sequence[tuple[str, str | None]],
    at_bound: bool = False,
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
        if at_bound:
            yield "the temperature stands at its bound: the labels may be wrong, or of another model"
        for policy, segment in uncertified:
            if segment is None:
                yield f"policy {policy!r} would lose its certificate, and send every row to review"
            else:
                yield f"policy {policy!r} would lose its certificate of segment {segment!r}, and give it the fallback"
        for cap in caps:
            if not cap.holds:
                yield f"{_WHAT[cap.name].format(policy=cap.policy, upper=cap.upper)}, more than {cap.at_most:.1%}"

    found = "; ".join(objections())
    reason = verdict.reason
    if unidentified_share > limits.unidentified:
        reason += f" No label stands for {unidentified_share:.1%} of the rows: of them nothing is known."
    return replace(
        verdict,
        unidentified_share=unidentified_share,
        missing_share=missing_share,
        caps=tuple(caps),
        unattended=not found,
        unattended_reason=f"{found[0].upper()}{found[1:]}." if found else None,
        reason=reason,
    )
