"""Which models should be loaded, as operators last said; every replica follows."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from service.state import audit
from service.state.database import Database
from service.state.insertion import insert_for
from service.state.numbering import take_number
from service.state.tables import desired


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be with one model.

    Attributes:
        loaded: Whether it should be served.
        change: Grows with every change of any model, so that what was read earlier can be told from what is newer.
    """

    loaded: bool
    change: int


UNSAID = Desired(loaded=True, change=0)
"""Of a model that nobody ever loaded or unloaded: it is served."""


class DesiredStore:
    """The desired state of all models; every change is one transaction with its audit entry.

    All methods raise StateUnavailableError when the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, Desired]:
        """Return what was said of each model that something was said of."""
        with self._database.connect() as connection:
            return {row.model: Desired(row.loaded, row.change) for row in connection.execute(select(desired))}

    def set(self, model: str, *, loaded: bool, by: str) -> Desired:
        """Say whether a model should be served.

        Args:
            model: The model.
            loaded: Whether it should be.
            by: Who says so, for the audit log.
        """
        with self._database.begin() as connection:
            said = Desired(loaded, take_number(connection, "desired"))
            values = {"loaded": said.loaded, "change": said.change}
            insert = insert_for(connection, desired).values(model=model, **values)
            connection.execute(insert.on_conflict_do_update(index_elements=["model"], set_=values))
            audit.append(connection, model=model, by=by, action="load" if loaded else "unload", subject=model)
        return said
