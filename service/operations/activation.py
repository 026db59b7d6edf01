"""Put a revision into service, or go back to the one before; what speaks against it, and who may do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from candor.contract.revisions import ActivationRequest, GuardRequest, Pointer
from candor.contract.traffic import Guard, TrafficChange
from service.decisions import approval
from service.decisions.approval import lost_certificates, needs_other_key, needs_two_keys
from service.decisions.revision import Revision
from service.decisions.traffic import ENOUGH_ROWS
from service.errors import ForbiddenError, RevisionStateError
from service.monitoring.guard import LEVEL
from service.operations.principal import Principal
from service.places import in_body, in_header
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served
from service.serving.replay import replay
from service.state import pointers
from service.state.guards import StoredGuard, Watch
from service.state.revisions import RevisionState
from service.times import iso

_WAS_IN_SERVICE: tuple[RevisionState, ...] = ("active", "previous", "superseded")


@dataclass(frozen=True, slots=True)
class Prospect:
    """What activating a revision would mean.

    Attributes:
        revision: The revision.
        doubt: Why activating it requires a reason; None when it does not.
        change: What it would do to recent predictions.
        must_accept: Whether that change must be accepted.
    """

    revision: Revision
    doubt: str | None
    change: TrafficChange
    must_accept: bool


def prospect(runtime: Runtime, model: Model, revision: str, *, expected_epoch: int) -> Prospect:
    """Return what `activate` would find, and change nothing.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
        EpochStaleError: The pointer has moved since `expected_epoch`.
        BundleRefusedError: The revision's bundle cannot be loaded.
    """
    runtime.revisions.check_epoch(model.name, expected_epoch)
    chosen = runtime.revisions.get(model.name, revision)
    state = runtime.revisions.states(model.name)[chosen.id]
    change = traffic_change(runtime, model, revision)
    return Prospect(chosen, _doubt(runtime, model, chosen, state), change, _must_accept(change, state))


def activate(
    runtime: Runtime, model: Model, revision: str, request: ActivationRequest, *, expected_epoch: int, by: Principal
) -> Pointer:
    """Put a revision into service, after a replay of recent predictions.

    `warnings` of the answer name the certificates that are lost, and `traffic` says what happens to the traffic.

    Args:
        runtime: The running service.
        model: The model.
        revision: Id of the revision.
        request: Why, required where there is a doubt; and what the caller accepts.
        expected_epoch: Epoch that the decision is based on.
        by: Who activates it.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
        EpochStaleError: The pointer has moved since `expected_epoch`.
        ForbiddenError: Four eyes are required, and this key proposed the revision, or is the first of two to approve
            a bundle, which is recorded.
        RevisionStateError: There is a doubt and no reason, a change of the traffic beyond the limit is not accepted, or
            it is active already.
        BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
    """
    runtime.revisions.check_epoch(model.name, expected_epoch)  # a doubt is about what is active now
    if model.pointer.epoch != expected_epoch:
        runtime.models.follow()  # another replica has moved the pointer
    if model.pointer.epoch != expected_epoch:
        raise RevisionStateError(
            f"This replica does not serve the active revision of {model.name} yet.",
            where="revision",
            found=f"epoch {model.pointer.epoch}",
            expected=f"epoch {expected_epoch}",
            remedy="Repeat the request; /readyz says what is missing.",
        )
    chosen = runtime.revisions.get(model.name, revision)
    state = runtime.revisions.states(model.name)[chosen.id]
    proposal = state not in _WAS_IN_SERVICE
    if runtime.settings.four_eyes and proposal and needs_other_key(chosen, name=by.name, prefix=by.prefix):
        raise ForbiddenError(
            f"Revision {chosen.id} requires a second person: this key proposed it.",
            where=in_header("Authorization"),
            found=by.prefix or "no key",
            expected=f"a key with scope approve other than {chosen.by_key or 'none'}",
            remedy="Let somebody else activate it; CANDOR_FOUR_EYES requires that.",
        )
    why = _doubt(runtime, model, chosen, state)
    if request.reason is None and why is not None:
        raise RevisionStateError(
            why,
            where=in_body("reason"),
            found="no reason given",
            expected="a reason",
            remedy='Send {"reason": "…"} to activate it nevertheless (candor activate --reason …); '
            "the audit log keeps it.",
        )
    if runtime.settings.four_eyes and proposal and needs_two_keys(chosen):
        _check_approved(runtime, model, chosen, request.reason, by)
    before = model.served
    warnings = lost_certificates(chosen, before.revision, before.policies)
    with runtime.models.prepared(model.name, chosen) as after:
        change = replay(runtime.database, before, after, _limit(runtime, request.max_change))
        if _must_accept(change, state):
            _check_accepted(change, request)
        pointer = runtime.models.activate(
            model.name,
            chosen.id,
            expected_epoch=expected_epoch,
            by=by.name,
            reason=request.reason,
            accepted=change.exceeds,
            watch=None if request.guard is None else _watch(runtime, request.guard, change, before, after),
        )
    guard = None if request.guard is None else runtime.monitors.guard(model.name)
    of_guard = {} if guard is None else {"guard": guard_of(guard)}
    return Pointer(**_moved(pointer), warnings=warnings, traffic=change, **of_guard)


def _check_approved(runtime: Runtime, model: Model, chosen: Revision, reason: str | None, by: Principal) -> None:
    if not runtime.revisions.approve(model.name, chosen.id, by=by.name, by_key=by.prefix, reason=reason):
        raise ForbiddenError(
            f"Revision {chosen.id} is a bundle that no trusted key has signed, so it requires two people. Your "
            "approval is recorded.",
            where=in_header("Authorization"),
            found="one approval",
            expected="two keys with scope approve, of two people",
            remedy="Let somebody else activate it; CANDOR_FOUR_EYES requires that.",
        )


def guard_of(guard: StoredGuard) -> Guard:
    """Return a guard as an answer shows it."""
    return Guard(
        state=guard.state,
        revision=guard.revision,
        previous=guard.previous,
        since=iso(guard.since),
        until=iso(guard.until),
        max_change=guard.max_change,
        level=LEVEL,
        looks=guard.looks,
        before=guard.document.get("before", {}),
        after=guard.document.get("after", {}),
        reason=guard.document.get("reason"),
    )


def _watch(runtime: Runtime, wanted: GuardRequest, change: TrafficChange, before: Served, after: Served) -> Watch:
    """Return the guard that a request asks for; refuse one that sees nothing, or would fire at once."""
    limit = runtime.settings.limit_action_change if wanted.max_change is None else wanted.max_change
    shared = before.policies.keys() & after.policies.keys()
    if not shared or runtime.settings.log_mode == "off":
        raise RevisionStateError(
            "A guard requires logged decisions of a policy that both revisions have.",
            where=in_body("guard"),
            found="CANDOR_LOG_MODE=off" if shared else "no policy that both revisions have",
            expected="a policy that both revisions have, and a log",
            remedy="Activate it without a guard.",
        )
    for policy, mix in change.policies.items():
        if mix.rows >= ENOUGH_ROWS and mix.largest > limit:
            raise RevisionStateError(
                f"The guard would roll back: on recent predictions, policy {policy!r} changes a share by "
                f"{100 * mix.largest:.1f} points.",
                where=in_body("guard", "max_change"),
                found=limit,
                expected=f"more than {mix.largest:.4f}",
                remedy="Allow a larger change, or activate it without a guard.",
            )
    claims = sum(len({*before.policies[key].actions, *after.policies[key].actions}) for key in shared)
    return Watch(window_us=int(wanted.window * 1e6), max_change=limit, claims=claims)


def traffic_change(runtime: Runtime, model: Model, revision: str, max_change: float | None = None) -> TrafficChange:
    """Return what activating a revision would do to recent predictions.

    Args:
        runtime: The running service.
        model: The model.
        revision: Id of the revision.
        max_change: Limit of a change; can only tighten the service's.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
        NotReadyError: The model serves no revision.
        BundleRefusedError: The revision's bundle cannot be loaded.
    """
    before = model.served
    with runtime.models.prepared(model.name, runtime.revisions.get(model.name, revision)) as after:
        return replay(runtime.database, before, after, _limit(runtime, max_change))


def _limit(runtime: Runtime, wanted: float | None) -> float:
    limit = runtime.settings.limit_action_change
    return limit if wanted is None else min(limit, wanted)


def _must_accept(change: TrafficChange, state: RevisionState) -> bool:
    return bool(change.exceeds) and state != "previous"  # that is a rollback, which nothing may delay


def _check_accepted(change: TrafficChange, request: ActivationRequest) -> None:
    if not (request.accept_change and request.reason is not None):
        raise RevisionStateError(
            " ".join(change.exceeds),
            where=in_body("reason" if request.accept_change else "accept_change"),
            found="no reason given" if request.accept_change else False,
            expected="accept_change: true, and a reason",
            remedy='Send {"accept_change": true, "reason": "…"} to activate it nevertheless (candor activate '
            "--yes-i-mean --reason …); the audit log keeps it.",
        )


def rollback(runtime: Runtime, model: Model, *, expected_epoch: int, reason: str | None, by: Principal) -> Pointer:
    """Put the previous revision back into service.

    Raises:
        EpochStaleError: The pointer has moved since `expected_epoch`.
        RevisionStateError: The model has no previous revision, or is unloaded.
        BundleRefusedError: Its bundle cannot be loaded; nothing has changed.
    """
    moved = runtime.models.rollback(model.name, expected_epoch=expected_epoch, by=by.name, reason=reason)
    return Pointer(**_moved(moved))


def _doubt(runtime: Runtime, model: Model, chosen: Revision, state: RevisionState) -> str | None:
    """Return why activating a revision requires a reason, None when it does not."""
    active = model.served.revision
    if chosen.id in (active.id, model.pointer.previous):
        return None
    alarm_us = runtime.monitors.last_alarm(model.name)
    return approval.doubt(chosen, active, model.served.policies, rejected=state == "rejected", alarm_us=alarm_us)


def _moved(pointer: pointers.Pointer) -> dict[str, Any]:
    return {"active": pointer.active, "previous": pointer.previous, "epoch": pointer.epoch}
