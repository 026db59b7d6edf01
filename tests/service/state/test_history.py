"""The history of a group: bounded, along its index, and with the labels that are current."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from bundle.split import group_hash
from candor.contract.policies import Review
from service.state import history as module
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.history import Past, history
from service.state.predictions import PredictionLog
from service.state.reviewed import Reviewed

from .conftest import batch, prediction_id
from .test_plans import plan, statements

Write = Callable[..., list[str]]
CARD = "card-5"


def decided(ids: list[str], **changes: Any) -> dict[str, Any]:
    """Fields of rows that a policy with a review queue lets pass."""
    n = len(ids)
    queue = Reviewed("fraud", Review.model_validate({}), np.zeros(n, np.float32))
    return {
        "ids": ids,
        "groups": [CARD] * n,
        "sought": [False] * n,
        "propensities": [0.0] * n,
        "reviewed": queue,
    } | changes


def of_card(database: Database, **changes: Any) -> list[Past]:
    group = group_hash(database.secret, CARD)
    return history(database, **{"model": "pets", "group": group, "without": "", "limit": 50} | changes)


def test_the_history_has_what_passed_and_its_labels(database: Database, logged: Write) -> None:
    ids = [prediction_id(number) for number in range(6)]
    logged(**decided(ids[:3], references=["tx-0", None, None], amounts=[9.5, None, 1.0]))
    logged(**decided(ids[3:4], sought=[True], propensities=[1.0], actions=["review"], revision="r2"))
    logged(**decided(ids[4:5], groups=["card-6"]))
    logged(ids[5:], groups=[CARD])  # by a policy without a queue
    logged(**decided([prediction_id(9)], model="cars"))
    logged(**decided([prediction_id(10)], groups=[None]))
    FeedbackStore(database).add(
        "pets",
        [
            FeedbackItem(None, "tx-0", "cat", "reviewer"),
            FeedbackItem(ids[0], None, "dog", "client"),
            FeedbackItem(ids[1], None, "eel", "client"),
        ],
        by="till",
    )
    found = of_card(database, without=ids[2])
    assert [(one.id, one.label, one.revision, one.state(0)) for one in found] == [
        (ids[3], None, "r2", "open"),
        (ids[1], "eel", "r1", None),
        (ids[0], "cat", "r1", None),  # a reviewer outweighs a client
    ]
    logged(**decided([prediction_id(11)], references=["tx-0"]))  # scored once more: a label by reference is of both
    assert [one.label for one in of_card(database) if one.reference == "tx-0"] == ["cat", "cat"]
    assert (found[2].reference, found[2].amount, found[2].action) == ("tx-0", 9.5, "accept")
    assert [one.id for one in of_card(database, limit=3)[1:]] == [ids[3], ids[2]]


def test_a_group_that_another_model_has_too_costs_a_bounded_number_of_rows(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_READ", 4)
    own = [prediction_id(number) for number in (0, 11)]
    for id_ in own:
        logged(**decided([id_]))
    logged(**decided([prediction_id(number) for number in range(1, 9)], model="cars"))
    assert [one.id for one in of_card(database, limit=2)] == own[1:]


def test_sqlite_reads_a_history_along_its_index(tmp_path: Path) -> None:
    state = Database.open(f"sqlite:///{tmp_path / 'state.db'}")
    log = PredictionLog(state)
    for number in range(20):
        log.append(batch(**decided([prediction_id(number)])))
    log.close()
    with statements(state) as sent:
        assert len(of_card(state)) == 20
    ways = [way for sql, parameters in sent for way in plan(state, sql, parameters)]
    assert any("INDEX predictions_by_group (cluster=?)" in way for way in ways), ways
    assert "feedback_pkey" in " ".join(ways) or "PRIMARY KEY (target=?" in " ".join(ways), ways
    assert not [way for way in ways if way.startswith("SCAN")], ways
    state.close()


def test_postgresql_reads_a_history_along_its_index(postgresql_url: str) -> None:
    state = Database.open(postgresql_url)
    log = PredictionLog(state)
    many = [prediction_id(number) for number in range(5_000)]
    log.append(batch(**decided(many, groups=[f"card-{number % 500}" for number in range(5_000)])))
    log.close()
    with state.begin() as connection:
        connection.execute(text("ANALYZE"))
    with statements(state) as sent:
        assert len(of_card(state)) == 10
    with state.connect() as connection:
        plans = "\n".join(
            line for sql, given in sent for line in connection.exec_driver_sql(f"EXPLAIN {sql}", given).scalars()
        )
    state.close()
    assert "cluster_id_idx" in plans or "by_group" in plans, plans
    assert "Seq Scan on predictions" not in plans, plans
