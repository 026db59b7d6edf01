"""Looks: recorded uses of certify and gate rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select

from candor.contract.certificates import Basis
from candor.contract.policies import Policy
from service.state import audit
from service.state.database import SET_BACK_US, Database
from service.state.numbering import take_number
from service.state.tables import exposures, feedback_batches
from service.times import start_of_year_us

SETS: Final = "*set"
"""Scope of prediction sets: their promise is about all classes, so another positive class is another look at it."""

_GROUPS = np.dtype("<i8")
_LABELLED: Final = ("traffic", "uploaded")  # the same labels may come as feedback and in a labelled set


class Look(NamedTuple):
    """A recorded look.

    Attributes:
        number: 1 + the number of earlier looks that may have shown one of its rows.
        ordinal: Its number among all looks at this model, for the seed of its draws.
        spent: Its number among the looks of its year (UTC) at rows of the same role and scope, reference rows apart.
    """

    number: int
    ordinal: int
    spent: int = 1


def scopes_of(policy: Policy) -> tuple[str, ...]:
    """Return the scopes in which a policy looks at certify rows."""
    return (policy.positive,) if policy.set is None else (policy.positive, SETS)


def latest(looks: Iterable[Look]) -> Look:
    """Return one look for those of a policy in all its scopes: each number is the largest."""
    return Look(*map(max, zip(*looks, strict=True)))


def record_look(
    database: Database,
    model: str,
    model_digest: str,
    rows: Literal["gate", "certify"],
    basis: Basis,
    scope: str,
    *,
    earliest_row_us: int,
    at: int,
    groups: NDArray[np.int64] | None = None,
    reference: str | None = None,
    by: str = "system",
) -> Look:
    """Record a look before its result is computed, and return its numbers (statistics.md, "Looks").

    An earlier look counts if it was not before the oldest of the rows, because it may have used some of them, or if it
    showed one of their groups, because the same inputs may return under new ids, or in an upload. Looks at traffic or
    uploads count over all files of a model, because their labels stay the same. Of looks at reference rows, those count
    that showed these rows, in any bundle or model, and those since a row of them was first shown, in any bundle of the
    model.

    Args:
        database: Open state.
        model: The model.
        model_digest: Digest of the file that made the rows' logits.
        rows: Role of the rows.
        basis: Source of the rows.
        scope: Purpose: one of a policy's `scopes_of`; "" for the gate.
        earliest_row_us: Time of the oldest row; 0 for reference rows, so that every look counts.
        at: Time of this look.
        groups: Groups of the rows, of reference rows `row_digests`; None if every look counts.
        reference: `fingerprint` of reference rows; None for others.
        by: Actor.
    """
    key = {"model": model, "model_digest": model_digest, "rows": rows, "basis": basis, "scope": scope}
    same = _same(key, reference)
    with database.begin() as connection:
        ordinal = take_number(connection, f"exposure/{model}")
        if reference is not None:
            take_number(connection, f"exposure/{reference}")  # other models may have the same rows
        last = connection.execute(select(func.max(exposures.c.at)).where(same)).scalar()
        # A clock that was set back must not make a look disappear, whether its rows are old or labelled since.
        received = feedback_batches.c.received_at
        known = (feedback_batches.c.model == model, received <= at + SET_BACK_US)
        labelled = connection.execute(select(func.max(received)).where(*known)).scalar()
        at = max(at, last or 0, labelled or 0)
        counted, packed = and_(same, exposures.c.at >= earliest_row_us), None
        if groups is not None:
            of_model = and_(*_in_model(key))
            first, new = _first_shown(connection, of_model, groups)
            packed = new.astype(_GROUPS).tobytes()
            if first is not None:
                counted = or_(counted, and_(of_model, exposures.c.id >= first))
        look = connection.execute(select(func.count()).where(counted)).scalar_one() + 1
        year = select(func.count()).where(*_in_model(key), exposures.c.at >= start_of_year_us(at))
        spent = connection.execute(year).scalar_one() + 1
        shown = {"groups": packed, "reference": reference}
        connection.execute(insert(exposures).values(**key, look=look, earliest_row=earliest_row_us, at=at, **shown))
        detail = {"basis": basis, "scope": scope, "model_digest": model_digest, "look": look}
        audit.append(connection, model=model, by=by, action="look", subject=rows, detail=detail)
    return Look(look, ordinal, spent)


def _purpose(key: dict[str, str]) -> list[ColumnElement[bool]]:
    return [exposures.c[name] == key[name] for name in ("rows", "basis", "scope")]


def _in_model(key: dict[str, str]) -> list[ColumnElement[bool]]:
    """Return the conditions on looks of a model that share delta: at reference rows, or at traffic and uploads."""
    bases = _LABELLED if key["basis"] in _LABELLED else (key["basis"],)
    return [exposures.c.basis.in_(bases), *(exposures.c[name] == key[name] for name in ("model", "rows", "scope"))]


def _same(key: dict[str, str], reference: str | None) -> ColumnElement[bool]:
    """Return the condition on looks that may have shown the same rows."""
    purpose = _purpose(key)
    if key["basis"] != "reference":
        return and_(exposures.c.model == key["model"], *purpose)
    before_fingerprints = [exposures.c[name] == key[name] for name in ("model", "model_digest")]
    known = and_(exposures.c.reference.is_(None), *before_fingerprints)
    return and_(known if reference is None else or_(known, exposures.c.reference == reference), *purpose)


def _first_shown(
    connection: Connection, of_model: ColumnElement[bool], groups: NDArray[np.int64]
) -> tuple[int | None, NDArray[np.int64]]:
    """Return the first look that showed one of these groups, and the groups that none has shown.

    Each look keeps the groups that it was the first to show, so the state holds every group once.
    """
    new, first = np.unique(groups), None
    columns = select(exposures.c.id, exposures.c.groups).where(of_model, exposures.c.groups.is_not(None))
    for look, packed in connection.execute(columns.order_by(exposures.c.id)):
        seen = np.isin(new, np.frombuffer(packed, _GROUPS))
        if seen.any():
            first, new = first or look, new[~seen]
    return first, new
