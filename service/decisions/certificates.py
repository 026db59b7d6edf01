"""Certificates of a solved policy, as answers and reports show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from candor.contract.certificates import SolvedBand
from service.decisions.solved import SolvedPolicy

_MOST_NAMES = 5


def certificates(solved: SolvedPolicy) -> dict[str, Any]:
    """Return the certificates of a policy.

    Args:
        solved: The solved policy.

    Returns:
        `review_all`: whether every row goes to review (with segments: to the fallback), for lack of a certificate;
        `certified`: certificates by action; `segments`: `of_segment` of each segment, if there are segments.
    """
    document: dict[str, Any] = {"review_all": decides_nothing(solved), "certified": solved.certified}
    if solved.segments:
        document["segments"] = {value: of_segment(part) for value, part in solved.parts.items()}
    if solved.sets:
        document["sets"] = solved.certified_sets
    return document


def of_segment(part: SolvedPolicy) -> dict[str, Any]:
    """Return the certificates of one segment by action, and whether its rows get the fallback."""
    return {"uses_fallback": part.review_all, "certified": part.certified}


def decides_nothing(solved: SolvedPolicy) -> bool:
    """Return whether every row of every segment goes to review or to the fallback."""
    return solved.review_all and not any(part.certified for part in solved.segments.values())


def lost(before: SolvedPolicy, after: SolvedPolicy) -> Iterator[str | None]:
    """Yield the segments that lost a certificate; None for a policy without segments.

    This includes a threshold that still decides, but without its former certificate.
    """
    for value, one in before.sets.items():
        if one.valid and (value not in after.sets or not after.sets[value].valid):
            yield value or None
    yield from lost_bands(before, after)


def lost_bands(before: SolvedPolicy, after: SolvedPolicy) -> Iterator[str | None]:
    """Yield the segments whose bands lost a certificate, as `lost` does; lost prediction sets do not count."""
    if not before.segments:
        if (after.review_all and not before.review_all) or _fewer(before.bands, after.bands):
            yield None
        return
    for value, part in before.segments.items():
        now = after.segments[value]
        if (part.certified and not now.certified) or _fewer(part.bands, now.bands):
            yield value


def _fewer(before: tuple[SolvedBand, ...], after: tuple[SolvedBand, ...]) -> bool:
    return any(old.stands and not new.stands for old, new in zip(before, after, strict=True))


def objections(part: SolvedPolicy) -> Iterator[tuple[str, str]]:
    """Yield the uncertified actions of a policy or a segment, with the reason."""
    for band in part.bands:
        if band.certificate is not None and band.certificate.reason is not None:
            yield band.action, band.certificate.reason


def warnings(solved: SolvedPolicy) -> list[str]:
    """Return sentences on what is not certified, what happens to the rows, and how many labels are missing.

    Example:
        >>> from service.decisions.certify import solve
        >>> from service.decisions.policy import parse_policy
        >>> from service.decisions.rows import ScoredRows
        >>> import numpy as np
        >>> bands = [{"action": "accept", "when": {"min_precision": 0.95}}, {"action": "review"}]
        >>> policy = parse_policy({"id": "p", "bands": bands, "segments": {"values": ["DE"]}})
        >>> p = np.linspace(0.5, 1.0, 300, dtype=np.float32)
        >>> rows = ScoredRows(probability=p, score=p, positive=p > 0.6)  # of no segment
        >>> print(warnings(solve(policy, version=1, fit=rows, certify=rows, look=1, basis="reference"))[0])
        Every row of segment 'DE' gets 'review': accept is not certified, because the bundle has no reference rows of
        this segment; at least 72 labelled rows at or above the threshold are needed, if none of them is an error.
    """
    parts: list[tuple[str | None, SolvedPolicy]] = [*solved.parts.items()] if solved.segments else [(None, solved)]
    found = []
    for value, part in parts:
        of = "" if value is None else f" of segment {value!r}"
        happens = f"Every row{of} gets {solved.policy.fallback!r}" if part.review_all else f"Thresholds{of} stay"
        found += [f"{happens}: {action} is not certified, because {reason}." for action, reason in objections(part)]
    for value, one in solved.sets.items():
        of = "" if not value else f" of segment {value!r}"
        if one.reason is not None:
            found.append(f"Prediction sets{of} have every label: they are not certified, because {one.reason}.")
        elif one.always:
            some = ", ".join(map(repr, one.always[:_MOST_NAMES])) + (" …" if len(one.always) > _MOST_NAMES else "")
            found.append(f"{some} are in every prediction set{of}: each needs {one.needed} labelled rows.")
    return found
