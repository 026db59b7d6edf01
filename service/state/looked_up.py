"""Join orders that do not depend on statistics: PostgreSQL has none of rows that were loaded a moment ago."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Exists, FromClause, Select, select, true
from sqlalchemy.sql.util import ClauseAdapter

from service.state.tables import predictions


def looked_up(
    connection: Connection,
    query: Select[Any],
    names: FromClause,
    key: ColumnElement[str],
    *where: ColumnElement[bool],
    by: ColumnElement[Any] = predictions.c.id,
) -> Select[Any]:
    """Join rows with their predictions: the former are read once, each prediction by an index.

    Args:
        connection: Of the database.
        query: Query of columns of `predictions` and of `names`, without joins.
        names: The rows.
        key: Their column with the prediction's id or reference.
        where: Conditions on predictions.
        by: The column of predictions that it names.
    """
    if connection.dialect.name != "postgresql":  # SQLite joins in this order by itself
        return query.join_from(names, predictions, by == key).where(*where)
    # OFFSET 0 keeps the planner from joining otherwise, say by a scan of all predictions.
    found = select(predictions).where(by == key, *where).offset(0).lateral("found")
    columns = ClauseAdapter(found)
    return select(*(columns.traverse(column) for column in query.selected_columns)).join_from(names, found, true())


def by_look_up(connection: Connection, query: Select[Any]) -> Exists:
    """Return the condition that a correlated query has a row, looked up for each row of the outer query."""
    return (query.offset(0) if connection.dialect.name == "postgresql" else query).exists()
