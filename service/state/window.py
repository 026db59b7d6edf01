"""Windows of logged predictions: one model file and a time span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, select

from service.state.tables import origins, predictions

FOUND_OTHERWISE: Final = predictions.c.origin + 0
"""A prediction's origin in queries by id or reference: "+ 0" prevents SQLite from using the index of origins.

SQLite expects few rows per origin and would scan all predictions of a model.
"""


def origins_of(connection: Connection, model: str) -> list[int]:
    """Return the numbers of a model's origins, for all its files."""
    return list(connection.scalars(select(origins.c.id).where(origins.c.model == model)))


@dataclass(frozen=True, slots=True)
class Window:
    """Predictions of one model file in [since_us, until_us).

    Attributes:
        model: Model name.
        model_digest: Digest of the model file.
        since_us: Microseconds since the epoch; None for no start.
        until_us: Microseconds since the epoch; None for no end.
    """

    model: str
    model_digest: str
    since_us: int | None = None
    until_us: int | None = None

    def origins(self, connection: Connection) -> list[int]:
        """Return the numbers of the model file's origins."""
        query = select(origins.c.id).where(origins.c.model == self.model, origins.c.model_digest == self.model_digest)
        return list(connection.scalars(query))

    def times(self) -> list[ColumnElement[bool]]:
        """Return the conditions on the time of prediction."""
        conditions: list[ColumnElement[bool]] = []
        if self.since_us is not None:
            conditions.append(predictions.c.created_at >= self.since_us)
        if self.until_us is not None:
            conditions.append(predictions.c.created_at < self.until_us)
        return conditions
