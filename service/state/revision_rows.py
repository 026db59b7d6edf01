"""Revisions as rows of the state: the mapping of both, and errors for ids that a model does not have."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from calibrators import CalibrationError
from service.decisions.multicalibrated import restored
from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.errors import PolicyError, RevisionStateError, UnknownRevisionError
from service.state.numbering import number_in
from service.state.tables import revisions


@dataclass(frozen=True, slots=True)
class Entry:
    """A revision in a list, without its content; see `Revision`."""

    id: str
    parent: str | None
    bundle_version: int
    cause: str
    by: str
    gate: str
    created_at: int
    summary: str | None


@dataclass(frozen=True, slots=True)
class Solution:
    """A revision's solved policies, bundle and calibrator, without its report."""

    id: str
    parent: str | None
    cause: str
    calibrator: dict[str, Any]
    policies: dict[str, dict[str, Any]]


FIELDS = tuple(field.name for field in dataclasses.fields(Revision) if field.name != "id")
SELECT = select(revisions.c.number, *(revisions.c[name] for name in FIELDS))


ENTRIES = select(
    revisions.c.number,
    revisions.c.parent,
    revisions.c.bundle_version,
    revisions.c.cause,
    revisions.c.by,
    revisions.c.gate,
    revisions.c.created_at,
    revisions.c.report["summary"].as_string(),
)


def revision_of(row: Row[Any]) -> Revision:
    """Return the revision in a row of `SELECT`.

    Raises:
        RevisionStateError: Its calibrator or a policy cannot be read.
    """
    fields = {name: getattr(row, name) for name in FIELDS}
    try:
        fields["calibrator"] = restored(row.calibrator)
        fields["policies"] = {key: SolvedPolicy.from_dict(document) for key, document in row.policies.items()}
    except (CalibrationError, PolicyError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise RevisionStateError(
            f"Revision r{row.number} of {row.model} cannot be read: {error!r}",
            where=f"r{row.number}",
            remedy="If a newer version of the service made it, update the service.",
        ) from error
    return Revision(f"r{row.number}", **fields)


def number_of(model: str, id_: str) -> int:
    """Return the number in an id; raises UnknownRevisionError."""
    number = number_in("r", id_)
    if number is None:
        raise UnknownRevisionError(f"{model} has no revision {id_}.", found=id_, expected='"r" and a number')
    return number


def revision_in(connection: Connection, model: str, id_: str) -> Revision:
    """Return one revision; raises UnknownRevisionError or RevisionStateError."""
    query = SELECT.where(revisions.c.model == model, revisions.c.number == number_of(model, id_))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _unknown(model, id_)
    return revision_of(row)


def check_known(connection: Connection, model: str, id_: str) -> None:
    """Raise UnknownRevisionError unless the model has a revision."""
    same = (revisions.c.model == model, revisions.c.number == number_of(model, id_))
    if connection.execute(select(revisions.c.number).where(*same)).first() is None:
        raise _unknown(model, id_)


def _unknown(model: str, id_: str) -> UnknownRevisionError:
    return UnknownRevisionError(
        f"{model} has no revision {id_}.", found=id_, remedy=f"List the revisions of {model} to see those it has."
    )
