"""Scores of challengers beside erasures and removals at the same time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sqlalchemy import delete, select

from service.state.challengers import ChallengerStore
from service.state.database import Database
from service.state.deletion import delete_predictions
from service.state.tables import challenger_scores, challengers

from .conftest import prediction_id


def test_no_score_outlives_what_is_deleted_meanwhile(
    database: Database, other: Database, logged: Callable[..., list[str]]
) -> None:
    if database is other:
        pytest.skip("SQLite runs one write at a time")
    ids = logged([prediction_id(number) for number in range(3)])
    store = ChallengerStore(database)
    put, _ = store.put("digits", "mine", revision="r1", share=1.0, by="test")
    given = (put.number, ids, [1, 2, 3], np.zeros((3, 3), np.float32))
    with other.begin() as connection:
        delete_predictions(connection, "digits", [(ids[0], None)], receipts=True)
        assert store.add_scores(*given) == 2, "it does not wait either"
    with database.connect() as connection:
        assert set(connection.scalars(select(challenger_scores.c.id))) == set(ids[1:])
    with other.begin() as connection:
        connection.execute(delete(challengers))
        assert store.add_scores(*given) == 0
