"""Requests that wait for the same lock share one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event

import pytest
from sqlalchemy import event

from service.errors import FeedbackError, IdempotencyConflictError, StateUnavailableError
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackReceipt, FeedbackStore
from service.state.grouping import GroupedWrites

from .conftest import prediction_id


class Held:
    """A write whose first group waits until it is let go; later ones run at once."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.began, self.go_on = Event(), Event()

    def __call__(self, _key: str, requests: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(requests))
        self.began.set()
        assert self.go_on.wait(30)
        if 13 in requests:
            raise FeedbackError("cannot be written")
        if 99 in requests:
            raise StateUnavailableError("gone")
        return [KeyError(request) if request == 7 else request for request in requests]


def submitted(requests: list[int], at_most: int = 1_000) -> tuple[Held, list[Future[int]]]:
    held = Held()
    groups = GroupedWrites[int, int](held, at_most=at_most)
    futures = [groups.submit("pets", 0, 1)]
    assert held.began.wait(30)
    futures += [groups.submit("pets", request, request) for request in requests]
    held.go_on.set()
    return held, futures


def test_requests_that_come_during_a_write_are_the_next_group_up_to_a_size() -> None:
    held, futures = submitted([1, 2, 3, 40, 5], at_most=6)
    assert [future.result(30) for future in futures] == [0, 1, 2, 3, 40, 5]
    assert held.groups == [[0], [1, 2, 3], [40], [5]]


def test_an_error_of_one_request_is_raised_to_it_alone() -> None:
    held, futures = submitted([1, 7, 13])
    assert [type(future.exception(30)) for future in futures] == [type(None), type(None), KeyError, FeedbackError]
    assert held.groups == [[0], [1, 7, 13], [1], [7], [13]]


def test_without_a_database_the_whole_group_fails_at_once() -> None:
    held, futures = submitted([1, 99])
    assert [type(future.exception(30)) for future in futures[1:]] == [StateUnavailableError] * 2
    assert held.groups == [[0], [1, 99]]


def test_a_withdrawn_request_is_not_written() -> None:
    held = Held()
    groups = GroupedWrites[int, int](held, at_most=10)
    first = groups.submit("pets", 0, 1)
    assert held.began.wait(30)
    assert groups.submit("pets", 1, 1).cancel()
    last = groups.submit("pets", 2, 1)
    held.go_on.set()
    assert (first.result(30), last.result(30), held.groups) == (0, 2, [[0], [2]])


def test_single_labels_of_many_callers_need_few_commits(database: Database) -> None:
    """Each is judged as if alone: repetitions, changed minds and keys that are used twice."""
    store = FeedbackStore(database)
    commits: list[object] = []
    began, go_on = Event(), Event()

    def hold(connection: object) -> None:
        commits.append(connection)
        began.set()
        assert go_on.wait(30)

    def send(number: int, label: str, key: str | None = None) -> Future[FeedbackReceipt]:
        item = FeedbackItem(prediction_id(number), None, label)
        return store.submit("pets", [item], by="till", idempotency_key=key, body_digest=label.encode())

    event.listen(database.engine, "commit", hold)
    first = send(0, "cat")
    assert began.wait(30)
    futures = [send(number, "cat") for number in range(200)]
    said = [send(1, "dog"), send(1, "dog"), send(300, "cat", "k"), send(300, "cat", "k"), send(300, "dog", "k")]
    go_on.set()
    assert first.result(30).items[0].status == "pending"
    assert [future.result(30).items[0].status for future in futures] == ["duplicate"] + ["pending"] * 199
    assert [future.result(30).items[0].status for future in said[:2]] == ["conflict", "duplicate"]
    assert said[2].result(30) == said[3].result(30)
    assert (said[2].result(30).batch, said[3].result(30).batch) == (204, None)
    with pytest.raises(IdempotencyConflictError):
        said[4].result(30)
    event.remove(database.engine, "commit", hold)
    assert len(commits) == 2
    assert {future.result(30).batch for future in futures} == set(range(2, 202))
