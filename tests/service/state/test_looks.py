"""Looks at held-out rows are counted, and never forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from scipy.stats import binom
from sqlalchemy import select

from service.decisions.policy import parse_policy
from service.decisions.sequence import choose_in_band, walk
from service.state import audit
from service.state.database import Database
from service.state.looks import SETS, record_look, scopes_of
from service.state.tables import exposures

from .test_revisions import together

WORLDS = 20_000


def test_they_count_while_any_row_was_shown_before(database: Database) -> None:

    def look(earliest: int, at: int) -> int:
        return record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=earliest, at=at).number

    assert [look(10, 100), look(10, 200), look(150, 300)] == [1, 2, 2]
    assert look(300, 400) == 2  # a row of the very time of the last look may have been in it
    assert look(401, 500) == 1
    assert look(401, 600) == 2


def test_looking_at_fresh_rows_in_between_does_not_make_old_ones_fresh(database: Database) -> None:

    def look(earliest: int, at: int) -> int:
        return record_look(database, "pets", "d1", "certify", "traffic", "top", earliest_row_us=earliest, at=at).number

    assert [look(10, at) for at in range(100, 600, 100)] == [1, 2, 3, 4, 5]
    assert look(501, 700) == 1
    assert look(10, 800) == 7
    assert look(501, 900) == 3


def test_looks_of_a_year_are_counted_at_fresh_rows_too(database: Database) -> None:
    year = 365 * 86_400_000_000  # 1971 begins

    def spent(at: int, model: str = "pets", scope: str = "top") -> int:
        return record_look(database, model, "d1", "certify", "traffic", scope, earliest_row_us=at, at=at).spent

    assert [spent(at) for at in (10, 20, year - 1, year, year + 1)] == [1, 2, 3, 1, 2]
    assert spent(year + 2, model="cars") == spent(year + 2, scope="auto") == 1


def test_reference_rows_are_never_fresh_again(database: Database) -> None:
    looks = [
        record_look(database, "pets", "d1", "certify", "reference", "auto", earliest_row_us=0, at=at).number
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
            assert record_look(database, *kind, earliest_row_us=0, at=look).number == look  # type: ignore[arg-type]


def test_a_set_is_looked_at_beside_the_positive_class() -> None:
    document = {"id": "p", "positive": "cat", "bands": [{"action": "review"}]}
    assert scopes_of(parse_policy(document)) == ("cat",)
    assert scopes_of(parse_policy(document | {"set": {"coverage": 0.9}})) == ("cat", SETS)


@pytest.mark.parametrize("basis", ["traffic", "uploaded"])
def test_labels_are_the_same_whichever_model_file_scores_their_rows(
    database: Database, basis: Literal["traffic", "uploaded"]
) -> None:
    looks = [
        record_look(database, "pets", digest, "certify", basis, "top", earliest_row_us=0, at=at).number
        for at, digest in enumerate(["d1", "d2", "d1", "d3"])
    ]
    assert looks == [1, 2, 3, 4]


def test_a_clock_that_runs_behind_makes_no_row_fresh(database: Database) -> None:
    looks = [
        record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=earliest, at=at).number
        for earliest, at in ((10, 1000), (10, 500), (700, 1200))
    ]
    assert looks == [1, 2, 3]


def test_each_is_in_the_audit_log(database: Database) -> None:
    record_look(database, "pets", "d1", "gate", "traffic", "", earliest_row_us=1, at=2, by="ops")
    entry = audit.read(database, "pets")[0]
    assert (entry.action, entry.subject, entry.by, entry.detail["look"]) == ("look", "gate", "ops", 1)


def test_looks_at_the_same_moment_get_different_numbers(database: Database, other: Database) -> None:
    tasks = [
        lambda state=state: record_look(state, "pets", "d1", "gate", "traffic", "", earliest_row_us=0, at=1).number
        for state in [database, other] * 4
    ]
    assert sorted(together(tasks)) == list(range(1, 9))


LATER = 10**15


def replayed(database: Database, rows: Literal["gate", "certify"], groups: list[list[int]]) -> list[int]:
    """Return the number of each look, at rows that are all newer than the look before but of these groups."""
    return [
        record_look(
            database,
            *("pets", "d1", rows, "traffic", "top"),
            earliest_row_us=LATER * look + 1,
            at=LATER * (look + 1),
            groups=np.array(of_look),
        ).number
        for look, of_look in enumerate(groups, start=1)
    ]


@pytest.mark.parametrize("rows", ["gate", "certify"])
def test_inputs_that_return_under_new_ids_are_not_fresh(database: Database, rows: Literal["gate", "certify"]) -> None:
    assert replayed(database, rows, [[1, 2, 3]] * 4) == [1, 2, 3, 4]
    assert replayed(database, rows, [[]] * 5 + [[-7, 8]])[-1] == 1


def test_one_returning_entity_is_enough(database: Database) -> None:
    assert replayed(database, "certify", [[1, 2], [3, 4], [5, 2], [6], [7, 5], [3, 9]]) == [1, 1, 3, 1, 3, 5]


@pytest.mark.parametrize("rows", ["gate", "certify"])
def test_the_same_labels_as_feedback_and_in_a_set_are_shown_once(
    database: Database, rows: Literal["gate", "certify"]
) -> None:
    def look(basis: Literal["traffic", "uploaded"], groups: list[int], at: int) -> int:
        given = {"earliest_row_us": 0 if basis == "uploaded" else at, "at": at, "groups": np.array(groups)}
        return record_look(database, "pets", "d1", rows, basis, "top", **given).number  # type: ignore[arg-type]

    assert look("traffic", [1, 2, 3], 1) == 1
    assert look("uploaded", [7, 8], 2) == 1, "other rows"
    assert look("uploaded", [3, 4], 3) == 3, "two looks since, and this one"
    assert look("traffic", [9, 4], 4) == 2, "one look since"
    assert look("traffic", [10], 5) == 1


def test_looks_at_sets_and_at_traffic_share_a_year(database: Database) -> None:
    def spent(basis: Literal["traffic", "uploaded", "reference"], at: int) -> int:
        return record_look(database, "pets", "d1", "certify", basis, "top", earliest_row_us=at, at=at).spent

    assert [spent("traffic", 1), spent("uploaded", 2), spent("reference", 3), spent("traffic", 4)] == [1, 2, 1, 3]


def test_each_group_is_kept_once(database: Database) -> None:
    replayed(database, "certify", [[1, 2], [2, 1, 3], [1, 2, 3]])
    with database.connect() as connection:
        kept = connection.scalars(select(exposures.c.groups).order_by(exposures.c.id)).all()
    assert [np.frombuffer(groups, "<i8").tolist() for groups in kept] == [[1, 2], [3], []]


def of_file(database: Database, file: str, reference: str, model: str = "pets", rows: range | None = None) -> int:
    groups = None if rows is None else np.array(rows, np.int64)
    given = {"earliest_row_us": 0, "at": 1}
    look = record_look(
        database, model, file, "certify", "reference", "top", reference=reference, groups=groups, **given
    )
    return look.number


def test_reference_rows_with_a_row_more_or_less_are_not_fresh(database: Database) -> None:
    assert of_file(database, "d0", "of 100", rows=range(100)) == 1
    assert of_file(database, "d1", "of 99", rows=range(1, 100)) == 2
    assert of_file(database, "d2", "of 101", rows=range(101)) == 3
    assert of_file(database, "d3", "others", rows=range(200, 300)) == 1
    assert of_file(database, "d3", "most others", rows=range(100, 199)) == 3, (
        "one row of the third look, two looks since"
    )
    assert of_file(database, "d0", "of 99", model="cars", rows=range(1, 100)) == 2, "the same rows in another model"
    assert of_file(database, "d0", "of 98", model="cars", rows=range(2, 100)) == 2


def test_files_with_the_same_reference_rows_share_their_looks(database: Database) -> None:
    assert [of_file(database, f"d{file}", "rows") for file in range(3)] == [1, 2, 3]
    assert of_file(database, "d0", "other rows") == 1
    assert of_file(database, "d9", "rows", model="cars") == 4


def test_looks_from_before_fingerprints_still_count(database: Database) -> None:
    kind = ("pets", "d1", "certify", "reference", "top")
    record_look(database, *kind, earliest_row_us=0, at=1)  # type: ignore[arg-type]
    assert of_file(database, "d1", "rows") == 2
    assert of_file(database, "d2", "rows") == 2


def test_twenty_looks_at_rows_that_seem_new_are_wrong_at_most_delta_of_the_time(tmp_path: Path) -> None:
    """Flat just under the promise; each look tests the same labels, in the order of another policy or model."""
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    numbers = replayed(database, "certify", [list(range(240))] * 20)
    assert numbers == [of_file(database, f"d{file}", "rows") for file in range(20)]
    database.close()
    rng = np.random.default_rng(33)
    errors = rng.random((WORLDS, 240)) < 0.1001
    counted, as_first = np.zeros(WORLDS, dtype=bool), np.zeros(WORLDS, dtype=bool)
    for number in numbers:
        ranks = np.linspace(6, 240, 40).astype(np.intp)
        wrong = np.cumsum(errors[:, rng.permutation(240)], axis=1, dtype=np.int64)[:, ranks - 1]
        as_first |= walk(ranks, wrong, 20, 0.1, 0.025) >= 0
        share = 0.05 / (number * (number + 1))
        chosen = walk(ranks, wrong, 20, 0.1, share) if number == 1 else choose_in_band(ranks, wrong, 0.1, share)
        counted |= chosen >= 0
    assert binom.isf(0.001, WORLDS, 0.05) >= counted.sum()
    assert as_first.mean() > 0.1, "counted as first looks, they would not hold"
