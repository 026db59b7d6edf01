"""Send the rows of a file to the service over several connections, in order."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from candor import AsyncClient, InvalidRequestError
from service.commands.bulk.columns import Sent
from service.commands.bulk.journal import Journal
from service.commands.bulk.outcome import Outcomes
from service.commands.bulk.tables import Row
from service.commands.output import complaints

RETRIES: Final = 30
"""Further attempts of a request: about a minute, in which a service can restart."""

_ABOUT_ROWS: Final = (400, 413, 422)
_WAITING_PER_CONNECTION: Final = 2  # batches: a slow answer does not stop the other connections


@dataclass(eq=False)
class Scoring:
    """Predict rows in batches.

    Attributes:
        client: Client for the model.
        file: Name of the file, for errors.
        sent: Columns to send.
        outcomes: Columns to write.
        policy: Policy that decides; None for the service's choice.
        batch: Rows per request.
        connections: Requests at a time.
        strict: Whether a refused row ends the run.
        interrupted: Whether a signal has stopped the run.
    """

    client: AsyncClient
    file: Path
    sent: Sent
    outcomes: Outcomes
    policy: str | None
    batch: int
    connections: int
    strict: bool
    interrupted: bool = field(default=False, init=False)

    async def run(self, rows: Iterable[Row], journal: Journal, finished: Callable[[], None]) -> None:
        """Predict rows and add them to the journal in order.

        The first SIGINT or SIGTERM stops reading: the run ends when the requests under way are answered.

        Args:
            rows: Rows that the journal does not have yet.
            journal: Takes the outcomes.
            finished: Called after rows were added to the journal.

        Raises:
            ApiError: The service refused or failed; with `strict`, it refused a row.
            UnreachableError: The service does not answer.
            UnexpectedAnswerError: The service's answer is not one of this version.
            InputError: The file cannot be read any more, or the model has other labels than before.
        """
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for one in signals:
            loop.add_signal_handler(one, self._interrupt, loop, signals)
        remaining = iter(rows)
        slots = asyncio.Semaphore(self.connections)
        under_way: deque[asyncio.Task[list[dict[str, Any]]]] = deque()
        try:
            while not self.interrupted and (part := list(islice(remaining, self.batch))):
                under_way.append(asyncio.create_task(self._within(slots, part)))
                if len(under_way) == _WAITING_PER_CONNECTION * self.connections:
                    journal.append(await under_way.popleft())
                    finished()
            while under_way:
                journal.append(await under_way.popleft())
                finished()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            for one in signals:
                loop.remove_signal_handler(one)

    def _interrupt(self, loop: asyncio.AbstractEventLoop, signals: Iterable[signal.Signals]) -> None:
        """Stop after the requests under way; a second signal ends the process."""
        self.interrupted = True
        complaints.print("Stopping when the requests under way are answered. Ctrl-C again stops at once.")
        for one in signals:
            loop.remove_signal_handler(one)

    async def _within(self, slots: asyncio.Semaphore, rows: Sequence[Row]) -> list[dict[str, Any]]:
        async with slots:
            return await self._predict(rows)

    async def _predict(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the outcome of each row. A refused row is taken out, and the others are sent again."""
        found: list[dict[str, Any]] = [{}] * len(rows)
        waiting: list[Sequence[int]] = [range(len(rows))]
        while waiting:
            part = waiting.pop()
            try:
                answer = await self.client.predict(
                    **self.sent.arguments([rows[index] for index in part]), policy=self.policy, top=self.outcomes.top
                )
            except InvalidRequestError as error:
                if error.status not in _ABOUT_ROWS or (error.where or "").startswith("?"):
                    raise
                place = _row_of(error, len(part))
                if place is None:
                    middle = len(part) // 2
                    waiting += [part[middle:], part[:middle]]
                    continue
                if self.strict:
                    raise self._placed(error, rows[part[place]]) from error
                found[part[place]] = self.outcomes.of_refusal(error)
                if len(part) > 1:
                    waiting.append([*part[:place], *part[place + 1 :]])
            else:
                for index, prediction in zip(part, answer.predictions, strict=True):
                    found[index] = self.outcomes.of_prediction(prediction, answer.revision)
        return found

    def _placed(self, error: InvalidRequestError, row: Row) -> InvalidRequestError:
        return InvalidRequestError(error.status, {**error.problem, "where": f"{self.file}, {row.place}"})


def _row_of(error: InvalidRequestError, rows: int) -> int | None:
    """Return the row of a request that the service refused; None if it names none of several."""
    match error.path:
        case (_, index, *_) if index.isdecimal() and int(index) < rows:
            return int(index)
    return 0 if rows == 1 else None
