"""Certificates that an alarm voided, marked on solved policies. Revisions themselves never change.

A certificate is identified by its content, so it stays void in every revision that contains it: after a rollback, or in
a proposal that was made before the alarm. A certificate that is solved again has other content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from candor.contract.certificates import Certificate, SolvedBand, SolvedSegment, Threshold
from candor.contract.conditions import Metric
from service.decisions.solved import SolvedPolicy

ALARM: Final = "alarm"
"""Reason of a certificate that its monitor voided."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A valid certificate and its place in a policy.

    Attributes:
        index: Index of its band.
        action: Action of its band.
        segment: Segment that it covers; None for all traffic.
        threshold: Threshold of its band.
        certificate: The certificate.
    """

    index: int
    action: str
    segment: str | None
    threshold: Threshold
    certificate: Certificate


def key_of(
    solved: SolvedPolicy, action: str, segment: str | None, certificate: Certificate, *, model_digest: str
) -> str:
    """Return the key of a certificate, which is the same in every revision of a model file, voided or not."""
    if certificate.reason == ALARM:
        certificate = certificate.model_copy(update={"valid": True, "reason": None})
    said = [model_digest, solved.policy.id, solved.version, action, segment, certificate.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def claims(solved: SolvedPolicy) -> Iterator[Claim]:
    """Yield the valid certificates of a policy."""
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
    """Return policies with voided certificates marked, and `on_invalid` applied.

    Args:
        policies: Policies of a revision, by id.
        model_digest: Digest of the revision's model file.
        voided: Keys of voided certificates, from `key_of`.

    Returns:
        New policies; the same object if no certificate is voided.
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
        segments[value] = SolvedSegment(bands=bands, certified=part.certified and not reviews)
    return replace(solved, segments=segments)


def _marked(bands: tuple[SolvedBand, ...], lost: Collection[int]) -> tuple[SolvedBand, ...]:
    return tuple(_void(band) if index in lost else band for index, band in enumerate(bands))


def _void(band: SolvedBand) -> SolvedBand:
    if band.certificate is None:
        return band
    void = band.certificate.model_copy(update={"valid": False, "reason": ALARM})
    return band.model_copy(update={"certificate": void})


def broken(solved: SolvedPolicy) -> dict[Metric, str]:
    """Return the metrics whose certificates an alarm voided, and why reference rows cannot certify them again."""
    why = (
        f"{ALARM}: the traffic broke this promise, so the bundle's reference rows do not represent it; only labelled "
        "traffic can certify the promise"
    )
    found: dict[Metric, str] = {}
    for wanted, band in zip(solved.policy.bands, solved.bands, strict=True):
        reason = None if band.certificate is None else band.certificate.reason
        if wanted.condition is not None and wanted.condition.metric is not None and (reason or "").startswith(ALARM):
            found[wanted.condition.metric] = why
    return found


def broken_for(policies: Iterable[SolvedPolicy], positive: str) -> dict[Metric, str]:
    """Return what `broken` finds in all policies of one positive class: renaming a promise does not restore it."""
    return {
        metric: why
        for solved in policies
        if solved.policy.positive == positive
        for metric, why in broken(solved).items()
    }
