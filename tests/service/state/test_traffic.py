"""Predictions by the hour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.state import traffic
from service.state.database import Database
from service.state.traffic import HOURS, Traffic

from .conftest import prediction_id

HOUR = 3_600_000_000
NOW = 1_000 * HOUR + HOUR // 2
Write = Callable[..., list[str]]


def test_each_hour_has_its_own(database: Database, logged: Write) -> None:
    logged([prediction_id(number) for number in range(3)], created_at=NOW)
    logged([prediction_id(number) for number in range(3, 5)], created_at=NOW - 5 * HOUR)
    logged([prediction_id(9)], created_at=NOW - HOURS * HOUR)  # a day ago, and no more in it
    hours = Traffic(database).hours("pets", NOW)
    assert len(hours) == HOURS
    assert hours[-1] == 3
    assert hours[-6] == 2
    assert sum(hours) == 5
    assert sum(Traffic(database).hours("birds", NOW)) == 0


def test_an_hour_that_is_over_is_counted_once_and_the_present_one_anew(database: Database, logged: Write) -> None:
    counter = Traffic(database)
    logged([prediction_id(1)], created_at=NOW - 3 * HOUR)
    assert sum(counter.hours("pets", NOW)) == 1
    logged([prediction_id(2)], created_at=NOW)
    logged([prediction_id(3)], created_at=NOW - 3 * HOUR)  # which no log writer does
    assert sum(counter.hours("pets", NOW)) == 2
    assert sum(Traffic(database).hours("pets", NOW)) == 3


def test_an_hour_is_counted_so_far_and_no_further(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "MOST_PER_HOUR", 4)
    logged([prediction_id(number) for number in range(9)], created_at=NOW)
    assert Traffic(database).hours("pets", NOW)[-1] == 4


DAY = 24 * HOUR
MIDNIGHT = 50 * DAY


def test_the_busiest_whole_day_says_how_many_rows_a_day_has(database: Database, logged: Write) -> None:
    counter, numbers = Traffic(database), iter(range(100))

    def log(rows: int, at: int) -> None:
        logged([prediction_id(next(numbers)) for _ in range(rows)], created_at=at)

    log(9, MIDNIGHT + HOUR)  # today is not over
    assert counter.rows_per_day("pets", MIDNIGHT + 2 * HOUR) is None
    log(8, MIDNIGHT - 3 * DAY)  # the first day: nobody knows when the traffic began
    assert Traffic(database).rows_per_day("pets", MIDNIGHT + 2 * HOUR) is None
    log(2, MIDNIGHT - 2 * DAY)
    log(5, MIDNIGHT - 1)
    assert Traffic(database).rows_per_day("pets", MIDNIGHT + 2 * HOUR) == 5
    assert Traffic(database, sample=0.3).rows_per_day("pets", MIDNIGHT + 2 * HOUR) == 17
    log(1, MIDNIGHT - 8 * DAY)  # before the seven days, so the first of them is a whole one
    assert Traffic(database).rows_per_day("pets", MIDNIGHT + 2 * HOUR) == 8
    assert Traffic(database).rows_per_day("pets", MIDNIGHT + 5 * DAY) == 9
    assert Traffic(database).rows_per_day("pets", MIDNIGHT + 8 * DAY) is None
    assert Traffic(database).rows_per_day("birds", MIDNIGHT) is None


def test_a_day_that_is_over_is_counted_once(database: Database, logged: Write) -> None:
    counter = Traffic(database)
    logged([prediction_id(1)], created_at=MIDNIGHT - 9 * DAY)
    logged([prediction_id(number) for number in range(2, 4)], created_at=MIDNIGHT - 1)
    assert counter.rows_per_day("pets", MIDNIGHT) == 2
    logged([prediction_id(4)], created_at=MIDNIGHT - 1)  # the log writes up to minutes later
    assert counter.rows_per_day("pets", MIDNIGHT + HOUR) == 3
    logged([prediction_id(5)], created_at=MIDNIGHT - 1)  # which no log writer does
    assert counter.rows_per_day("pets", MIDNIGHT + 2 * HOUR) == 3


def test_a_large_day_is_counted_beside_and_once_for_all(
    database: Database, logged: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request walks through it, and no promise rests on a smaller day meanwhile."""
    monkeypatch.setattr(traffic, "MOST_PER_DAY", 4)
    monkeypatch.setattr(traffic, "_AT_ONCE_US", HOUR // 2)
    numbers = iter(range(100))

    def log(rows: int, at: int) -> None:
        logged([prediction_id(next(numbers)) for _ in range(rows)], created_at=at)

    log(1, MIDNIGHT - 9 * DAY)
    log(3, MIDNIGHT - 3 * DAY)
    for minute in range(3):
        log(3, MIDNIGHT - 2 * DAY + minute * HOUR // 12)
    now = MIDNIGHT + 2 * HOUR
    assert Traffic(database).rows_per_day("pets", now) is None
    looks = iter([False] * 7)
    assert Traffic(database).count_days("pets", now, lambda: next(looks, True))
    assert Traffic(database).rows_per_day("pets", now) is None
    assert not Traffic(database).count_days("pets", now, lambda: False)
    log(1, MIDNIGHT - 2 * DAY)  # which no log writer does
    counter = Traffic(database)
    assert counter.rows_per_day("pets", now) == 9

    log(11, MIDNIGHT + HOUR)
    log(1, MIDNIGHT + DAY - HOUR // 2)  # counted by one in the morning
    assert not counter.count_days("pets", MIDNIGHT + DAY, lambda: False)
    assert counter.rows_per_day("pets", MIDNIGHT + DAY) == 9
    assert not counter.count_days("pets", MIDNIGHT + DAY + HOUR, lambda: False)
    assert counter.rows_per_day("pets", MIDNIGHT + DAY + HOUR) == 12
    assert counter.rows_per_day("pets", MIDNIGHT + 10 * DAY) is None
