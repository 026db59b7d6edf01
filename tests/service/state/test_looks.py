"""Looks at held-out rows are counted, and never forgotten."""

from __future__ import annotations

from typing import Literal

import pytest

from service.state import audit
from service.state.database import Database
from service.state.looks import record_look

from .test_revisions import together


def test_they_count_while_any_row_was_shown_before(database: Database) -> None:

    def look(earliest: int, at: int) -> int:
        return record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=earliest, at=at)

    assert [look(10, 100), look(10, 200), look(150, 300)] == [1, 2, 2]
    assert look(300, 400) == 2  # a row of the very time of the last look may have been in it
    assert look(401, 500) == 1
    assert look(401, 600) == 2


def test_looking_at_fresh_rows_in_between_does_not_make_old_ones_fresh(database: Database) -> None:

    def look(earliest: int, at: int) -> int:
        return record_look(database, "pets", "d1", "certify", "traffic", "top", earliest_row_us=earliest, at=at)

    assert [look(10, at) for at in range(100, 600, 100)] == [1, 2, 3, 4, 5]
    assert look(501, 700) == 1
    assert look(10, 800) == 7
    assert look(501, 900) == 3


def test_reference_rows_are_never_fresh_again(database: Database) -> None:
    looks = [
        record_look(database, "pets", "d1", "certify", "reference", "auto", earliest_row_us=0, at=at)
        for at in (1, 9, 99)
    ]
    assert looks == [1, 2, 3]


def test_each_kind_of_rows_has_its_own_count(database: Database) -> None:
    kinds = [
        ("pets", "d1", "gate", "traffic", ""),
        ("cars", "d1", "gate", "traffic", ""),
        ("pets", "d1", "certify", "traffic", ""),
        ("pets", "d1", "certify", "reference", ""),
        ("pets", "d2", "certify", "reference", ""),
        ("pets", "d1", "certify", "traffic", "auto"),
    ]
    for look in (1, 2):
        for kind in kinds:
            assert record_look(database, *kind, earliest_row_us=0, at=look) == look  # type: ignore[arg-type]


@pytest.mark.parametrize("basis", ["traffic", "uploaded"])
def test_labels_are_the_same_whichever_model_file_scores_their_rows(
    database: Database, basis: Literal["traffic", "uploaded"]
) -> None:
    looks = [
        record_look(database, "pets", digest, "certify", basis, "top", earliest_row_us=0, at=at)
        for at, digest in enumerate(["d1", "d2", "d1", "d3"])
    ]
    assert looks == [1, 2, 3, 4]


def test_a_clock_that_runs_behind_makes_no_row_fresh(database: Database) -> None:
    looks = [
        record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=earliest, at=at)
        for earliest, at in ((10, 1000), (10, 500), (700, 1200))
    ]
    assert looks == [1, 2, 3]


def test_each_is_in_the_audit_log(database: Database) -> None:
    record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=1, at=2, by="ops")
    entry = audit.read(database, "pets")[0]
    assert (entry.action, entry.subject, entry.by, entry.detail["look"]) == ("look", "gate", "ops", 1)


def test_looks_at_the_same_moment_get_different_numbers(database: Database, other: Database) -> None:
    tasks = [
        lambda state=state: record_look(state, "pets", "d1", "gate", "traffic", "", earliest_row_us=0, at=1)
        for state in [database, other] * 4
    ]
    assert sorted(together(tasks)) == list(range(1, 9))
