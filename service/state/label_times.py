"""When the labels of a model came, by source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select, union_all

from service.state.feedback import TARGETS_PER_QUERY
from service.state.tables import feedback, predictions
from service.state.window import labels_of, origins_of

Times = tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.int64]]


def label_times(connection: Connection, model: str, *, at_most: int) -> Times:
    """Return source, time of prediction and time of receipt of labels, the first of each prediction and source.

    They are all labels of the predictions since some time: the labels of older ones would be a selection of late ones.

    Args:
        connection: Inside a read transaction.
        model: The model.
        at_most: Maximum labels to read, the newest.

    Returns:
        str (N,), and twice int64 (N,) in microseconds since the epoch.
    """
    columns = feedback.c.target, feedback.c.by_reference, feedback.c.source, feedback.c.received_at
    newest = [
        select(*columns).where(labels_of(model, kind)).order_by(feedback.c.received_at.desc()).limit(at_most).subquery()
        for kind in (0, 1)
    ]
    both = union_all(*map(select, newest)).subquery()
    labels = connection.execute(select(both).order_by(both.c.received_at.desc()).limit(at_most)).all()
    since = labels[-1].received_at + 1 if len(labels) == at_most else 0
    made_here = set(origins_of(connection, model))
    made: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        keys = sorted({row.target for row in labels if row.by_reference == by_reference})  # ids of a query: of few days
        for start in range(0, len(keys), TARGETS_PER_QUERY):
            some = keys[start : start + TARGETS_PER_QUERY]
            query = select(name, predictions.c.id, predictions.c.created_at, predictions.c.origin).where(name.in_(some))
            for key, id_, created_at, origin in connection.execute(query):
                if origin in made_here and created_at >= since:
                    made.setdefault((by_reference, key), []).append((id_, created_at))
    first: dict[tuple[str, str], tuple[int, int]] = {}
    for target, by_reference, source, received_at in labels:
        for id_, created_at in made.get((by_reference, target), ()):
            known = first.get((id_, source))
            if known is None or received_at < known[1]:
                first[id_, source] = created_at, received_at
    times = np.array(list(first.values()), np.int64).reshape(-1, 2)
    return np.array([source for _, source in first], np.str_), times[:, 0], times[:, 1]
