"""Tests of input drift in the state: the open window, the last tested one and its alarms, a row for each model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

from service.decisions.levels import level_of
from service.state import audit
from service.state.database import Database
from service.state.insertion import insert_for
from service.state.monitors import ALARM, BY, activated
from service.state.numbering import take_number
from service.state.tables import drift


@dataclass(frozen=True, slots=True)
class StoredDrift:
    """A model's test of input drift.

    Attributes:
        subject: Digest of the reference: the test continues while a bundle with this profile is active.
        place: Number among the model's tests of input drift, which determines its level.
        level: Probability that it ever raises a false alarm.
        revision: Revision at its start.
        change: Number of changes of `document`.
        document: See `service.monitoring.drift`.
    """

    subject: str
    place: int
    level: float
    revision: str
    change: int
    document: dict[str, Any]


class DriftStore:
    """Tests of all models. All methods raise StateUnavailableError when the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, model: str) -> StoredDrift | None:
        """Return a model's test; None without one."""
        with self._database.connect() as connection:
            row = connection.execute(_SELECT.where(drift.c.model == model)).one_or_none()
            return None if row is None else StoredDrift(*row)

    def start(
        self, model: str, epoch: int, revision: str, subject: str, document: dict[str, Any], alpha: float
    ) -> StoredDrift | None:
        """Start the test of a new subject in place of the model's test, or return the one that another replica started.

        Args:
            model: The model.
            epoch: Epoch of its pointer.
            revision: The active revision.
            subject: Digest of the reference.
            document: Document of a new test.
            alpha: Probability of a false alarm that all tests of a model share.

        Returns:
            The test; None if the pointer has moved on.
        """
        with self._database.begin() as connection:
            take_number(connection, f"drift/{model}")  # one at a time
            if activated(connection, model, epoch) is None:
                return None
            row = connection.execute(_SELECT.where(drift.c.model == model)).one_or_none()
            if row is not None and row.subject == subject:
                return StoredDrift(*row)
            place = take_number(connection, f"monitors/{model}/drift")
            found = StoredDrift(subject, place, level_of(alpha, place), revision, 0, document)
            values = {name: getattr(found, name) for name in StoredDrift.__slots__}
            upsert = insert_for(connection, drift).values(model=model, **values)
            connection.execute(upsert.on_conflict_do_update(index_elements=["model"], set_=values))
            return found

    def change(self, model: str, before: StoredDrift, document: dict[str, Any], alarm: dict[str, Any] | None) -> bool:
        """Write the document of a test.

        Args:
            model: The model.
            before: The test as read.
            document: Its new document.
            alarm: Detail of an alarm for the audit log; None for none.

        Returns:
            False, and nothing is written, if the test has changed or ended meanwhile.
        """
        same = (drift.c.model == model, drift.c.subject == before.subject, drift.c.place == before.place)
        with self._database.begin() as connection:
            changed = connection.execute(
                update(drift)
                .where(*same, drift.c.change == before.change)
                .values(document=document, change=before.change + 1)
            )
            if changed.rowcount != 1:
                return False
            if alarm is not None:
                audit.append(connection, model=model, by=BY, action=ALARM, subject="inputs", detail=alarm)
        return True


_SELECT = select(*(drift.c[name] for name in StoredDrift.__slots__))
