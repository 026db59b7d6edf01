"""The review queue: cases come with their rows, one person has one, and nothing is done twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event, func, select, update

from candor.contract.policies import Review
from service.errors import CaseStateError, StateUnavailableError, UnknownCaseError
from service.ids import new_ids
from service.state import audit, prediction_rows
from service.state.cases import CaseStore
from service.state.database import Database, now_us
from service.state.deletion import Deleted
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.prediction_rows import RowWriter
from service.state.predictions import PredictionLog
from service.state.retention import count_older, prune
from service.state.reviewed import Reviewed, Undecided, select_reviews
from service.state.tables import cases, predictions
from service.times import DAY_US

from .conftest import batch, prediction_id

MODEL, LEASE_US, HOUR_US = "pets", 60_000_000, 3_600_000_000
Write = Callable[..., list[str]]


def reviewed(logged: Write, probabilities: list[float], **changes: Any) -> list[str]:
    """Log rows that a policy sends to review; return their ids."""
    n, terms = len(probabilities), Review.model_validate(changes.pop("review", {}))
    ids = changes.pop("ids", [prediction_id(number) for number in range(n)])
    at_most = terms.max_per_day is not None
    fields = {
        "actions": ["review"] * n,
        "sought": [None if at_most else True] * n,
        "propensities": [None if at_most else 1.0] * n,
        "created_at": now_us(),
        "reviewed": Reviewed("fraud", terms, np.array(probabilities, np.float32)),
    }
    return logged(ids, **(fields | changes))


@pytest.fixture
def queue(database: Database) -> CaseStore:
    return CaseStore(database)


def claim(queue: CaseStore, by: str, count: int = 1, **options: Any) -> list[str]:
    return [one.id for one in queue.claim_next(MODEL, by, count=count, lease_us=LEASE_US, **options)]


def label(database: Database, queue: CaseStore, id_: str, by: str, name: str = "cat", lease: int | None = None) -> str:
    def within(connection: Any) -> None:
        queue.label_within(connection, MODEL, id_, by, label=name, lease=lease)

    items = [FeedbackItem(id_, None, name, "reviewer")]
    return FeedbackStore(database).submit(MODEL, items, by=by, within=within).result().items[0].status


def expire(database: Database) -> None:
    """End the time of all claims."""
    with database.begin() as connection:
        connection.execute(update(cases).values(lease_until=now_us() - 1))


def test_a_row_whose_label_is_sought_is_a_case_and_others_are_not(queue: CaseStore, logged: Write) -> None:
    ids = reviewed(
        logged,
        [0.2, 0.9, 0.4],
        actions=["review", "allow", "allow"],
        sought=[True, True, False],
        propensities=[1.0, 0.1, 0.1],
        references=["a", None, None],
        review={"due": "2h"},
    )
    logged([prediction_id(9)])  # a policy without a queue
    first, second = queue.page(MODEL, state=None, order="priority", limit=9)
    assert (first.id, first.selected, first.propensity) == (ids[1], "explored", 0.1)
    assert (second.id, second.selected, second.reference, second.action) == (ids[0], "all", "a", "review")
    assert second.due_at - second.created_at == 2 * 3_600_000_000
    with pytest.raises(UnknownCaseError):
        queue.get(MODEL, ids[2])
    with pytest.raises(UnknownCaseError):
        queue.get("others", ids[0])


def test_the_most_probable_come_first_or_the_oldest(queue: CaseStore, logged: Write) -> None:
    ids = reviewed(logged, [0.2, 0.9, 0.4])
    assert claim(queue, "ann") == [ids[1]]
    assert claim(queue, "bob", 5, order="due") == [ids[0], ids[2]]
    older = [prediction_id(20), prediction_id(21)]
    reviewed(logged, [0.1, 0.8], ids=older, review={"priority": "age"})
    assert claim(queue, "ann", 5) == older


def test_two_people_never_claim_the_same_case(
    queue: CaseStore, database: Database, other: Database, logged: Write
) -> None:
    ids = reviewed(logged, np.linspace(0.01, 0.99, 60).tolist())
    stores = [CaseStore(database), CaseStore(other)]
    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda number: claim(stores[number % 2], f"p{number}", 9), range(12))]
    given = [id_ for part in found for id_ in part]
    assert sorted(given) == sorted(ids)
    assert claim(queue, "late", 5) == []


def test_a_claim_expires_and_the_case_goes_to_the_next(queue: CaseStore, database: Database, logged: Write) -> None:
    (id_,) = reviewed(logged, [0.5])
    assert claim(queue, "ann") == [id_]
    assert claim(queue, "bob") == []
    with pytest.raises(CaseStateError, match="ann has case"):
        label(database, queue, id_, "bob")
    expire(database)
    assert queue.get(MODEL, id_).state(now_us()) == "open"
    assert claim(queue, "bob") == [id_]
    with pytest.raises(CaseStateError, match="bob has case"):
        label(database, queue, id_, "ann")
    assert label(database, queue, id_, "bob") == "stored"
    with pytest.raises(CaseStateError, match="already labelled cat, by bob") as refused:
        queue.claim(MODEL, id_, "ann", lease_us=LEASE_US)
    assert "Only the person who ended a case can" in (refused.value.remedy or "")
    done = queue.get(MODEL, id_)
    assert (done.outcome, done.label, done.done_by, done.lease) == ("labelled", "cat", "bob", 2)


def test_the_number_of_the_claim_tells_two_callers_of_one_name_apart(
    queue: CaseStore, database: Database, logged: Write
) -> None:
    (id_,) = reviewed(logged, [0.5])
    claim(queue, "ops")
    expire(database)
    claim(queue, "ops")
    with pytest.raises(CaseStateError, match="has been claimed again"):
        label(database, queue, id_, "ops", lease=1)
    with pytest.raises(CaseStateError, match="has been claimed again"):
        queue.skip(MODEL, id_, "ops", reason="unreadable", lease=1)
    assert queue.claim(MODEL, id_, "ops", lease_us=9 * LEASE_US).lease == 2  # extended
    assert label(database, queue, id_, "ops", lease=2) == "stored"


def test_a_refused_label_is_not_stored(queue: CaseStore, database: Database, logged: Write) -> None:
    (id_,) = reviewed(logged, [0.5])
    claim(queue, "ann")
    store = FeedbackStore(database)
    with pytest.raises(CaseStateError):
        label(database, queue, id_, "bob")
    assert store.add(MODEL, [FeedbackItem(id_, None, "cat", "reviewer")], by="x").stored == 1


def test_of_many_who_label_one_case_at_once_one_is_heard(
    queue: CaseStore, database: Database, other: Database, logged: Write
) -> None:
    (id_,) = reviewed(logged, [0.5])

    def attempt(number: int) -> bool:
        try:
            label([database, other][number % 2], queue, id_, f"p{number}", ["cat", "dog"][number % 2])
        except CaseStateError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


def test_who_labelled_may_correct_and_the_conflict_counts(queue: CaseStore, database: Database, logged: Write) -> None:
    (id_,) = reviewed(logged, [0.5])
    assert label(database, queue, id_, "ann", "dog") == "stored"
    assert label(database, queue, id_, "ann", "dog") == "duplicate"  # sent again after a lost answer
    assert label(database, queue, id_, "ann", "cat") == "conflict"
    assert queue.get(MODEL, id_).label == "cat"
    with pytest.raises(CaseStateError):
        queue.release(MODEL, id_, "bob")
    assert queue.release(MODEL, id_, "ann").state(now_us()) == "open"
    assert claim(queue, "bob") == [id_]


def test_a_skip_keeps_its_reason_and_a_release_reopens(queue: CaseStore, logged: Write) -> None:
    (id_,) = reviewed(logged, [0.5])
    claim(queue, "ann")
    with pytest.raises(CaseStateError):
        queue.skip(MODEL, id_, "bob", reason="dark")
    assert queue.skip(MODEL, id_, "ann", reason="dark").reason == "dark"
    (done,) = queue.page(MODEL, state="skipped", order="priority", limit=5)
    assert (done.id, done.done_by) == (id_, "ann")
    assert queue.page(MODEL, state=None, order="priority", limit=5) == []
    reopened = queue.release(MODEL, id_, "ann")
    assert (reopened.reason, reopened.done_at, reopened.outcome) == (None, None, None)
    with pytest.raises(CaseStateError, match="does not hold"):
        queue.release(MODEL, id_, "ann")


def test_a_case_with_a_reviewers_label_is_not_skipped(queue: CaseStore, database: Database, logged: Write) -> None:
    (id_,) = reviewed(logged, [0.5])
    label(database, queue, id_, "ann", "dog")
    queue.release(MODEL, id_, "ann")
    lease = queue.claim(MODEL, id_, "ann", lease_us=LEASE_US).lease
    with pytest.raises(CaseStateError, match="that label is in force") as refused:
        queue.skip(MODEL, id_, "ann", reason="unclear")
    assert (refused.value.found, refused.value.remedy) == ("dog", "Label it again: the later label counts.")
    kept = queue.get(MODEL, id_)
    assert (kept.state(now_us()), kept.lease, kept.reason) == ("claimed", lease, None)
    assert label(database, queue, id_, "ann", "cat") == "conflict"


def test_claims_of_a_policy_and_claimed_cases_have_an_index(
    database: Database, queue: CaseStore, logged: Write
) -> None:
    if database.engine.dialect.name != "sqlite":
        pytest.skip("the plan of an empty table on PostgreSQL is a scan")
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT cases.id"):
            rows = connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in rows)

    reviewed(logged, [0.5])
    event.listen(database.engine, "before_cursor_execute", explain)
    try:
        claim(queue, "ann", policy="fraud")
        queue.page(MODEL, state="claimed", order="priority", limit=5)
    finally:
        event.remove(database.engine, "before_cursor_execute", explain)
    for index in ("cases_by_policy (model=? AND policy=?)", "cases_claimed (model=? AND lease_until>?)"):
        assert any(index in plan for plan in plans), plans


def test_an_assigned_case_comes_first_to_its_person_and_to_no_other(
    queue: CaseStore, database: Database, logged: Write
) -> None:
    ids = reviewed(logged, [0.9, 0.2])
    queue.assign(MODEL, ids[1], "bob", by="ann")
    assert claim(queue, "ann", 5) == [ids[0]]
    with pytest.raises(CaseStateError, match="assigned to bob"):
        queue.claim(MODEL, ids[1], "ann", lease_us=LEASE_US)
    assert claim(queue, "bob", 5) == [ids[1]]
    queue.release(MODEL, ids[1], "bob")
    queue.assign(MODEL, ids[1], None, by="bob")
    assert claim(queue, "ann", 5) == [ids[1]]
    entries = [(one.by, one.action, one.subject, one.detail) for one in audit.read(database, MODEL)]
    assert entries == [("bob", "assign", ids[1], {"to": None}), ("ann", "assign", ids[1], {"to": "bob"})]


def test_feedback_from_elsewhere_closes_a_case_also_by_reference(
    queue: CaseStore, database: Database, logged: Write
) -> None:
    ids = reviewed(logged, [0.9, 0.2, 0.3], references=["a", "b", "b"])
    claim(queue, "ann")
    items = [FeedbackItem(ids[0], None, "dog", "system"), FeedbackItem(None, "b", "cat", "client")]
    FeedbackStore(database).add(MODEL, items, by="till")
    assert claim(queue, "bob", 5) == []
    assert [queue.get(MODEL, id_).label for id_ in ids] == ["dog", "cat", "cat"]
    assert queue.get(MODEL, ids[0]).done_by == "till"


def test_a_label_that_came_before_its_row_leaves_nothing_to_claim(
    queue: CaseStore, database: Database, logged: Write
) -> None:
    items = [FeedbackItem(prediction_id(0), None, "dog", "system"), FeedbackItem(None, "b", "cat", "client")]
    FeedbackStore(database).add(MODEL, items, by="till")
    ids = reviewed(logged, [0.9, 0.8, 0.7, 0.3], references=[None, "b", "b", None])
    assert claim(queue, "ann", 4) == [ids[3]]
    assert [queue.get(MODEL, id_).label for id_ in ids[1:3]] == ["cat", "cat"]


def test_pages_go_through_all_cases_once(queue: CaseStore, logged: Write, database: Database) -> None:
    from service.state.cases import place_of

    ids = reviewed(logged, [0.5, 0.5, 0.9, 0.1, 0.5])
    for order, expected in (("priority", [2, 0, 1, 4, 3]), ("due", [0, 1, 2, 3, 4])):
        seen, after = [], None
        while page := queue.page(MODEL, state="open", order=order, limit=2, after=after):  # type: ignore[arg-type]
            seen += [one.id for one in page]
            after = place_of(page[-1], "open", order)  # type: ignore[arg-type]
        assert seen == [ids[number] for number in expected]


def test_the_counts_are_of_what_waits(queue: CaseStore, database: Database, logged: Write) -> None:
    ids = reviewed(logged, [0.9, 0.2, 0.3], created_at=now_us() - 7_200_000_000, review={"due": "1h"})
    reviewed(logged, [0.5], ids=[prediction_id(40)])
    label(database, queue, ids[0], "ann")
    claim(queue, "ann")
    counts = queue.counts()[MODEL]
    assert (counts.waiting, counts.claimed, counts.overdue) == (3, 1, 2)


def test_erasure_takes_the_cases_too(queue: CaseStore, database: Database, logged: Write) -> None:
    ids = reviewed(logged, [0.9, 0.2], groups=["card-5", "card-6"])
    assert [one.id for one in queue.earlier(MODEL, queue.get(MODEL, ids[0]), 5)] == []
    assert erase(database, MODEL, Subject("group", "card-5"), by="ops") == Deleted(predictions=1, cases=1)
    with pytest.raises(UnknownCaseError):
        queue.get(MODEL, ids[0])
    assert claim(queue, "ann", 5) == [ids[1]]


def test_a_capacity_leaves_rows_out_and_logs_what_was_drawn(
    queue: CaseStore, database: Database, logged: Write
) -> None:
    n = 400
    ids = [prediction_id(number) for number in range(n)]
    reviewed(
        logged,
        np.random.default_rng(0).random(n).tolist(),
        ids=ids,
        review={"max_per_day": 24, "random_share": 0.5},
        created_at=1_763_000_000_000_000 // 86_400_000_000 * 86_400_000_000,
    )
    with database.connect() as connection:
        rows = connection.execute(select(predictions.c.id, predictions.c.propensity, predictions.c.sought)).all()
        queued = connection.scalar(select(func.count()).select_from(cases))
    assert len(rows) == n
    assert all(row.propensity > 0 for row in rows)
    sought = {row.id for row in rows if row.sought}
    assert {one.id for one in queue.page(MODEL, state=None, order="priority", limit=n)} == sought
    assert queued == len(sought) < 100
    kinds = {one.selected for one in queue.page(MODEL, state=None, order="priority", limit=n)}
    assert kinds <= {"ranked", "random"}


def test_labels_that_arise_by_themselves_need_no_case(queue: CaseStore, database: Database, logged: Write) -> None:
    """Only the capacity's rows are reviewed; the labels of all are sought, with certainty."""
    n = 200
    arising = Reviewed(
        "fraud",
        Review(max_per_day=24, random_share=0.5),
        np.linspace(0, 1, n + 2, dtype=np.float32),
        arising=frozenset({"review", "allow"}),
    )
    reviewed(
        logged,
        [0.5] * (n + 2),
        reviewed=arising,
        actions=["review"] * n + ["allow", "block"],
        sought=[None] * n + [True, True],
        propensities=[None] * n + [1.0, 0.1],
    )
    with database.connect() as connection:
        found = connection.execute(select(predictions.c.propensity, predictions.c.sought).order_by(predictions.c.id))
        assert [tuple(row) for row in found] == [(1.0, True)] * (n + 1) + [(0.1, True)]
        why = dict(connection.execute(select(cases.c.selected, func.count()).group_by(cases.c.selected)).all())
    assert why.pop("explored") == 1  # the blocked row
    assert 0 < sum(why.values()) < n


@pytest.mark.parametrize("together", [True, False])
def test_rows_of_old_hours_spend_no_slots_twice(database: Database, together: bool) -> None:
    terms = Review(max_per_day=24, random_share=0.0)
    reviewed = Reviewed("fraud", terms, np.full(50, 0.5))
    groups = [Undecided(MODEL, reviewed, range(50), hour * HOUR_US) for hour in range(23, -1, -1)]
    found = []
    for part in [groups] if together else [[group] for group in groups]:
        with database.begin() as connection:
            found += select_reviews(connection, part, random.Random(0))
    assert sum(why == "ranked" for _, reasons in found for why in reasons) == 24


def test_retention_takes_the_cases_with_their_predictions(queue: CaseStore, database: Database, logged: Write) -> None:
    reviewed(logged, [0.9, 0.2], created_at=1_000)
    (young,) = reviewed(logged, [0.5], ids=new_ids(1))
    before = now_us() - 2 * DAY_US
    assert count_older(database, before).cases == 2
    assert prune(database, before, by="ops") == Deleted(predictions=2, cases=2)
    assert claim(queue, "ann", 5) == [young]


@pytest.mark.parametrize("review", [{}, {"max_per_day": 24_000}])
def test_rows_left_out_of_the_log_make_no_cases(database: Database, queue: CaseStore, review: dict[str, Any]) -> None:
    n = 60
    ids = [prediction_id(number) for number in range(n)]
    log = PredictionLog(database, sample=0.5)
    terms = Review.model_validate(review)
    new = batch(
        ids,
        groups=[f"card-{number}" for number in range(n)],
        actions=["review"] * n,
        sought=[None if review else True] * n,
        propensities=[None if review else 1.0] * n,
        reviewed=Reviewed("fraud", terms, np.linspace(0, 1, n)),
    )
    assert log.append(new)
    log.close()
    with database.connect() as connection:
        logged = set(connection.scalars(select(predictions.c.id)))
    assert 0 < len(logged) < n
    assert {one.id for one in queue.page(MODEL, state=None, order="priority", limit=n)} == logged


def test_a_repeated_attempt_keeps_what_the_first_has_drawn(
    database: Database, queue: CaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, attempts = 300, []
    ids = [prediction_id(number) for number in range(n)]
    terms = Review(max_per_day=100, random_share=1.0)
    new = batch(
        ids,
        actions=["review"] * n,
        sought=[None] * n,
        propensities=[None] * n,
        reviewed=Reviewed("fraud", terms, np.linspace(0, 1, n)),
    )
    writer = RowWriter(database, sample=1.0, keep_inputs="off")
    insert = prediction_rows.insert_new

    def lost_answer(connection: Any, table: Any, names: Any, rows: Any) -> None:
        insert(connection, table, names, rows)
        attempts.append((table.name, rows))
        if len(attempts) == 1:
            raise StateUnavailableError("the database went away")

    monkeypatch.setattr(prediction_rows, "insert_new", lost_answer)
    with pytest.raises(StateUnavailableError):
        writer.write([new])
    assert writer.write([new]) == n
    first, second = (rows for name, rows in attempts if name == "predictions")
    assert first == second
    assert len(queue.page(MODEL, state=None, order="priority", limit=n)) == sum(row[10] for row in second) < n
