"""Certificates that an alarm has voided, laid over solved policies: revisions never change, what is known of them does.

A certificate is known by what it says, so that it stays void in whichever revision it comes back: after a rollback, or
carried along by a proposal that was made before the alarm. One that is solved anew says something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from service.decisions.conditions import Metric
from service.decisions.solved import SolvedBand, SolvedPolicy, SolvedSegment
from service.revision import Certificate, Threshold

ALARM: Final = "alarm"
"""The reason of a certificate that its monitor has voided."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A certificate that stands, and where it stands.

    Attributes:
        index: Of its band.
        action: Of its band.
        segment: The part of the traffic that it is about; None for all of it.
        threshold: Of its band.
        certificate: What is promised.
    """

    index: int
    action: str
    segment: str | None
    threshold: Threshold
    certificate: Certificate


def key_of(
    solved: SolvedPolicy, action: str, segment: str | None, certificate: Certificate, *, model_digest: str
) -> str:
    """Return a name that a certificate of a policy has in every revision of a model file, voided or not."""
    if certificate.reason == ALARM:
        certificate = replace(certificate, valid=True, reason=None)
    said = [model_digest, solved.policy.id, solved.version, action, segment, certificate.to_dict()]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def claims(solved: SolvedPolicy) -> Iterator[Claim]:
    """Yield the certificates of a policy that stand."""
    parts: list[tuple[str | None, tuple[SolvedBand, ...]]] = [
        *((value, part.bands) for value, part in solved.segments.items())
    ]
    for segment, bands in parts or [(None, solved.bands)]:
        for index, band in enumerate(bands):
            if band.certificate is not None and band.certificate.valid and band.threshold is not None:
                yield Claim(index, band.action, segment, band.threshold, band.certificate)


def overlaid(
    policies: Mapping[str, SolvedPolicy], model_digest: str, voided: Collection[str]
) -> Mapping[str, SolvedPolicy]:
    """Return policies with their voided certificates marked, and with what `on_invalid` makes of them.

    Args:
        policies: As a revision has them, by id.
        model_digest: Of the revision's model file.
        voided: Keys of voided certificates, from `key_of`.

    Returns:
        The very same object where none of them is voided.
    """
    if not voided:
        return policies
    changed = {key: _overlaid(solved, model_digest, voided) for key, solved in policies.items()}
    return changed if any(changed[key] is not policies[key] for key in policies) else policies


def _overlaid(solved: SolvedPolicy, model_digest: str, voided: Collection[str]) -> SolvedPolicy:
    lost = {
        (claim.segment, claim.index)
        for claim in claims(solved)
        if key_of(solved, claim.action, claim.segment, claim.certificate, model_digest=model_digest) in voided
    }
    if not lost:
        return solved
    reviews = solved.policy.on_invalid == "review_all"
    if not solved.segments:
        bands = _marked(solved.bands, {index for _, index in lost})
        return replace(solved, bands=bands, review_all=solved.review_all or reviews)
    segments = dict(solved.segments)
    for value in {segment for segment, _ in lost if segment is not None}:
        part = segments[value]
        bands = _marked(part.bands, {index for segment, index in lost if segment == value})
        segments[value] = SolvedSegment(bands, part.certified and not reviews)
    return replace(solved, segments=segments)


def _marked(bands: tuple[SolvedBand, ...], lost: Collection[int]) -> tuple[SolvedBand, ...]:
    return tuple(_void(band) if index in lost else band for index, band in enumerate(bands))


def _void(band: SolvedBand) -> SolvedBand:
    certificate = band.certificate
    return band if certificate is None else replace(band, certificate=replace(certificate, valid=False, reason=ALARM))


def broken(solved: SolvedPolicy) -> dict[Metric, str]:
    """Return the metrics of certificates that an alarm has voided, and why reference rows cannot certify them anew."""
    why = (
        f"{ALARM}: the traffic has broken what was promised of it, so that the bundle's reference rows do not speak "
        "for it; only labelled traffic can certify this"
    )
    found: dict[Metric, str] = {}
    for wanted, band in zip(solved.policy.bands, solved.bands, strict=True):
        reason = None if band.certificate is None else band.certificate.reason
        if wanted.when is not None and wanted.when.metric is not None and (reason or "").startswith(ALARM):
            found[wanted.when.metric] = why
    return found


def broken_for(policies: Iterable[SolvedPolicy], positive: str) -> dict[Metric, str]:
    """Return what `broken` finds in any policy of one positive class: another name for a promise heals nothing."""
    return {
        metric: why
        for solved in policies
        if solved.policy.positive == positive
        for metric, why in broken(solved).items()
    }


def overlaid_documents(
    documents: Mapping[str, dict[str, Any]], model_digest: str, voided: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return what `overlaid` makes of a revision's documents."""
    policies = {key: SolvedPolicy.from_dict(document) for key, document in documents.items()}
    return {key: solved.to_dict() for key, solved in overlaid(policies, model_digest, voided).items()}
