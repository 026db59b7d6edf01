"""Cohorts of predictions: all of a span of time, which is cut where it would hold too many rows at once."""

from __future__ import annotations

from sqlalchemy import Connection, select

from service.state.tables import predictions
from service.state.window import Window


def cohort_end(connection: Connection, window: Window, *, since_us: int, until_us: int, rows: int) -> int:
    """Return where a cohort that begins at `since_us` ends: at `until_us`, or sooner where there are many rows.

    Only times of predictions decide, never labels. Predictions of one microsecond stay together, so that where very
    many share theirs the cohort is larger.

    Args:
        connection: Inside a read transaction.
        window: Names the model file.
        since_us: Where the cohort begins.
        until_us: Where it ends at the latest.
        rows: Of each origin (a revision and a policy) in the cohort, about at most.

    Returns:
        A time after `since_us`.
    """
    end = until_us
    for origin in window.origins(connection):  # one at a time: each is a walk along its index
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
