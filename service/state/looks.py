"""Looks: recorded uses of certify and gate rows."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import and_, func, insert, select

from candor.contract.certificates import Basis
from service.state import audit
from service.state.database import SET_BACK_US, Database
from service.state.numbering import take_number
from service.state.tables import exposures, feedback_batches


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
    by: str = "system",
) -> int:
    """Record a look before its result is computed, and return its number (statistics.md, "Looks").

    Every earlier look that is not before the oldest of the rows counts, because it may have used some of them. Looks at
    reference rows count per model file. Looks at traffic or uploads count over all files of a model, because their
    labels stay the same.

    Args:
        database: Open state.
        model: The model.
        model_digest: Digest of the file that made the rows' logits.
        rows: Role of the rows.
        basis: Source of the rows.
        scope: Purpose: a policy's positive class; "" for the gate.
        earliest_row_us: Time of the oldest row; 0 for reference rows, so that every look counts.
        at: Time of this look.
        by: Actor.

    Returns:
        1 + the number of earlier looks with this model, role, basis and scope (for reference rows also this digest)
        that were not before `earliest_row_us`.
    """
    key = {"model": model, "model_digest": model_digest, "rows": rows, "basis": basis, "scope": scope}
    counted = key if basis == "reference" else {name: key[name] for name in key if name != "model_digest"}
    same = and_(*(exposures.c[name] == value for name, value in counted.items()))
    with database.begin() as connection:
        take_number(connection, f"exposure/{model}")
        last = connection.execute(select(func.max(exposures.c.at)).where(same)).scalar()
        # A clock that was set back must not make a look disappear, whether its rows are old or labelled since.
        received = feedback_batches.c.received_at
        known = (feedback_batches.c.model == model, received <= at + SET_BACK_US)
        labelled = connection.execute(select(func.max(received)).where(*known)).scalar()
        at = max(at, last or 0, labelled or 0)
        count = select(func.count()).where(same, exposures.c.at >= earliest_row_us)
        look = connection.execute(count).scalar_one() + 1
        connection.execute(insert(exposures).values(**key, look=look, earliest_row=earliest_row_us, at=at))
        detail = {"basis": basis, "scope": scope, "model_digest": model_digest, "look": look}
        audit.append(connection, model=model, by=by, action="look", subject=rows, detail=detail)
    return look
