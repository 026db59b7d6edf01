"""Join orders that do not depend on statistics: PostgreSQL has none for rows that were just loaded."""

from __future__ import annotations

from collections.abc import Sequence
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
    among: Sequence[ColumnElement[bool]] = (),
    ordered: bool = True,
) -> Select[Any]:
    """Join rows with their predictions: the former are read once, each prediction by an index.

    Args:
        connection: Of the database.
        query: Query of columns of `predictions` and of `names`, without joins.
        names: The rows.
        key: Their column with the prediction's id or reference.
        where: Conditions on predictions.
        by: The column of predictions that it names.
        among: Conditions on the rows.
        ordered: Whether to look predictions up in the order of the key, so that many look-ups read the pages of an
            index once and in their order. Without it the first rows come at once.
    """
    if connection.dialect.name != "postgresql":  # SQLite joins in this order by itself
        return query.join_from(names, predictions, by == key).where(*where, *among)
    chosen = select(names).where(*among)
    rows = (chosen.order_by(key) if ordered else chosen).subquery("names")
    of_rows = ClauseAdapter(rows)
    # OFFSET 0 keeps the planner from joining otherwise, say by a scan of all predictions.
    found = select(predictions).where(by == of_rows.traverse(key), *where).offset(0).lateral("found")
    of_found = ClauseAdapter(found)
    columns = (of_rows.traverse(of_found.traverse(column)) for column in query.selected_columns)
    return select(*columns).join_from(rows, found, true())


def by_look_up(connection: Connection, query: Select[Any]) -> Exists:
    """Return the condition that a correlated query has a row, looked up for each row of the outer query."""
    return (query.offset(0) if connection.dialect.name == "postgresql" else query).exists()
