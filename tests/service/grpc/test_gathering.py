"""Calls wait for each other under load only."""

from __future__ import annotations

import asyncio

from service.grpc.gathering import Gathering


def waits(gathering: Gathering, calls: int) -> bool:
    """Whether calls that arrive together wait; they all end."""

    async def run() -> bool:
        tasks = [asyncio.ensure_future(gathering.together()) for _ in range(calls)]
        await asyncio.sleep(0)
        waited = not any(task.done() for task in tasks)
        await asyncio.gather(*tasks)
        return waited

    return asyncio.run(run())


def test_calls_wait_while_waits_gather_many() -> None:
    gathering = Gathering()
    assert [waits(gathering, 1) for _ in range(255)] == [False] * 255
    assert waits(gathering, 8), "one waits to find out"
    assert [waits(gathering, calls) for calls in (8, 1, 8, 1)] == [True] * 4
    quiet = [waits(gathering, 1) for _ in range(10)]
    assert quiet == sorted(quiet, reverse=True)
    assert quiet[0]
    assert not quiet[-1]


def test_a_call_whose_client_has_gone_holds_up_no_other() -> None:
    gathering = Gathering()

    async def run() -> None:
        for _ in range(255):
            await gathering.together()
        gone, stays = (asyncio.ensure_future(gathering.together()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        assert gone.cancelled()

    asyncio.run(run())
