"""Promises that a changed policy leaves as they are: their thresholds and certificates stay.

A certificate is about the rows at or above its threshold. Another band or option does not change them, so the
claim stays as true as it was, and testing it again would only use a look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from candor.contract.certificates import SolvedBand
from candor.contract.policies import Policy
from service.decisions.solved import SolvedPolicy

Standing = Mapping[tuple[str | None, int], SolvedBand]
"""Bands that stay, by segment (None for all traffic) and index in the new policy."""


def standing(old: SolvedPolicy, policy: Policy) -> Standing:
    """Return the bands of a new policy whose promise an old one has certified, under the same calibrator.

    A band stays if its action and condition are the same, its certificate is valid, counts the same (rows, groups or
    amounts), rests on as many rows of a day and allows for as many wrong labels, and the old policy gave the promise no
    more of delta than the new one does. That is what all looks at it may use together, the earlier ones included, so
    all promises hold together with probability 1 − delta. Where the old delta covered one look and the new one covers
    all looks of a year, the earlier looks used more: no band stays.

    Args:
        old: The policy in force, with voided certificates marked.
        policy: The new one, with the rows of a day where it needs them.
    """
    if policy.positive != old.policy.positive:
        return {}
    if (policy.certify.looks == "anytime") != (old.policy.certify.looks == "anytime"):
        return {}  # looks at traffic and certificates that grow would each spend a promise's part of delta
    if old.policy.certify.horizon == "look" and policy.certify.horizon == "year":
        return {}  # each look had all of delta, and the person who put the policy chose one that succeeded
    parts: dict[str | None, tuple[SolvedBand, ...]] = {None: old.bands}
    if old.policy.segments is not None:
        parts = {value: part.bands for value, part in old.segments.items()}
    before = {promise: index for index, promise in _promises(old.policy.measured(policy.rows_per_day)).items()}
    if old.policy.certify.delta / max(old.policy.claims, 1) > policy.certify.delta / max(policy.claims, 1):
        return {}
    found: dict[tuple[str | None, int], SolvedBand] = {}
    for segment in (None,) if policy.segments is None else policy.segments.values:
        for index, promise in _promises(policy).items():
            if promise not in before or segment not in parts:
                continue
            band = parts[segment][before[promise]]
            certificate = band.certificate
            if certificate is None or band.threshold is None:
                continue
            allows = certificate.metric == "flag_rate" or certificate.wrong_labels >= (
                policy.certify.wrong_labels or 0.0
            )
            same_day = certificate.rows_per_day in (None, policy.rows_per_day)
            if certificate.valid and certificate.per == policy.certify.unit and allows and same_day:
                found[segment, index] = band
    return found


class _Promise(NamedTuple):
    """What a certificate is about; its monitor and its alarm are known by the action."""

    action: str
    name: str
    value: float
    tolerance: float


def _promises(policy: Policy) -> dict[int, _Promise]:
    return {
        index: _Promise(policy.bands[index].action, when.name, when.value, policy.tolerance(index))
        for index, when in policy.promises()
    }
