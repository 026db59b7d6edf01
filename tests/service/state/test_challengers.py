"""Scores of challengers beside erasures and removals at the same time; amounts before a comparison."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sqlalchemy import delete, select

from service.state import challengers as challengers_module
from service.state.challengers import ChallengerStore, amount_limit
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


def test_the_limit_of_amounts_is_a_quantile_of_the_newest_before_a_time(
    database: Database, logged: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(challengers_module, "AMOUNTS", 2_000)

    def priced(first: int, amounts: list[float | None], **changes: object) -> None:
        logged([prediction_id(first + row) for row in range(len(amounts))], amounts=amounts, **changes)

    old, revisions = 7e6, ("r1", "r2")
    priced(0, [old] * 10, created_at=1)
    for number, revision in enumerate(revisions):  # of 2,000, 0.1 % are huge
        amounts = [*map(float, range(1, 1000)), 5e6]
        priced(100 + 1000 * number, amounts, revision=revision, created_at=10 + number)
    priced(5000, [None, 8e6], created_at=20)
    priced(6000, [9e6], model="others", created_at=10)
    with database.connect() as connection:
        assert amount_limit(connection, "pets", before_us=20) == 999.0
        assert amount_limit(connection, "pets", before_us=2) == old
        assert amount_limit(connection, "pets", before_us=1) == 0.0
