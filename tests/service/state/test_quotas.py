"""Daily quotas count each name on its own, over all replicas, and give back what they refuse."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import select

from service.errors import IdempotencyConflictError, RateLimitedError
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.quotas import Quota
from service.state.tables import feedback, feedback_batches, numbers

NOON_S = 20_000 * 86_400 + 43_200


def counters(database: Database) -> list[str]:
    with database.connect() as connection:
        return list(connection.execute(select(numbers.c.series).where(numbers.c.series.startswith("quota"))).scalars())


def test_a_name_has_a_quota_of_its_own_each_day(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON_S)
    quota, replica = (Quota("changes", 2, "CANDOR_KEY_CHANGES_PER_DAY") for _ in range(2))
    quota.spend(database, "till")
    replica.spend(database, "till")
    with pytest.raises(RateLimitedError, match="'till' has reached its daily quota of changes") as refused:
        quota.spend(database, "till")
    assert (refused.value.found, refused.value.expected) == ("2 today, and 1 in this request", "at most 2 a day (UTC)")
    assert refused.value.retry_after_s == 43_200
    quota.spend(database, "other")
    monkeypatch.setattr(time, "time", lambda: NOON_S + 2 * 86_400)
    quota.spend(database, "till")
    assert counters(database) == ["quota/020002/changes/till"]


def test_what_is_refused_is_not_counted(database: Database) -> None:
    quota = Quota("labels", 10, "CANDOR_KEY_LABELS_PER_DAY")
    with database.begin() as connection:
        errors = quota.take(connection, "till", [4, 7, 6, 1])
    assert [error is None for error in errors] == [True, False, True, False]
    with database.begin() as connection:
        assert quota.take(connection, "till", [1]) != [None]
        assert quota.take(connection, "other", [10]) == [None]


def test_labels_count_whether_their_predictions_are_known_or_not(database: Database) -> None:
    store = FeedbackStore(database, Quota("labels", 3, "CANDOR_KEY_LABELS_PER_DAY"))

    def send(*names: str, by_key: str | None = "0123456789ab", key: str | None = None) -> int:
        items = [FeedbackItem(None, name, "cat") for name in names]
        sent = store.submit("pets", items, by="till", by_key=by_key, idempotency_key=key, body_digest=b"")
        return sent.result().stored

    assert send("a", "b", key="first") == 2
    assert send("a", "b", key="first") == 2, "a repetition adds nothing, and is not counted"
    with pytest.raises(RateLimitedError):
        send("c", "d")
    assert send("a") == 0, "a repeated label is one of the day, too"
    with pytest.raises(RateLimitedError):
        send("c", key="second")
    with pytest.raises(IdempotencyConflictError):
        store.submit("pets", [], by="till", by_key="0", idempotency_key="first", body_digest=b"x").result()
    assert send("c", by_key=None) == 1, "without keys, the administrator has no quota"
    with database.connect() as connection:
        assert sorted(connection.execute(select(feedback.c.target)).scalars()) == ["a", "b", "c"]
        assert len(connection.execute(select(feedback_batches.c.batch)).all()) == 3
