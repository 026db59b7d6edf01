"""Metrics of several processes as those of one."""

from __future__ import annotations

import asyncio
from typing import Any

from service.others import METRICS
from service.runtime import Runtime
from service.sums import RULES, summed
from service.workers.questions import Questions


def of(kind: str, name: str, value: float) -> list[list[Any]]:
    return [[name, kind, "Help.", [[name, [["model", "digits"]], value]]]]


def test_counts_add_up_and_states_are_those_of_the_worst() -> None:
    def together(kind: str, name: str, *values: float) -> float:
        number: float = summed([of(kind, name, value) for value in values])[0][3][0][2]
        return number

    assert together("counter", "anything", 1.0, 2.0, 4.0) == 7.0
    assert together("gauge", "candor_queue_rows", 1.0, 2.0) == 3.0
    assert together("gauge", "candor_ready", 1.0, 0.0) == 0.0
    assert together("gauge", "candor_epoch", 3.0, 2.0) == 2.0
    assert together("gauge", "candor_state_stale_seconds", 3.0, 2.0) == 3.0


def test_every_gauge_has_a_rule(shared: Any) -> None:
    runtime: Runtime = shared.runtime
    assert {name for name, kind, _, _ in runtime.metrics.snapshot() if kind == "gauge"} <= RULES.keys()


async def answers(questions: Questions, sent: list[tuple[int, Any]], told: dict[int, float | None]) -> float:
    """Ask all workers; those with a value tell it, those without end."""
    questions.put(1, 0, METRICS, members={*told}, missing={}, within_s=1000.0, own=[])
    id_ = next(message["id"] for _, message in reversed(sent) if "do" in message)
    for worker, value in told.items():
        if value is None:
            questions.ended(worker)
        else:
            questions.answered(worker, id_, of("counter", "hits", value), failed=False)
    found = sent[-1][1]["answers"]
    total: float = summed([value for _, value, _ in found if value is not None])[0][3][0][2]
    return total


async def sums_after_an_end() -> list[float]:
    sent: list[tuple[int, Any]] = []
    questions = Questions(lambda worker, message: sent.append((worker, message)))
    return [
        await answers(questions, sent, {1: 10.0, 2: 20.0}),
        await answers(questions, sent, {1: 11.0, 2: None}),
        await answers(questions, sent, {1: 12.0, 2: 1.0}),
    ]


def test_a_worker_that_ends_takes_nothing_from_a_sum() -> None:
    assert asyncio.run(sums_after_an_end()) == [30.0, 31.0, 33.0]
