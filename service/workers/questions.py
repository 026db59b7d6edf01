"""Questions of one worker to all, collected by the supervisor."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from service.others import METRICS, STATISTICS
from service.sums import Snapshot, counted, summed

Send = Callable[[int, Mapping[str, Any]], None]
"""Sends a message to a worker, by number."""

_COUNTING: Final = (METRICS, STATISTICS)


@dataclass
class _Open:
    asker: int
    number: int  # the asker's own
    what: str
    waiting: set[int]
    answers: list[tuple[int, Any, str | None]]
    timer: asyncio.TimerHandle


@dataclass
class _Counts:
    """What workers have counted, so that no sum ever falls: Prometheus would take that for a restart of everything."""

    last: dict[int, Snapshot] = field(default_factory=dict)
    ended: Snapshot = field(default_factory=list)


class Questions:
    """Puts a question to the workers and returns their answers to the one that asked.

    A worker that ends or does not answer in time is left out of the answers by name. Of its counts the last that it
    told stay in the sums.

    Args:
        send: Sends a message to a worker.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._open: dict[int, _Open] = {}
        self._counts = {what: _Counts() for what in _COUNTING}

    def put(
        self,
        asker: int,
        number: int,
        what: str,
        *,
        members: set[int],
        missing: Mapping[int, str],
        within_s: float,
        own: Snapshot,
    ) -> None:
        """Put a question to all members.

        Args:
            asker: Worker that asks.
            number: Its number for the question.
            what: The question.
            members: Workers to ask.
            missing: Workers that cannot be asked, and why.
            within_s: Time for their answers in seconds.
            own: What the supervisor itself has to say to a question about metrics.
        """
        answers: list[tuple[int, Any, str | None]] = [(worker, None, why) for worker, why in missing.items()]
        if what in self._counts:
            counts = self._counts[what]
            leaving = [counted(counts.last[worker]) for worker in missing if worker in counts.last]
            answers.append((0, summed([counts.ended, *leaving, *([own] if what == METRICS else [])]), None))
        id_ = next(self._numbers)
        timer = asyncio.get_running_loop().call_later(within_s, self._end, id_)
        self._open[id_] = _Open(asker, number, what, set(members), answers, timer)
        for worker in members:
            self._send(worker, {"do": what, "id": id_})
        self._end_if_complete(id_)

    def answered(self, worker: int, id_: int, value: Any, *, failed: bool) -> None:
        """Take a worker's answer."""
        one = self._open.get(id_)
        if one is None or worker not in one.waiting:
            return
        one.waiting.remove(worker)
        if failed:
            one.answers.append((worker, None, "silent"))
        else:
            if one.what in self._counts:
                self._counts[one.what].last[worker] = value
            one.answers.append((worker, value, None))
        self._end_if_complete(id_)

    def ended(self, worker: int) -> None:
        """Wait no longer for a worker that has ended, nor answer it, and keep what it has counted.

        The next process of that worker numbers its questions anew: it would take the answers for those to its own.
        """
        for id_, one in list(self._open.items()):
            if one.asker == worker:
                one.timer.cancel()
                del self._open[id_]
            elif worker in one.waiting:
                one.waiting.remove(worker)
                one.answers.append(self._last_of(worker, one.what) or (worker, None, "restarting"))
                self._end_if_complete(id_)
        for counts in self._counts.values():
            if (last := counts.last.pop(worker, None)) is not None:
                counts.ended = summed([counts.ended, counted(last)])

    def _last_of(self, worker: int, what: str) -> tuple[int, Any, str | None] | None:
        """Return a worker's latest counts as its answer, None if it has sent none yet."""
        last = self._counts[what].last.get(worker) if what in self._counts else None
        return None if last is None else (worker, last, None)

    def _end_if_complete(self, id_: int) -> None:
        if not self._open[id_].waiting:
            self._end(id_)

    def _end(self, id_: int) -> None:
        one = self._open.pop(id_)
        one.timer.cancel()
        one.answers += [self._last_of(worker, one.what) or (worker, None, "silent") for worker in one.waiting]
        self._send(one.asker, {"told": one.number, "answers": sorted(one.answers, key=lambda answer: answer[0])})
