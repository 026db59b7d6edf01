"""Cases whose state was not sent to the webhook yet.

`told` is the time of the end that was delivered, 0 for a waiting case. A change of the case itself makes it untold: no
event is written beside it, so none can be lost, and several changes in a row are sent as one.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import literal_column, select, update

from service.state.cases import Case
from service.state.database import Database
from service.state.tables import UNTOLD, cases


class Untold(NamedTuple):
    """A case, and what was told of it last; None for nothing."""

    model: str
    id: str
    told: int | None


def untold(database: Database, at_most: int) -> list[Untold]:
    """Return the first untold cases, oldest prediction first."""
    query = select(cases.c.model, cases.c.id, cases.c.told).where(literal_column(UNTOLD))
    with database.connect() as connection:
        return [Untold(*row) for row in connection.execute(query.order_by(cases.c.id).limit(at_most))]


def tell(database: Database, case: Case) -> None:
    """Note that the state of a case was delivered."""
    with database.begin() as connection:
        connection.execute(update(cases).where(cases.c.id == case.id).values(told=case.done_at or 0))
