"""Conditions, besides the gate's verdict, for activating a recalibration automatically."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from candor.contract.gate import Cap, Gate

_WHAT: Final = {
    "flipped": "policy {policy!r} may change up to {upper:.1%} of its decisions, more than {at_most:.1%}",
    "flag_rate": "policy {policy!r} may flag up to {upper:.1%} of the rows, more than {at_most:.1%}",
    "flag_rate_ratio": "policy {policy!r} may flag up to {upper:.4g} times as many rows, more than {at_most:.4g} times",
    "probability_change": "probabilities may change by up to {upper:.3g} in 99% of the rows, more than {at_most:.3g}",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what a recalibration leaves unknown or changes if it is activated automatically; shares in [0, 1].

    Attributes:
        unidentified: Share of the rows that no label represents.
        missing: Share of the sought labels of gate rows that have not arrived, or that the model lacks.
        flipped: Share of decisions that change, for each policy; None for no limit.
        flag_rate: Share of rows that get the action of a policy's first band; None for no limit.
        flag_rate_ratio: That share after divided by the share before, above 0; None for no limit.
        probability_change: Largest change of a probability in 99 % of the rows; None for no limit.
        calibration_error: Upper bound of the calibration error afterwards; None for no limit.
    """

    unidentified: float = 0.05
    missing: float = 0.05
    flipped: float | None = 0.1
    flag_rate: float | None = None
    flag_rate_ratio: float | None = 3.0
    probability_change: float | None = 0.1
    calibration_error: float | None = None

    def tightened(self, wanted: Mapping[str, float]) -> Limits:
        """Return the stricter limit of each name: a request can only tighten what the operator allows.

        Example:
            >>> Limits(flipped=0.1).tightened({"flipped": 0.3, "flag_rate": 0.2}).flipped
            0.1
        """
        own = {name: getattr(self, name) for name in wanted}
        stricter = {name: value if own[name] is None else min(value, own[name]) for name, value in wanted.items()}
        return replace(self, **stricter)


def broken(caps: Iterable[Cap]) -> Iterator[str]:
    """Describe each cap that does not hold."""
    for cap in caps:
        if not cap.holds:
            upper = math.inf if cap.upper is None else _rounded_up(cap.upper)
            yield _WHAT[cap.name].format(policy=cap.policy, upper=upper, at_most=cap.at_most)


def _rounded_up(bound: float) -> float:
    """Return a bound with three decimals, so that one just above its limit does not read as equal to it."""
    return math.ceil(round(1000 * bound, 6)) / 1000  # 70.00000000000001 is 70


def judge(
    verdict: Gate,
    *,
    limits: Limits,
    unidentified_share: float,
    missing_share: float,
    caps: Sequence[Cap],
    uncertified: Sequence[tuple[str, str | None]],
    calibration_error: float = 1.0,
    at_bound: bool = False,
    represents_traffic: bool = True,
    uploaded: bool = False,
    window_by_rule: bool = True,
) -> Gate:
    """Return a verdict completed with whether the recalibration may be activated automatically, and why not.

    Args:
        verdict: From `gate.compare`.
        limits: The limits.
        unidentified_share: Share of the gate role's rows, labelled or not, whose propensity is zero, unknown, or lower
            than that of every label that arrived.
        missing_share: Share of the sought labels of gate rows that have not arrived, or that the model lacks.
        caps: Limits on what changes on recent rows.
        uncertified: Policies that would lose a certificate, with the segment that loses it; None without segments.
        calibration_error: Largest upper bound of the calibration error afterwards.
        at_bound: Whether the fit ended at the bound of its range, as when labels contradict the model.
        represents_traffic: Whether the rows are traffic, or were declared to be a sample of it.
        uploaded: Whether somebody uploaded the rows: nothing but their word says that they are real.
        window_by_rule: Whether a rule set the window of the rows. One that somebody chose may hold the luckiest rows.

    Returns:
        The verdict. Its reason says if the comparison does not cover all rows.
    """

    def objections() -> Iterator[str]:
        if not verdict.passed:
            yield "the gate refuses the recalibration"
        if verdict.mode != "superior":
            yield "the gate tested only for harm, not for improvement"
        if unidentified_share > limits.unidentified:
            yield f"no label represents {unidentified_share:.1%} of the rows, more than {limits.unidentified:.1%}"
        if missing_share > limits.missing:
            yield (
                f"{missing_share:.1%} of the sought labels have not arrived, or the model lacks them, more than "
                f"{limits.missing:.1%}"
            )
        if not represents_traffic:
            yield "the uploaded rows are not declared to represent the traffic"
        if uploaded:
            yield "the rows were uploaded, and only the uploader knows where their labels come from"
        if not window_by_rule:
            yield "the request chose the window of the rows"
        if limits.calibration_error is not None and calibration_error > limits.calibration_error:
            yield (
                f"the calibration error may be up to {_rounded_up(calibration_error):.3f}, "
                f"more than {limits.calibration_error:.3f}"
            )
        if at_bound:
            yield "the temperature is at its bound: the labels may be wrong, or belong to another model"
        for policy, segment in uncertified:
            if segment is None:
                yield f"policy {policy!r} would lose its certificate, and send every row to review"
            else:
                yield f"policy {policy!r} would lose its certificate of segment {segment!r}: rows get the fallback"
        yield from broken(caps)

    found = "; ".join(objections())
    reason = verdict.reason
    if unidentified_share > limits.unidentified:
        reason += f" No label represents {unidentified_share:.1%} of the rows: nothing is known about them."
    if not represents_traffic:
        reason += " This covers only the uploaded rows, which are not declared to represent the traffic."
    return verdict.model_copy(
        update={
            "unidentified_share": unidentified_share,
            "missing_share": missing_share,
            "caps": tuple(caps),
            "unattended": not found,
            "unattended_reason": f"{found[0].upper()}{found[1:]}." if found else None,
            "reason": reason,
        }
    )
