"""Labels of a model joined with its predictions in a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select

from service.state.database import SET_BACK_US
from service.state.looked_up import looked_up
from service.state.tables import feedback, predictions
from service.state.window import FOUND_OTHERWISE, Window


def joined_with_labels(
    connection: Connection,
    query: Select[Any],
    window: Window,
    made_here: Sequence[int],
    *,
    look_up: bool = True,
    ordered: bool = True,
) -> list[Select[Any]]:
    """Return a query for the labels by prediction id, and one for those by reference.

    PostgreSQL looks predictions up by id, and by reference where the window has no start: it would make a hash of all
    predictions, or compare all with each label. A window with a start may have far fewer predictions than there are
    labels by reference, so there it chooses.

    Args:
        connection: Of the database.
        query: Query of columns of `predictions` and `feedback`, without joins.
        window: Window of predictions.
        made_here: Numbers of the origins of its predictions.
        look_up: False leaves the order to the database, for a query that gets further joins.
        ordered: Whether look-ups are in the order of their keys, see `looked_up`.
    """
    queries, key = [], feedback.c.target
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        among = [feedback.c.model == window.model, feedback.c.by_reference == by_reference]
        if not by_reference:
            among += window.spans(key)
        open_start = window.since_us is None
        if look_up and connection.dialect.name == "postgresql" and (open_start or not by_reference):
            if window.since_us is not None:  # nobody knows an id before its prediction is answered
                among += [key >= window.first_id, feedback.c.received_at >= window.since_us - SET_BACK_US]
            here = FOUND_OTHERWISE.in_(made_here), *window.times()
            queries.append(looked_up(connection, query, feedback, key, *here, by=name, among=among, ordered=ordered))
        else:
            origin = FOUND_OTHERWISE if open_start else predictions.c.origin
            joined = query.join_from(feedback, predictions, name == key)
            queries.append(joined.where(*among, origin.in_(made_here), *window.times()))
    return queries
