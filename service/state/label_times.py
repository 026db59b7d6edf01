"""When the labels of a model came, by source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Text, cast, func, select, union_all

from service.state.looked_up import looked_up
from service.state.tables import feedback, predictions
from service.state.window import labels_of, origins_of

Times = tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.int64]]


def label_times(connection: Connection, model: str, *, at_most: int) -> Times:
    """Return source, time of prediction and time of receipt of labels, the first of each prediction and source.

    They are all labels of the predictions since some time: the labels of older ones would be a selection of late ones.
    The database joins them and returns a row for each source: Python's lock is given up and taken back for each row
    that SQLite returns, and predictions would wait meanwhile.

    Args:
        connection: Inside a read transaction.
        model: The model.
        at_most: Maximum labels to read, the newest.

    Returns:
        str (N,), and twice int64 (N,) in microseconds since the epoch.
    """
    columns = feedback.c.target, feedback.c.by_reference, feedback.c.source, feedback.c.received_at
    kinds = [
        select(*columns).where(labels_of(model, kind)).order_by(feedback.c.received_at.desc()).limit(at_most).subquery()
        for kind in (0, 1)
    ]
    both = union_all(*map(select, kinds)).subquery()
    labels = select(both).order_by(both.c.received_at.desc()).limit(at_most).cte("labels")
    count, oldest = connection.execute(select(func.count(), func.min(labels.c.received_at)).select_from(labels)).one()
    since = oldest + 1 if count == at_most else 0
    about = predictions.c.id, predictions.c.origin, predictions.c.created_at, labels.c.source, labels.c.received_at
    found = union_all(
        *(
            looked_up(
                connection, select(*about), labels, labels.c.target, by=name, among=[labels.c.by_reference == kind]
            )
            for kind, name in enumerate((predictions.c.id, predictions.c.reference))
        )
    ).subquery()
    made = func.max(found.c.created_at)
    firsts = (
        select(found.c.source, made.label("made"), func.min(found.c.received_at).label("came"))
        .group_by(found.c.id, found.c.source)
        # Not in WHERE: SQLite would scan all predictions of these origins.
        .having(func.max(found.c.origin).in_(origins_of(connection, model)), made >= since)
        .subquery()
    )
    pairs = cast(firsts.c.made, Text) + " " + cast(firsts.c.came, Text)
    query = select(firsts.c.source, func.aggregate_strings(pairs, " ")).group_by(firsts.c.source)
    times = {
        source: np.fromstring(text, np.int64, sep=" ").reshape(-1, 2) for source, text in connection.execute(query)
    }
    together = np.concatenate([np.empty((0, 2), np.int64), *times.values()])
    return np.repeat(np.array(list(times), np.str_), [len(of) for of in times.values()]), together[:, 0], together[:, 1]
