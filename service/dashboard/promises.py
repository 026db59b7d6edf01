"""What a revision promises: threshold and certificate of each policy, segment and band."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from candor.contract import certificates as contract
from candor.contract.certificates import SetCertificate, SolvedBand
from service.dashboard import words
from service.decisions.solved import SolvedPolicy


@dataclass(frozen=True, slots=True)
class Promise:
    """One band of one part of the traffic.

    Attributes:
        segment: The part; None for all of it.
        action: The band's action.
        condition: What the operator asks for.
        threshold: Probability from which on the band takes rows; None where it takes none, or all that are left.
        rest: Whether it takes all that are left.
        certificate: Document of the certificate, None where nothing is promised.
    """

    segment: str | None
    action: str
    condition: str
    threshold: float | None
    rest: bool
    certificate: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Promises:
    """What one policy of a revision promises.

    Attributes:
        id: The policy.
        version: Its version.
        positive: The class that it is about; "top" for the predicted label.
        fallback: Action of rows for which nothing is certified; None where every part is certified.
        without: Segments whose rows get it; empty where it is all rows.
        rows: Its bands.
        other: Action of all other segments; None without segments.
        sets: Its prediction sets by segment, "" for all rows; empty if it has none.
    """

    id: str
    version: int
    positive: str
    fallback: str | None
    without: tuple[str, ...]
    rows: tuple[Promise, ...]
    other: str | None = None
    sets: Mapping[str, SetCertificate] = field(default_factory=dict)


def promises(policies: Mapping[str, contract.SolvedPolicy]) -> list[Promises]:
    """Return what a revision's policies promise, by id."""
    return [_of(SolvedPolicy.from_dict(policies[key].document)) for key in sorted(policies)]


def _of(solved: SolvedPolicy) -> Promises:
    parts: list[tuple[str | None, SolvedPolicy]] = [*solved.parts.items()] if solved.segments else [(None, solved)]
    without = tuple(value for value, part in parts if part.review_all and value is not None)
    falls_back = bool(without) or (not solved.segments and solved.review_all)
    return Promises(
        solved.policy.id,
        solved.version,
        solved.policy.positive,
        solved.policy.fallback if falls_back else None,
        without,
        tuple(_band(solved, value, index, band) for value, part in parts for index, band in enumerate(part.bands)),
        solved.policy.fallback if solved.segments else None,
        solved.sets,
    )


def _band(solved: SolvedPolicy, segment: str | None, index: int, band: SolvedBand) -> Promise:
    when = solved.policy.bands[index].condition
    return Promise(
        segment,
        band.action,
        words.condition(when),
        None if band.threshold is None else band.threshold.probability,
        when is None,
        None if band.certificate is None else band.certificate.model_dump(mode="json"),
    )
