"""Cohorts of predictions: all of a time span, shortened if it has too many rows."""

from __future__ import annotations

from sqlalchemy import Connection, select

from service.state.tables import predictions
from service.state.window import Window


def cohort_end(connection: Connection, window: Window, *, since_us: int, until_us: int, rows: int) -> int:
    """Return the end of a cohort that begins at `since_us`: `until_us`, or earlier if it has many rows.

    Labels have no influence. Predictions of the same microsecond stay together, even if the cohort becomes larger.

    Args:
        connection: Inside a read transaction.
        window: Names the model file.
        since_us: Start of the cohort.
        until_us: Latest end of the cohort.
        rows: Approximate maximum rows per origin (a revision and a policy).

    Returns:
        A time after `since_us`.
    """
    end = until_us
    for origin in window.origins(connection):  # one query each, along the index
        query = (
            select(predictions.c.created_at)
            .where(predictions.c.origin == origin)
            .where(predictions.c.created_at >= since_us, predictions.c.created_at < end)
            .order_by(predictions.c.created_at)
            .limit(1)
            .offset(rows)
        )
        last = connection.execute(query).scalar()
        if last is not None:
            end = max(last, since_us + 1)
    return end
