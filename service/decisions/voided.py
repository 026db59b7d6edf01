"""Certificates that an alarm voided, marked on solved policies. Revisions themselves never change.

A certificate is identified by its content, so it stays void in every revision that contains it: after a rollback, or in
a proposal that was made before the alarm. A certificate that is solved again has other content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from candor.contract.certificates import Certificate, SolvedBand, SolvedSegment, Threshold
from candor.contract.conditions import Metric
from service.decisions.solved import SolvedPolicy

ALARM: Final = "alarm"
"""Reason of a certificate that its monitor voided."""

PROPENSITY: Final = "propensity"
"""Reason of a certificate whose labels were not sought with the logged propensities."""

_LATER: Final[Mapping[str, Any]] = {
    "per": "group",
    "groups": None,
    "group_limit": None,
    "wrong_labels": 0.0,
    "per_day": None,
    "rows_per_day": None,
}
"""Fields that certificates did not have at first, with what they then meant: they change no key."""


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
    """Return the key of a certificate: the same in every revision of a model file and version of its policy.

    Voided or not, an edit that leaves a certificate as it is leaves its monitor too.
    """
    return _hash([model_digest, solved.policy.id, action, segment, _content(certificate)])


def _keys_of(solved: SolvedPolicy, claim: Claim, model_digest: str) -> Iterator[str]:
    """Yield the key of a claim, and those by which earlier versions of the service knew it."""
    yield key_of(solved, claim.action, claim.segment, claim.certificate, model_digest=model_digest)
    content = _content(claim.certificate)
    for version in range(solved.version, 0, -1):
        yield _hash([model_digest, solved.policy.id, version, claim.action, claim.segment, content])


def _content(certificate: Certificate) -> dict[str, Any]:
    """Return what a certificate said before any alarm, as it was written when it was made."""
    if certificate.reason in (ALARM, PROPENSITY):
        certificate = certificate.model_copy(update={"valid": True, "reason": None})
    content = certificate.model_dump(mode="json")
    return {name: value for name, value in content.items() if name not in _LATER or value != _LATER[name]}


def _hash(said: list[Any]) -> str:
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
    policies: Mapping[str, SolvedPolicy], model_digest: str, voided: Mapping[str, str]
) -> Mapping[str, SolvedPolicy]:
    """Return policies with voided certificates marked, and `on_invalid` applied.

    Args:
        policies: Policies of a revision, by id.
        model_digest: Digest of the revision's model file.
        voided: Reasons of voided certificates, by their key from `key_of`.

    Returns:
        New policies; the same object if no certificate is voided.
    """
    if not voided:
        return policies
    changed = {key: _overlaid(solved, model_digest, voided) for key, solved in policies.items()}
    return changed if any(changed[key] is not policies[key] for key in policies) else policies


def _overlaid(solved: SolvedPolicy, model_digest: str, voided: Mapping[str, str]) -> SolvedPolicy:
    lost = {
        (claim.segment, claim.index): voided[key]
        for claim in claims(solved)
        for key in _keys_of(solved, claim, model_digest)
        if key in voided
    }
    if not lost:
        return solved
    reviews = solved.policy.on_invalid == "review_all"
    if not solved.segments:
        bands = _marked(solved.bands, {index: why for (_, index), why in lost.items()})
        return replace(solved, bands=bands, review_all=solved.review_all or reviews)
    segments = dict(solved.segments)
    for value in {segment for segment, _ in lost if segment is not None}:
        part = segments[value]
        bands = _marked(part.bands, {index: why for (segment, index), why in lost.items() if segment == value})
        segments[value] = SolvedSegment(bands=bands, certified=part.certified and not reviews)
    return replace(solved, segments=segments)


def _marked(bands: tuple[SolvedBand, ...], lost: Mapping[int, str]) -> tuple[SolvedBand, ...]:
    return tuple(_void(band, lost[index]) if index in lost else band for index, band in enumerate(bands))


def _void(band: SolvedBand, reason: str) -> SolvedBand:
    if band.certificate is None:
        return band
    void = band.certificate.model_copy(update={"valid": False, "reason": reason})
    return band.model_copy(update={"certificate": void})


def broken(solved: SolvedPolicy) -> dict[Metric, str]:
    """Return the metrics whose certificates an alarm voided, and why reference rows cannot certify them again."""
    why = (
        f"{ALARM}: the traffic broke this promise, so the bundle's reference rows do not represent it; only labelled "
        "traffic can certify the promise"
    )
    found: dict[Metric, str] = {}
    for bands in (solved.bands, *(part.bands for part in solved.segments.values())):
        for wanted, band in zip(solved.policy.bands, bands, strict=True):
            metric = None if wanted.condition is None else wanted.condition.metric
            reason = None if band.certificate is None else band.certificate.reason
            if metric is not None and (reason or "").startswith(ALARM):
                found[metric] = why
    return found


def broken_of_bundle(
    made: Iterable[Mapping[str, dict[str, Any]]], model_digest: str, voided: Mapping[str, str]
) -> dict[str, dict[Metric, str]]:
    """Return what `broken` finds in all revisions of a bundle, by positive class.

    Renaming a promise, or withdrawing and making it again, does not restore it.

    Args:
        made: Documents of the revisions' policies, by id.
        model_digest: Digest of the bundle's model file.
        voided: Reasons of voided certificates, by their key from `key_of`.
    """
    found: dict[str, dict[Metric, str]] = {}
    if not voided:
        return found
    documents = {json.dumps(document, sort_keys=True): document for policies in made for document in policies.values()}
    for document in documents.values():
        solved = _overlaid(SolvedPolicy.from_dict(document), model_digest, voided)
        found.setdefault(solved.policy.positive, {}).update(broken(solved))
    return found
