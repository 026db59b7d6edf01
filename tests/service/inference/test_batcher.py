"""The queue in front of the model: everyone gets their own answer exactly once, whatever the others do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import DeadlineExceededError, OverloadedError, RunTooLongError
from service.inference.batcher import Batcher, LoopThread
from tests.waiting import PATIENCE_S

LANES = ("left", "right")
FOREVER_S = 1e6


@dataclass(eq=False)
class Work:
    number: int
    rows: int = 1
    lane: object = LANES[0]
    poisoned: bool = False


@dataclass
class Model:
    """Answers with the number of each piece of work; can be held up, and notes what it was given."""

    batches: list[list[Work]] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go.set()

    def __call__(self, batch: list[Work]) -> list[int]:
        self.busy.set()
        assert self.go.wait(PATIENCE_S)
        self.batches.append(batch)
        if any(work.poisoned for work in batch):
            raise ValueError("poison")
        return [work.number for work in batch]


@contextmanager
def batcher(model: Callable[[list[Work]], list[int]], **changes: Any) -> Iterator[Batcher[Work, int]]:
    options = {"max_batch_size": 8, "max_queued_rows": 1000} | changes
    opened: Batcher[Work, int] = Batcher(model, **options)
    yield opened
    opened.close()


def held_up(model: Model, opened: Batcher[Work, int]) -> asyncio.Task[int]:
    """Occupy the worker until `model.go` is set."""
    model.go.clear()
    return asyncio.ensure_future(opened.submit(Work(-1), deadline_s=FOREVER_S))


async def settled(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 — what is waited for happens on another thread
        await asyncio.sleep(0)


def asleep(opened: Batcher[Work, int]) -> bool:
    return opened._wakes_at_rows > 0


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_schedule_gives_everyone_their_own_answer_once(data: st.DataObject) -> None:
    """Cancellations, deadlines, overload and poison in any order, from two event loops at once."""
    works = st.builds(
        Work,
        number=st.integers(0, 10**9),
        rows=st.integers(1, 12),
        lane=st.sampled_from(LANES),
        poisoned=st.sampled_from([False] * 9 + [True]),
    )
    fates = st.sampled_from(["stay"] * 6 + ["cancel", "cancel at once", "late"])
    plans = [data.draw(st.lists(st.tuples(works, fates), max_size=40)) for _ in range(2)]
    limit = data.draw(st.integers(1, 60))
    delay = data.draw(st.sampled_from([0.0, 0.0005]))
    here = data.draw(st.sampled_from([0.0, FOREVER_S]))
    model = Model()
    ran: list[int] = []

    def run(batch: list[Work]) -> list[int]:
        lanes = {work.lane for work in batch}
        assert len(lanes) == 1
        assert len(batch) == 1 or sum(work.rows for work in batch) <= 8
        result = model(batch)
        ran.extend(id(work) for work in batch)
        return result

    async def call(opened: Batcher[Work, int], work: Work, fate: str) -> str:
        deadline = -1.0 if fate == "late" else FOREVER_S
        task = asyncio.ensure_future(opened.submit(work, deadline_s=deadline, here_s=here))
        if fate == "cancel at once":
            await asyncio.sleep(0)
            task.cancel()
        elif fate == "cancel":
            for _ in range(random.randrange(20)):
                await asyncio.sleep(0)
            task.cancel()
        try:
            answer = await task
        except asyncio.CancelledError:
            assert fate.startswith("cancel")
            return "cancelled"
        except OverloadedError:
            return "overloaded"
        except DeadlineExceededError:
            assert fate == "late"
            return "late"
        except ValueError:
            assert work.poisoned
            return "poisoned"
        assert not work.poisoned
        assert answer == work.number
        return "answered"

    outcomes: list[list[str]] = [[], []]

    def client(which: int, opened: Batcher[Work, int]) -> None:
        async def everybody() -> list[str]:
            return await asyncio.gather(*(call(opened, work, fate) for work, fate in plans[which]))

        outcomes[which] = asyncio.run(everybody())

    with batcher(run, max_queued_rows=limit, delay_s=delay) as opened:
        clients = [threading.Thread(target=client, args=(which, opened)) for which in range(2)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    assert opened.queued_rows == 0
    for plan, got in zip(plans, outcomes, strict=True):
        assert len(got) == len(plan)
        for (work, _), outcome in zip(plan, got, strict=True):
            if outcome == "answered":
                assert ran.count(id(work)) == 1
            if outcome in ("overloaded", "late"):
                assert id(work) not in ran


def ran_here(model: Model, opened: Batcher[Work, int], *works: Work, here_s: float = FOREVER_S) -> list[bool]:
    """Submit work together, once the queue knows how long it takes; says which ran on the event loop's thread."""
    threads: dict[int, threading.Thread] = {}

    def note(batch: list[Work]) -> list[int]:
        threads.update((work.number, threading.current_thread()) for work in batch)
        return model(batch)

    async def everybody() -> list[int]:
        await opened.submit(Work(-1), deadline_s=FOREVER_S)
        await settled(partial(asleep, opened))
        opened._run = note
        return await asyncio.gather(*(opened.submit(work, deadline_s=FOREVER_S, here_s=here_s) for work in works))

    assert asyncio.run(everybody()) == [work.number for work in works]
    return [threads[work.number] is threading.current_thread() for work in works]


def test_quick_work_runs_on_its_callers_thread_together_with_all_that_came_with_it() -> None:
    model = Model()
    with batcher(model) as opened:
        assert ran_here(model, opened, Work(1)) == [True]
    with batcher(model) as opened:
        assert ran_here(model, opened, Work(1), here_s=1e-12) == [False], "it is expected to take longer"
    with batcher(model) as opened:
        assert ran_here(model, opened, Work(1), Work(2), Work(3)) == [True] * 3
        assert [work.number for work in model.batches[-1]] == [1, 2, 3]
    with batcher(model) as opened:
        assert ran_here(model, opened, *map(Work, range(20))) == [True] * 20, "one full batch after the other"
        assert [len(batch) for batch in model.batches[-3:]] == [8, 8, 4]
    with batcher(model, delay_s=0.0005) as opened:
        assert ran_here(model, opened, Work(1)) == [False], "it is to wait for company"


def test_nothing_runs_on_its_callers_thread_while_the_worker_is_busy() -> None:
    model = Model()

    async def everybody(opened: Batcher[Work, int]) -> None:
        await opened.submit(Work(0), deadline_s=FOREVER_S)
        model.busy.clear()
        first = held_up(model, opened)
        await asyncio.to_thread(model.busy.wait)
        second = asyncio.ensure_future(opened.submit(Work(2), deadline_s=FOREVER_S, here_s=FOREVER_S))
        await settled(lambda: opened.queued_rows == 1)
        model.go.set()
        assert await asyncio.gather(first, second) == [-1, 2]

    with batcher(model) as opened:
        asyncio.run(everybody(opened))


def test_what_fails_on_its_callers_thread_fails_its_caller_and_is_counted() -> None:
    model = Model()

    async def one_after_the_other(opened: Batcher[Work, int]) -> None:
        await opened.submit(Work(0), deadline_s=FOREVER_S)
        with pytest.raises(ValueError, match="poison"):
            await opened.submit(Work(1, poisoned=True), deadline_s=FOREVER_S, here_s=FOREVER_S)
        assert await opened.submit(Work(2), deadline_s=FOREVER_S, here_s=FOREVER_S) == 2

    with batcher(model) as opened:
        asyncio.run(one_after_the_other(opened))
        assert opened.refusals.failed == 1


@pytest.mark.parametrize("shared", [True, False])
def test_of_several_queues_one_runs_on_the_callers_thread_at_a_time(shared: bool) -> None:
    loop_thread = LoopThread() if shared else None
    here: dict[int, bool] = {}

    async def everybody(*both: Batcher[Work, int]) -> None:
        caller = threading.current_thread()

        def note(batch: list[Work]) -> list[int]:
            here.update((work.number, threading.current_thread() is caller) for work in batch)
            return [work.number for work in batch]

        for opened in both:
            await opened.submit(Work(-1), deadline_s=FOREVER_S)
            opened._run = note
            await settled(partial(asleep, opened))
        asked = [opened.submit(Work(n), deadline_s=FOREVER_S, here_s=FOREVER_S) for n, opened in enumerate(both)]
        assert await asyncio.gather(*asked) == [0, 1]
        assert await both[1].submit(Work(2), deadline_s=FOREVER_S, here_s=FOREVER_S) == 2

    with batcher(Model(), loop_thread=loop_thread) as first, batcher(Model(), loop_thread=loop_thread) as second:
        asyncio.run(everybody(first, second))
    assert here[0] is True
    assert here[1] is not shared


def test_closing_waits_for_what_runs_on_its_callers_thread() -> None:
    closed = threading.Event()

    async def scenario(opened: Batcher[Work, int]) -> int:
        def close() -> None:
            opened.close()
            closed.set()

        def run(batch: list[Work]) -> list[int]:
            threading.Thread(target=close).start()
            opened._thread.join()
            assert not closed.wait(0.1), "log and database would be closed while this runs"
            return [work.number for work in batch]

        await opened.submit(Work(0), deadline_s=FOREVER_S)
        await settled(partial(asleep, opened))
        opened._run = run
        return await opened.submit(Work(1), deadline_s=FOREVER_S, here_s=FOREVER_S)

    with batcher(Model()) as opened:
        assert asyncio.run(scenario(opened)) == 1
        assert closed.wait(FOREVER_S)


def test_what_waits_is_taken_together_and_in_order() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            waiting = [asyncio.ensure_future(opened.submit(Work(n), deadline_s=FOREVER_S)) for n in range(10)]
            await settled(lambda: opened.queued_rows == 10)
            model.go.set()
            assert await asyncio.gather(first, *waiting) == [-1, *range(10)]
        assert [[work.number for work in batch] for batch in model.batches] == [[-1], [*range(8)], [8, 9]]

    asyncio.run(scenario())


def test_lanes_take_turns_and_share_no_batch() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            lanes = [LANES[0]] * 11 + [LANES[1]] * 2 + [LANES[0]]
            waiting = [
                asyncio.ensure_future(opened.submit(Work(n, lane=lane), deadline_s=FOREVER_S))
                for n, lane in enumerate(lanes)
            ]
            await settled(lambda: opened.queued_rows == 14)
            model.go.set()
            await asyncio.gather(first, *waiting)
        assert [[work.number for work in batch] for batch in model.batches[1:]] == [
            [*range(8)],
            [11, 12],
            [8, 9, 10, 13],
        ]

    asyncio.run(scenario())


def test_a_run_that_was_ended_does_not_run_again_in_halves() -> None:
    class Ended(Model):
        def __call__(self, batch: list[Work]) -> list[int]:
            numbers = super().__call__(batch)
            if len(batch) > 1:
                raise RunTooLongError("It takes too long.", found="9 s", expected="at most 1 s")
            return numbers

    async def scenario() -> None:
        model = Ended()
        with batcher(model) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            waiting = [asyncio.ensure_future(opened.submit(Work(n), deadline_s=FOREVER_S)) for n in range(6)]
            await settled(lambda: opened.queued_rows == 6)
            model.go.set()
            first_result, *results = await asyncio.gather(first, *waiting, return_exceptions=True)
            assert first_result == -1
            for result in results:
                assert isinstance(result, RunTooLongError)
                assert "a batch that contained these inputs" in str(result)
                assert "once, alone" in str(result.remedy)
                assert (result.found, result.expected) == ("9 s", "at most 1 s")
            assert await opened.submit(Work(7), deadline_s=FOREVER_S) == 7
        assert [len(batch) for batch in model.batches] == [1, 6, 1]

    asyncio.run(scenario())


def test_a_poisoned_input_fails_alone() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            waiting = [
                asyncio.ensure_future(opened.submit(Work(n, poisoned=n == 3), deadline_s=FOREVER_S)) for n in range(6)
            ]
            await settled(lambda: opened.queued_rows == 6)
            model.go.set()
            results = await asyncio.gather(first, *waiting, return_exceptions=True)
            assert [r for r in results if not isinstance(r, ValueError)] == [-1, 0, 1, 2, 4, 5]
            assert isinstance(results[4], ValueError)
            assert await opened.submit(Work(7), deadline_s=FOREVER_S) == 7
        # By halves: all six, the good three, the bad three, the bad one alone, the two beside it.
        ran = [[work.number for work in batch] for batch in model.batches[1:6]]
        assert ran == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5], [3], [4, 5]]

    asyncio.run(scenario())


def test_a_full_queue_refuses_at_once_and_an_empty_one_takes_any_size() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model, max_queued_rows=10) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            large = asyncio.ensure_future(opened.submit(Work(1, rows=50), deadline_s=FOREVER_S))
            await settled(lambda: opened.queued_rows == 50)
            with pytest.raises(OverloadedError) as caught:
                await opened.submit(Work(2), deadline_s=FOREVER_S)
            assert caught.value.found == "50 rows waiting"
            model.go.set()
            assert await asyncio.gather(first, large) == [-1, 1]

    asyncio.run(scenario())


def test_what_would_come_too_late_is_refused_at_once() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model) as opened:
            opened._row_s = 1.0
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            second = asyncio.ensure_future(opened.submit(Work(2), deadline_s=1.0))  # nothing waits: it is let in
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError):  # two rows are before it, for two seconds
                await opened.submit(Work(3), deadline_s=1.0)
            third = asyncio.ensure_future(opened.submit(Work(4), deadline_s=10.0))
            await settled(lambda: opened.queued_rows == 2)
            model.go.set()
            assert await asyncio.gather(first, second, third) == [-1, 2, 4]
            assert opened._row_s < 1.0

    asyncio.run(scenario())


def test_a_delay_waits_for_company_and_no_longer_than_it_says() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model, max_batch_size=3, delay_s=0.02) as opened:
            assert await opened.submit(Work(0), deadline_s=FOREVER_S) == 0  # alone, when the time is up
        with batcher(model, max_batch_size=3, delay_s=1e5) as opened:
            works = [Work(number) for number in range(1, 4)]
            assert await asyncio.gather(*(opened.submit(work, deadline_s=FOREVER_S) for work in works)) == [1, 2, 3]
            left = asyncio.ensure_future(opened.submit(Work(4), deadline_s=FOREVER_S))
            await settled(lambda: opened.queued_rows == 1)
            await asyncio.to_thread(opened.close)  # a stop waits for nobody
            assert await left == 4
        assert [[work.number for work in batch] for batch in model.batches] == [[0], [1, 2, 3], [4]]

    asyncio.run(scenario())


def test_what_nobody_waits_for_is_never_run() -> None:
    async def scenario() -> None:
        model = Model()
        with batcher(model) as opened:
            first = held_up(model, opened)
            await settled(model.busy.is_set)
            given_up = asyncio.ensure_future(opened.submit(Work(1), deadline_s=FOREVER_S))
            late = asyncio.ensure_future(opened.submit(Work(2), deadline_s=0.0))
            kept = asyncio.ensure_future(opened.submit(Work(3), deadline_s=FOREVER_S))
            await settled(lambda: opened.queued_rows == 3)
            given_up.cancel()
            await asyncio.sleep(0)
            model.go.set()
            assert await asyncio.gather(first, kept) == [-1, 3]
            with pytest.raises(DeadlineExceededError):
                await late
        assert [[work.number for work in batch] for batch in model.batches] == [[-1], [3]]

    asyncio.run(scenario())


def test_closing_finishes_what_waits_and_refuses_what_comes() -> None:
    async def scenario() -> None:
        model = Model()
        opened: Batcher[Work, int] = Batcher(model, max_batch_size=4, max_queued_rows=100)
        first = held_up(model, opened)
        await settled(model.busy.is_set)
        waiting = [asyncio.ensure_future(opened.submit(Work(n), deadline_s=FOREVER_S)) for n in range(9)]
        await settled(lambda: opened.queued_rows == 9)
        closing = asyncio.ensure_future(asyncio.to_thread(opened.close))
        refused = None
        while refused is None:
            try:
                await asyncio.wait_for(opened.submit(Work(99), deadline_s=FOREVER_S), 0.001)
            except OverloadedError as error:
                refused = error
            except TimeoutError:
                pass
        assert str(refused) == "The service is stopping."
        model.go.set()
        assert await asyncio.gather(first, *waiting) == [-1, *range(9)]
        await closing
        assert 99 not in [work.number for batch in model.batches for work in batch]

    asyncio.run(scenario())


def test_a_model_that_answers_too_few_fails_its_callers_and_not_the_worker() -> None:
    async def scenario() -> None:
        answers = [[], [7]]
        with batcher(lambda _: answers.pop(0)) as opened:
            with pytest.raises(ValueError, match="zip"):
                await opened.submit(Work(1), deadline_s=FOREVER_S)
            assert await opened.submit(Work(7), deadline_s=FOREVER_S) == 7

    asyncio.run(scenario())


def test_callers_whose_loop_is_gone_do_not_stop_the_worker() -> None:
    model = Model()

    async def leave(opened: Batcher[Work, int]) -> None:
        held_up(model, opened)
        await settled(model.busy.is_set)

    with batcher(model) as opened:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave(opened))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        model.go.set()
        assert asyncio.run(opened.submit(Work(5), deadline_s=FOREVER_S)) == 5
