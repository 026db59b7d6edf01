"""Windows of logged predictions: one model file and a time span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, and_, false, literal_column, or_, select

from service.state.database import SET_BACK_US
from service.state.partitions import first_id
from service.state.row_cells import RowCells
from service.state.tables import feedback, origins, predictions

AFTER_EVERY_ID: Final = "~"

FOUND_OTHERWISE: Final = predictions.c.origin + 0
"""A prediction's origin in queries by id or reference: "+ 0" prevents SQLite from using the index of origins.

SQLite expects few rows per origin and would scan all predictions of a model.
"""


def labels_of(model: str, by_reference: int) -> ColumnElement[bool]:
    """Return the condition of a model's labels of a kind, as their index by time has it."""
    return and_(feedback.c.model.concat(literal_column("''")) == model, feedback.c.by_reference == by_reference)


def origins_of(connection: Connection, model: str) -> list[int]:
    """Return the numbers of a model's origins, for all its files."""
    return list(connection.scalars(select(origins.c.id).where(origins.c.model == model)))


@dataclass(frozen=True, slots=True)
class Arising:
    """Rows whose labels arise by themselves, see `maturing`.

    Attributes:
        origin: Their origin.
        age_us: Age at which their labels are mature, in microseconds.
        before_us: Rows predicted before this time have it, in microseconds since the epoch.
        silence: Index of the label of mature rows for which none has come; None if silence says nothing.
        actions: Their actions; empty for all.
    """

    origin: int
    age_us: int
    before_us: int
    silence: int | None
    actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Window:
    """Predictions of one model file in [since_us, until_us).

    Attributes:
        model: Model name.
        model_digest: Digest of the model file.
        since_us: Microseconds since the epoch; None for no start.
        until_us: Microseconds since the epoch; None for no end.
        arising: Rows whose labels arise by themselves: only mature ones are in the window.
        only: Spans of ids [since, until) to which the window is limited; None for all.
        cells: Reads columns of the rows for calibrators that need them; None if none does.
    """

    model: str
    model_digest: str
    since_us: int | None = None
    until_us: int | None = None
    arising: tuple[Arising, ...] = ()
    only: tuple[tuple[str, str], ...] | None = None
    cells: RowCells | None = None

    def origins(self, connection: Connection) -> list[int]:
        """Return the numbers of the model file's origins."""
        query = select(origins.c.id).where(origins.c.model == self.model, origins.c.model_digest == self.model_digest)
        return list(connection.scalars(query))

    def is_empty(self, connection: Connection) -> bool:
        """Return whether the window has no prediction."""
        here = predictions.c.origin.in_(self.origins(connection)), *self.times()
        return connection.execute(select(predictions.c.id).where(*here).limit(1)).first() is None

    def times(self) -> list[ColumnElement[bool]]:
        """Return the conditions on the time of prediction; `holds` has the same.

        An id starts with the time at which it was made, up to a request's wait before that of its prediction. A bound
        of ids, with a day for clocks that were set back, leaves PostgreSQL the partitions of the window.
        """
        conditions = self.spans(predictions.c.id)
        if self.since_us is not None:
            conditions.append(predictions.c.created_at >= self.since_us)
            conditions.append(predictions.c.id >= self.first_id)
        if self.until_us is not None:
            conditions.append(predictions.c.created_at < self.until_us)
        for one in self.arising:
            others: ColumnElement[bool] = predictions.c.origin + 0 != one.origin  # as `FOUND_OTHERWISE`
            conditions.append(or_(others, predictions.c.created_at < one.before_us))
        return conditions

    def spans(self, ids: ColumnElement[str]) -> list[ColumnElement[bool]]:
        """Return the condition that ids are in `only`."""
        if self.only is None:
            return []
        return [or_(false(), *(and_(ids >= since, ids < until) for since, until in self.only))]

    def holds(
        self, ids: NDArray[np.bytes_], created_at: NDArray[np.int64], origin: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether predictions fulfil `times`, bool (N,).

        Args:
            ids: Their ids, ASCII bytes of shape (N,).
            created_at: int64 (N,), in microseconds since the epoch.
            origin: Numbers of their origins, int64 (N,).
        """
        found: NDArray[np.bool_] = ids >= self.first_id.encode()
        if self.since_us is not None:
            found &= created_at >= self.since_us
        if self.until_us is not None:
            found &= created_at < self.until_us
        for one in self.arising:
            found &= (origin != one.origin) | (created_at < one.before_us)
        return found

    @property
    def first_id(self) -> str:
        """Start of the ids that can be in the window."""
        return first_id(max((self.since_us or 0) - SET_BACK_US, 0))
