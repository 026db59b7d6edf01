"""The desired state of models (loaded or not), set by operators and followed by every replica."""

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
    """The desired state of a model.

    Attributes:
        loaded: Whether it should be served.
        change: Number of the change, increasing over all models; tells newer values from older ones.
    """

    loaded: bool
    change: int


UNSAID = Desired(loaded=True, change=0)
"""Default of a model that was never loaded or unloaded: it is served."""


class DesiredStore:
    """The desired state of all models; every change is one transaction with its audit entry.

    All methods raise StateUnavailableError when the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, Desired]:
        """Return the desired state of each model that was ever loaded or unloaded."""
        with self._database.connect() as connection:
            return {row.model: Desired(row.loaded, row.change) for row in connection.execute(select(desired))}

    def set(self, model: str, *, loaded: bool, by: str) -> Desired:
        """Set whether a model should be served.

        Args:
            model: The model.
            loaded: Whether it should be served.
            by: Actor for the audit log.
        """
        with self._database.begin() as connection:
            said = Desired(loaded, take_number(connection, "desired"))
            values = {"loaded": said.loaded, "change": said.change}
            insert = insert_for(connection, desired).values(model=model, **values)
            connection.execute(insert.on_conflict_do_update(index_elements=["model"], set_=values))
            audit.append(connection, model=model, by=by, action="load" if loaded else "unload", subject=model)
        return said
