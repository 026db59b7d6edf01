"""Where certificates that grow began: computed from the revisions that a model has had, so nothing else is stored.

A promise begins with the first revision that makes it, with its bundle and a calibrator that orders rows alike. The
rows predicted since then are its evidence, and no one can move this time. The person who changes a promise has seen
earlier evidence, so all beginnings of a positive class share what is for such certificates: see `level_of_beginning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from calibrators import Calibrator
from candor.contract.conditions import REVIEW
from candor.contract.policies import TOP, Policy
from service.decisions.levels import level_of
from service.decisions.multicalibrated import restored
from service.decisions.policy import parse_policy
from service.decisions.same_rows import keeps_order

FIRST: Final = 0.8
"""Part of the first beginning; most promises never begin again."""


class Made(NamedTuple):
    """A revision: what its promises depend on."""

    id: str
    bundle_id: str
    created_at: int
    calibrator: dict[str, Any]
    policies: Mapping[str, dict[str, Any]]


class Promised(NamedTuple):
    """What a certificate that grows is about."""

    bundle_id: str
    positive: str
    condition: str
    value: float
    tolerance: float
    share: float
    planned: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a certificate that grows.

    Attributes:
        promised: What it is about.
        calibrator: The calibrator that orders the rows.
        since_us: Rows predicted from this time on are its evidence.
        number: Its number among the beginnings of its positive class; promises of one policy share it.
        sought: Smallest positive probability with which its policy seeks a label.
    """

    promised: Promised
    calibrator: Calibrator
    since_us: int
    number: int
    sought: float

    @property
    def level(self) -> float:
        """Largest probability that a threshold which breaks the promise is ever certified."""
        return level_of_beginning(self.promised.share, self.number)


def level_of_beginning(share: float, number: int) -> float:
    """Return the level of the j-th beginning: `FIRST` of the share, then (1 − `FIRST`)/((j − 1)j) of it.

    Since Σ 1/((j − 1)j) = 1 over j ≥ 2, the levels of all beginnings add up to the share.

    >>> [round(level_of_beginning(0.04, number), 4) for number in (1, 2, 3)]
    [0.032, 0.004, 0.0013]
    """
    return share * FIRST if number == 1 else level_of(share * (1 - FIRST), number - 1)


def promised(policy: Policy, bundle_id: str) -> dict[int, Promised]:
    """Return what the certificates of a policy are about, by index of the band; empty if they do not grow."""
    planned = policy.certify.planned
    if planned is None:
        return {}
    share = (policy.certify.delta - policy.certify.for_looks) / max(policy.claims, 1)
    return {
        index: Promised(bundle_id, policy.positive, when.name, when.value, policy.tolerance(index), share, planned)
        for index, when in policy.promises()
    }


def beginnings(revisions: Iterable[Made], names: Sequence[str]) -> list[Beginning]:
    """Return the beginnings of all promises of a model.

    Args:
        revisions: All revisions of the model, oldest first.
        names: The model's labels.
    """
    found: list[Beginning] = []
    numbers: Counter[str] = Counter()
    for made in revisions:
        for document in made.policies.values():
            if document["policy"].get("certify", {}).get("looks") != "anytime":
                continue
            policy, calibrator = parse_policy(document["policy"]), restored(made.calibrator)
            new = [
                promise
                for promise in promised(policy, made.bundle_id).values()
                if beginning_of(promise, calibrator, found, names) is None
            ]
            numbers[policy.positive] += bool(new)
            found += [
                Beginning(promise, calibrator, made.created_at, numbers[policy.positive], lowest_sought(policy))
                for promise in dict.fromkeys(new)
            ]
    return found


def beginning_of(
    promise: Promised, calibrator: Calibrator, among: Iterable[Beginning], names: Sequence[str]
) -> Beginning | None:
    """Return the beginning of a promise under a calibrator; None without one."""
    # A label that another bundle of the model had is none of these: its promises are of another bundle.
    positive = names.index(promise.positive) if promise.positive in names else TOP
    same = (one for one in among if one.promised == promise)
    return next((one for one in same if keeps_order(positive, one.calibrator, calibrator)), None)


def lowest_sought(policy: Policy) -> float:
    """Return the smallest positive probability with which a policy seeks a label."""
    chances = (policy.propensity(action) for action in (REVIEW, *(band.action for band in policy.bands)))
    return min(chance for chance in chances if chance > 0)
