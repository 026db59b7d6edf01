"""Numbers are given out once each, without gaps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from service.state.database import Database
from service.state.numbering import take_number


def test_series_count_from_one_and_know_nothing_of_each_other(database: Database) -> None:
    with database.begin() as connection:
        assert [take_number(connection, series) for series in ("a", "a", "b", "a")] == [1, 2, 1, 3]


def test_a_rollback_gives_the_number_back(database: Database) -> None:
    with database.begin() as connection:
        take_number(connection, "a")
        connection.rollback()
    with database.begin() as connection:
        assert take_number(connection, "a") == 1


def test_servers_that_count_at_once_never_meet(database: Database, other: Database) -> None:
    def count(server: Database) -> list[int]:
        taken = []
        for _ in range(25):
            with server.begin() as connection:
                taken.append(take_number(connection, "a"))
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [number for numbers in pool.map(count, [database, other] * 2) for number in numbers]
    assert sorted(taken) == list(range(1, 101))
