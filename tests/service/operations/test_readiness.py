"""The condition of a service is that of its worst process."""

from __future__ import annotations

from typing import Any

from service.operations.readiness import together
from service.others import Answer


def condition(**changes: Any) -> dict[str, Any]:
    well = {"problems": {}, "models": {"digits": "r2"}, "bundles": None, "state": None, "stale_for_s": 0.0}
    return well | changes


def test_all_that_are_well_are_ready() -> None:
    found = together([Answer(1, condition()), Answer(2, condition(stale_for_s=3.0))])
    assert (found.problems, found.models, found.stale_for_s) == ({}, {"digits": "r2"}, 3.0)


def test_one_worker_on_another_revision_is_the_problem_of_all() -> None:
    behind = condition(problems={"digits": "serves r1, not r2"}, models={"digits": "r1"}, state="no answer")
    for answers in ([condition(), behind], [behind, condition()]):
        found = together([Answer(number, value) for number, value in enumerate(answers, 1)])
        assert (found.problems, found.state) == ({"digits": "serves r1, not r2"}, "no answer")


def test_a_worker_that_says_nothing_is_named_unless_it_is_being_started_again() -> None:
    silent, starting = Answer(2, missing="silent"), Answer(3, missing="starting")
    found = together([Answer(1, condition()), silent, starting, Answer(4, missing="restarting")])
    assert found.problems == {"worker 2": "It does not answer.", "worker 3": "It has not started yet."}
    assert found.models == {"digits": "r2"}
