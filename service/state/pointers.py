"""The pointer to a model's active revision, read and moved inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, insert, select

from service.errors import EpochRequiredError, EpochStaleError
from service.state import audit, guards
from service.state.database import now_us
from service.state.tables import activations

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Pointer:
    """A model's pointer.

    Attributes:
        active: Id of the active revision.
        previous: Id of the revision that a rollback activates; None without one.
        epoch: Increases with every activation and rollback of any model.
    """

    active: str
    previous: str | None
    epoch: int


def pointer_in(connection: Connection, model: str) -> Pointer | None:
    """Return a model's pointer, None before its first activation."""
    query = (
        select(activations.c.active, activations.c.previous, activations.c.epoch)
        .where(activations.c.model == model)
        .order_by(activations.c.epoch.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Pointer(row.active, row.previous, row.epoch)


def activations_in(connection: Connection, model: str, span: tuple[int, int], at_most: int) -> list[tuple[int, str]]:
    """Return time and revision of a model's newest activations in a span, oldest first."""
    here = activations.c.model == model, activations.c.at >= span[0], activations.c.at < span[1]
    query = select(activations.c.at, activations.c.active).where(*here).order_by(activations.c.epoch.desc())
    return [(row.at, row.active) for row in connection.execute(query.limit(at_most))][::-1]


def checked_pointer(connection: Connection, model: str, expected: int | None) -> Pointer | None:
    """Return the pointer if it has the caller's epoch.

    Raises:
        EpochStaleError: The epoch has moved on; `found` is the current one, `expected` the caller's.
        EpochRequiredError: The epoch is missing, and the model has an active revision.
    """
    pointer = pointer_in(connection, model)
    found = pointer.epoch if pointer else 0
    if expected is None:
        if pointer is not None:
            raise EpochRequiredError(
                f"{model} has an active revision, so a change must name the epoch that it is based on.",
                found="no epoch",
                expected=found,
                remedy="Read the model's revisions and send their ETag as If-Match.",
            )
    elif expected != found:
        raise EpochStaleError(
            f"{model} is at epoch {found}, but the request is based on epoch {expected}.",
            found=found,
            expected=expected,
            remedy="Read the model's revisions again, then decide again.",
        )
    return pointer


def move(
    connection: Connection,
    model: str,
    to: Pointer,
    *,
    by: str,
    action: str,
    reason: str | None,
    from_: Pointer | None,
    detail: Mapping[str, Any] = _NOTHING,
) -> None:
    """Point a model at another revision, end its guard, and record it in the audit log, with further details."""
    guards.end(connection, model)
    row = {"model": model, "active": to.active, "previous": to.previous, "epoch": to.epoch}
    connection.execute(insert(activations).values(**row, at=now_us(), by=by, reason=reason))
    moved = {"epoch": to.epoch, "from": from_.active if from_ else None, "reason": reason}
    audit.append(connection, model=model, by=by, action=action, subject=to.active, detail={**moved, **detail})
