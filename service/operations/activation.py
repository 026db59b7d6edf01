"""Put a revision into service, or go back to the one before; what speaks against it, and who may do it."""

from __future__ import annotations

from candor.contract.revisions import Pointer
from service.decisions import approval
from service.decisions.approval import lost_certificates, needs_other_key
from service.decisions.revision import Revision
from service.errors import ForbiddenError, RevisionStateError
from service.operations.principal import Principal
from service.runtime import Runtime
from service.serving.model import Model
from service.state import pointers
from service.state.revisions import RevisionState

_WAS_IN_SERVICE: tuple[RevisionState, ...] = ("active", "previous", "superseded")


def activate(
    runtime: Runtime, model: Model, revision: str, *, expected_epoch: int, reason: str | None, by: Principal
) -> Pointer:
    """Put a revision into service; `warnings` of the answer name the certificates that are lost.

    Args:
        runtime: The running service.
        model: The model.
        revision: Id of the revision.
        expected_epoch: Epoch that the decision is based on.
        reason: Why, for the audit log; required where there is a doubt.
        by: Who activates it.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
        EpochStaleError: The pointer has moved since `expected_epoch`.
        ForbiddenError: Four eyes are required, and this key proposed the revision.
        RevisionStateError: There is a doubt and no reason, or it is active already.
        BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
    """
    runtime.revisions.check_epoch(model.name, expected_epoch)  # a doubt is about what is active now
    chosen = runtime.revisions.get(model.name, revision)
    state = runtime.revisions.states(model.name)[chosen.id]
    proposal = state not in _WAS_IN_SERVICE
    if runtime.settings.four_eyes and proposal and needs_other_key(chosen, name=by.name, prefix=by.prefix):
        raise ForbiddenError(
            f"Revision {chosen.id} requires a second person: this key proposed it.",
            where="Authorization",
            found=by.prefix or "no key",
            expected=f"a key with scope approve other than {chosen.by_key or 'none'}",
            remedy="Let somebody else activate it; CANDOR_FOUR_EYES requires that.",
        )
    why = doubt(runtime, model, chosen, state)
    if reason is None and why is not None:
        raise RevisionStateError(
            why,
            where="/reason",
            found="no reason given",
            expected="a reason",
            remedy='Send {"reason": "…"} to activate it nevertheless; the audit log keeps it.',
        )
    warnings = lost_certificates(chosen, model.served.revision, model.served.policies)
    pointer = runtime.models.activate(model.name, revision, expected_epoch=expected_epoch, by=by.name, reason=reason)
    return _moved(pointer, warnings)


def rollback(runtime: Runtime, model: Model, *, expected_epoch: int, reason: str | None, by: Principal) -> Pointer:
    """Put the previous revision back into service.

    Raises:
        EpochStaleError: The pointer has moved since `expected_epoch`.
        RevisionStateError: The model has no previous revision, or is unloaded.
        BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
    """
    moved = runtime.models.rollback(model.name, expected_epoch=expected_epoch, by=by.name, reason=reason)
    return _moved(moved)


def doubt(runtime: Runtime, model: Model, chosen: Revision, state: RevisionState) -> str | None:
    """Return why activating a revision requires a reason, None when it does not."""
    active = model.served.revision
    if chosen.id in (active.id, model.pointer.previous):
        return None
    alarm_us = runtime.monitors.last_alarm(model.name)
    return approval.doubt(chosen, active, rejected=state == "rejected", alarm_us=alarm_us)


def _moved(pointer: pointers.Pointer, warnings: tuple[str, ...] | None = None) -> Pointer:
    moved = {"active": pointer.active, "previous": pointer.previous, "epoch": pointer.epoch}
    return Pointer(**moved) if warnings is None else Pointer(**moved, warnings=warnings)
