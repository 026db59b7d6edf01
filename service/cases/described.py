"""A case as the contract has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.serving.plane import Served
from service.state import cases as state
from service.state.database import now_us
from service.times import iso


def predicted_by(loaded: Mapping[str, Served], found: state.Case) -> Served | None:
    """Return a loaded revision of the model file that predicted a case."""
    digest = found.model_digest
    return next((one for one in list(loaded.values()) if one.revision.model_digest == digest), None)


def described(model: str, loaded: Mapping[str, Served], found: state.Case) -> dict[str, Any]:
    """Return the fields of `candor.contract.cases.Case`.

    Args:
        model: The model.
        loaded: Its loaded revisions, which know the names of labels.
        found: The case.
    """
    now = now_us()
    state_now = found.state(now)
    served = predicted_by(loaded, found)
    claimed = state_now == "claimed"
    return {
        "id": found.id,
        "model": model,
        "policy": found.policy,
        "state": state_now,
        "action": found.action,
        "selected": found.selected,
        "propensity": found.propensity,
        "reference": found.reference,
        "segment": found.segment,
        "predicted": None if served is None or found.predicted is None else served.labels[found.predicted],
        "confidence": found.confidence,
        "probability": found.probability,
        "amount": found.amount,
        "expected_loss": None if found.amount is None else found.probability * found.amount,
        "created_at": iso(found.created_at),
        "due_at": iso(found.due_at),
        "overdue": found.done_at is None and found.due_at < now,
        "assignee": found.assignee,
        "claimed_by": found.claimed_by if claimed else None,
        "claimed_until": iso(found.lease_until or 0) if claimed else None,
        "lease": found.lease,
        "label": found.label,
        "reason": found.reason,
        "done_by": found.done_by,
        "done_at": None if found.done_at is None else iso(found.done_at),
        "reasons": found.reasons,
    }
