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
