"""Read revisions and the audit log; reject a proposal."""

from __future__ import annotations

from typing import Any

from candor.contract import audit as contract
from candor.contract.certificates import SolvedPolicy
from candor.contract.revisions import Rejection, Revision, RevisionPage, RevisionSummary
from service.decisions import revision as domain
from service.operations.principal import Principal
from service.runtime import Runtime
from service.serving.model import Model
from service.state import audit
from service.state.revision_rows import Entry
from service.state.revisions import RevisionState
from service.times import iso


def list_revisions(runtime: Runtime, model: Model, *, limit: int, before: str | None = None) -> RevisionPage:
    """Return a page of a model's revisions, newest first, with the pointer and its epoch.

    Raises:
        UnknownRevisionError: `before` is not the id of a revision.
    """
    pointer = runtime.revisions.pointer(model.name) or model.pointer
    page = runtime.revisions.list(model.name, limit=limit + 1, before=before)
    states = runtime.revisions.states(model.name)  # read second: it has all of the page
    return RevisionPage(
        active=pointer.active,
        previous=pointer.previous,
        epoch=pointer.epoch,
        items=tuple(summary_of(entry, states[entry.id]) for entry in page[:limit]),
        next=page[limit - 1].id if len(page) > limit else None,
    )


def get_revision(runtime: Runtime, model: Model, revision: str) -> Revision:
    """Return one revision with its calibrator, thresholds, certificates and report.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
    """
    chosen = runtime.revisions.get(model.name, revision)
    states = runtime.revisions.states(model.name)
    policies = {key: SolvedPolicy.model_validate(solved.to_dict()) for key, solved in chosen.policies.items()}
    return Revision.model_construct(  # the report was stored as a document, and is shown as it is
        **described(chosen, states[chosen.id]),
        model=chosen.model,
        bundle_id=chosen.bundle_id,
        model_digest=chosen.model_digest,
        calibrator=chosen.calibrator.to_dict(),
        policies=policies,
        report=chosen.report,
    )


def reject(runtime: Runtime, model: Model, revision: str, *, reason: str, by: Principal) -> Rejection:
    """Reject a proposal: it stays in the history, and activating it requires a reason.

    Raises:
        UnknownRevisionError: The model has no revision of that id.
        RevisionStateError: It was in service, or has been rejected already.
    """
    runtime.revisions.reject(model.name, revision, by=by.name, reason=reason)
    return Rejection(id=revision, state="rejected", by=by.name, reason=reason)


def read_audit(runtime: Runtime, model: str | None, *, limit: int, before: int | None = None) -> contract.AuditPage:
    """Return a page of the audit log of a model, or of all, newest first."""
    page = audit.read(runtime.database, model, limit=limit + 1, before=before)
    items = tuple(
        contract.AuditEntry(
            id=entry.id,
            at=iso(entry.at),
            model=entry.model,
            by=entry.by,
            action=entry.action,
            subject=entry.subject,
            detail=entry.detail,
        )
        for entry in page[:limit]
    )
    return contract.AuditPage(items=items, next=page[limit - 1].id if len(page) > limit else None)


def summary_of(revision: domain.Revision | Entry, state: RevisionState) -> RevisionSummary:
    """Return a revision as it stands in a list."""
    return RevisionSummary(**described(revision, state))


def described(revision: domain.Revision | Entry, state: RevisionState) -> dict[str, Any]:
    """Return the fields of `RevisionSummary`, which its subclasses share."""
    return {
        "id": revision.id,
        "state": state,
        "parent": revision.parent,
        "bundle": revision.bundle_version,
        "cause": revision.cause,
        "by": revision.by,
        "gate": revision.gate,
        "created_at": iso(revision.created_at),
        "summary": revision.summary,
    }
