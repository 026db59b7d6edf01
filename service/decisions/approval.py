"""Doubts about activating a revision: who proposed it, what is untested, which certificates are lost."""

from __future__ import annotations

from collections.abc import Mapping

from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.times import iso


def needs_other_key(chosen: Revision, *, name: str, prefix: str | None) -> bool:
    """Tell whether four eyes forbid a caller to activate a proposal: it made the proposal itself.

    The name counts beside the key: a rotated key keeps its name, and its holder.

    Args:
        chosen: The proposal.
        name: Name of the caller's key.
        prefix: Public part of that key, None without one.
    """
    return chosen.cause != "bundle" and (chosen.by == name or (prefix is not None and chosen.by_key == prefix))


def doubt(chosen: Revision, active: Revision, *, rejected: bool, alarm_us: int | None) -> str | None:
    """Return why a revision may do harm in place of the active one, None when nothing says so.

    Args:
        chosen: The revision, neither the active nor the previous one.
        active: The active revision.
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
    if chosen.cause == "prior_shift":
        return f"Revision {chosen.id} assumes other class frequencies, and no label has shown it to be better."
    # A dry run that is proposed later has looked at the rows before.
    if alarm_us is not None and chosen.report.get("read_at", iso(chosen.created_at)) < iso(alarm_us):
        return f"Revision {chosen.id} was made before the alarm of {iso(alarm_us)}, and so were its tests."
    if chosen.parent != active.id:
        return (
            f"Revision {chosen.id} was made from {chosen.parent or 'nothing'}, but {active.id} is active: what came in "
            "between would be lost, and nothing has compared the two."
        )
    return None


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
