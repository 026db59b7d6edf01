"""Doubts about activating a revision: who proposed it, what is untested, which certificates are lost."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.times import iso


def needs_other_key(chosen: Revision, *, name: str, prefix: str | None) -> bool:
    """Tell whether four eyes forbid a caller to activate a proposal: it made the proposal itself.

    The name counts beside the key: a rotated key keeps its name, and its holder (see `holder`). A proposal is also made
    by the key that uploaded the rows that it was fitted on. No key made a bundle's proposal: see `needs_two_keys`.

    Args:
        chosen: The proposal.
        name: Name of the caller's key.
        prefix: Public part of that key, None without one.
    """
    if chosen.cause == "bundle":
        return False
    uploaded = _uploaded(chosen.cause, chosen.report)
    names, keys = (chosen.by, uploaded.get("uploaded_by")), (chosen.by_key, uploaded.get("uploaded_by_key"))
    return holder(name) in map(holder, filter(None, names)) or (prefix is not None and prefix in keys)


def holder(name: str) -> str:
    """Return a name as four eyes compare it: two spellings of a name are one person's.

    Example:
        >>> holder("ana@bank.example") == holder("ANA@bank.example ") == holder("\uff21na@bank.example")
        True
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def needs_two_keys(chosen: Revision) -> bool:
    """Tell whether four eyes require two keys to activate a proposal: no key and no signature says who made it."""
    return chosen.cause == "bundle" and "signed_by" not in chosen.report


def doubt(
    chosen: Revision,
    active: Revision,
    policies: Mapping[str, SolvedPolicy],
    *,
    rejected: bool,
    alarm_us: int | None,
) -> str | None:
    """Return why a person must give a reason to activate a revision; None when nothing says that it may do harm.

    Args:
        chosen: The revision, neither the active nor the previous one.
        active: The active revision.
        policies: Its policies in force, with voided certificates marked.
        rejected: Whether somebody rejected it.
        alarm_us: Time of the model's last alarm, in microseconds since the epoch; None without one.
    """
    if rejected:
        return f"Revision {chosen.id} was rejected."
    if chosen.gate == "refused":
        return f"Revision {chosen.id} was refused by its gate."
    gate = chosen.report.get("gate", {})
    if any(not cap.get("holds", True) for cap in gate.get("caps", ())):
        return f"Revision {chosen.id} breaks a cap: {gate['unattended_reason']}"
    if chosen.model_digest != active.model_digest:
        return f"Revision {chosen.id} brings another model, which no gate has compared with the active one."
    if chosen.bundle_id != active.bundle_id:
        return (
            f"Revision {chosen.id} brings another bundle of the same model file. No gate has compared its calibrator, "
            "and its certificates rest on its own reference rows."
        )
    if chosen.cause == "prior_shift":
        return f"Revision {chosen.id} assumes other class frequencies, and no label has shown it to be better."
    # A dry run that is proposed later has looked at the rows before.
    if alarm_us is not None and chosen.report.get("read_at", iso(chosen.created_at)) < iso(alarm_us):
        return f"Revision {chosen.id} was made before the alarm of {iso(alarm_us)}, and so were its tests."
    if uploaded := _uploaded(chosen.cause, chosen.report):
        whose = f" by {uploaded['uploaded_by']!r}" if "uploaded_by" in uploaded else ""
        outputs = "labels and the model's outputs are" if uploaded.get("kind") == "logits" else "labels are"
        return (
            f"Revision {chosen.id} was fitted on {uploaded['labelled_set']}, which was uploaded{whose}: its {outputs} "
            "the uploader's word."
        )
    if chosen.parent != active.id:
        return (
            f"Revision {chosen.id} was made from {chosen.parent or 'nothing'}, but {active.id} is active: what came in "
            "between would be lost, and nothing has compared the two."
        )
    return " ".join(lost_certificates(chosen, active, policies)) or None


def source_of(cause: str, report: Mapping[str, Any]) -> str | None:
    """Return where the labels of a recalibration came from, in one sentence; None for other revisions.

    Args:
        cause: Cause of the revision.
        report: Its report.
    """
    if uploaded := _uploaded(cause, report):
        scored = {"inputs": ", scored by the model here", "logits": ", with the model's outputs as uploaded"}
        known = f", uploaded by {uploaded['uploaded_by']} at {uploaded['uploaded_at']}" if "rows" in uploaded else ""
        return f"Labels: labelled set {uploaded['labelled_set']}{known}{scored.get(uploaded.get('kind', ''), '')}."
    return "Labels: feedback on predictions of this service." if cause == "recalibrate" else None


def _uploaded(cause: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source of a revision that was fitted on a labelled set; empty for others."""
    source: dict[str, Any] = report.get("source") or {}
    return source if cause == "recalibrate" and source.get("labelled_set") is not None else {}


def lost_certificates(chosen: Revision, active: Revision, policies: Mapping[str, SolvedPolicy]) -> tuple[str, ...]:
    """Name the certificates of the active revision that another one loses.

    Args:
        chosen: The other revision.
        active: The active revision.
        policies: Its policies in force, with voided certificates marked.
    """
    found = []
    for key, before in policies.items():
        if key not in chosen.policies:
            found.append(f"Policy {key!r} is not part of {chosen.id}.")
            continue
        for segment, action in sorted(_held(before) - _held(chosen.policies[key])):
            of = f" for segment {segment!r}" if segment else ""
            found.append(f"Policy {key!r} loses the certificate of {action!r}{of} that {active.id} has.")
        for segment in sorted(_held_sets(before) - _held_sets(chosen.policies[key])):
            of = f" for segment {segment!r}" if segment else ""
            found.append(f"Policy {key!r} loses the certified prediction sets{of} that {active.id} has.")
    return tuple(found)


def _held(solved: SolvedPolicy) -> set[tuple[str, str]]:
    """Return the (segment, action) pairs whose promise is certified and in force; "" stands for no segment."""
    parts = solved.parts or {"": solved}
    return {
        (segment, band.action)
        for segment, part in parts.items()
        for band in part.bands
        if not part.review_all and band.certificate is not None and band.certificate.valid
    }


def _held_sets(solved: SolvedPolicy) -> set[str]:
    """Return the segments whose prediction sets are certified; "" stands for all rows."""
    return {segment for segment, one in solved.sets.items() if one.valid}
