"""A queue of requests that are answered together, and the way of a request through it."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bundle import InputSpec
from service.errors import OverloadedError, StateUnavailableError
from service.inference.batcher import Batcher, LoopThread, Waiting
from service.inference.inputs import Encoder, check_rows, conform
from service.inference.per_row import NOTHING_SAID, PerRow
from service.inference.statistics import Stages, Statistics, Timing

_NS = 1e9
Answered = TypeVar("Answered", bound=tuple[Any, "Future[None] | None"])
"""An answer, and a future that is done when it is stored; None if nothing waits for that."""


class Lane(Protocol):
    """What answers a request from start to end: a `Served`, or the revisions of a multi-label model."""

    @property
    def input(self) -> InputSpec:
        """Input of the model."""

    @property
    def encoder(self) -> Encoder | None:
        """What makes it."""

    def policy(self, name: str | None) -> Any:
        """Return the policy `name`, or raise UnknownPolicyError."""


@dataclass(slots=True, eq=False)
class Request:
    """A batch of inputs that waits for its answer; `policy` is what its lane returned."""

    lane: Any
    inputs: npt.NDArray[Any]
    policy: Any
    per_row: PerRow
    queued_ns: int
    until_ns: int

    @property
    def rows(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @classmethod
    def of(
        cls,
        lane: Lane,
        inputs: npt.NDArray[Any],
        *,
        max_rows: int,
        deadline_s: float,
        policy: str | None = None,
        segment: str | None = None,
        per_row: PerRow = NOTHING_SAID,
        encoded: bool = False,
    ) -> Request:
        """Check a request.

        Args:
            lane: What answers it.
            inputs: Inputs of the model (N, …), or one example without its batch axis, see `conform`.
            max_rows: Maximum N.
            deadline_s: Queueing deadline in seconds.
            policy: Name of the policy to decide with.
            segment: Segment of all rows, for requests that do not name one per row.
            per_row: What else it says of the N rows.
            encoded: Whether the revision's encoder made the inputs of table rows, see `conform`.

        Raises:
            UnknownPolicyError: The lane has no such policy.
            InputError: The inputs do not fit the model.
        """
        fitting = conform(inputs, lane.input, lane.encoder, encoded=encoded)
        check_rows(len(fitting), max_rows)
        if per_row is not NOTHING_SAID:
            per_row.check(len(fitting))
        if segment is not None:
            per_row = replace(per_row, segments=[segment] * len(fitting))
        started = time.perf_counter_ns()
        solved = lane.policy(policy)
        until = started + int(deadline_s * _NS)
        return cls(lane, fitting, solved, per_row, started, until)


Serving = TypeVar("Serving", bound=Lane)


class Queued(ABC, Generic[Serving, Answered]):
    """Answers requests in batches.

    Args:
        name: Name of its thread.
        max_batch_size: Maximum rows per inference batch.
        max_rows: Maximum rows per request.
        max_queued_rows: Maximum queued rows.
        delay_s: Time that a free session waits for a batch to fill.
        loop_thread: Shared with the planes of the other models.

    Attributes:
        statistics: Statistics by revision.
        stages: Durations of the stages.
        refusals: Requests without an answer, by reason.
    """

    def __init__(
        self,
        name: str,
        *,
        max_batch_size: int,
        max_rows: int,
        max_queued_rows: int,
        delay_s: float,
        loop_thread: LoopThread | None = None,
    ) -> None:
        self.statistics: dict[str, Statistics] = {}
        self.stages = Stages()
        self._max_rows = max_rows
        self._max_batch_size = max_batch_size
        self._batcher: Batcher[Request, Answered] = Batcher(
            self._run,
            max_batch_size=max_batch_size,
            max_queued_rows=max_queued_rows,
            delay_s=delay_s,
            name=name,
            loop_thread=loop_thread,
        )
        self.refusals = self._batcher.refusals

    @property
    def queued_rows(self) -> int:
        """Number of queued rows."""
        return self._batcher.queued_rows

    def check_room(self, served: Serving) -> None:
        """Refuse a request that would find the queue full, before its body is read: a refusal must cost little.

        Raises:
            OverloadedError: The queue is full.
        """
        try:
            self._batcher.check_room()
        except OverloadedError:
            self.failed(served, time.perf_counter_ns())
            raise

    async def predict(self, served: Serving, inputs: npt.NDArray[Any], *, deadline_s: float, **given: Any) -> Any:
        """Answer a batch of inputs, see `begin`.

        Raises:
            CandorError: See `begin`.
            StateUnavailableError: The answer must be stored first, and was not stored in time.
        """
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        began = time.perf_counter_ns()
        self.begin(served, inputs, waiting, deadline_s=deadline_s, **given)
        try:
            answer, written = await waiting
            if written is not None:
                await _until_written(written, deadline_s - (time.perf_counter_ns() - began) / _NS)
        except Exception:
            self.failed(served, began)
            raise
        return answer

    def begin(
        self,
        served: Serving,
        inputs: npt.NDArray[Any],
        waiting: Waiting[Answered],
        *,
        deadline_s: float,
        alone: bool = False,
        **given: Any,
    ) -> None:
        """Queue a batch of inputs (N, …), or one example without its batch axis; call on the event loop.

        `waiting` gets the answer, or a DeadlineExceededError (the deadline passed in the queue), an InputError (the
        model returns no finite scores for a row), an UpstreamError (the server of a remote model gives no usable
        answer, or runs another model) or an UpstreamRejectedError (it cannot score an input). Its owner counts those,
        see `failed`.

        Args:
            served: What was active when the request arrived.
            inputs: Inputs of the model, see `conform`.
            waiting: Gets the answer.
            deadline_s: Queueing deadline in seconds.
            alone: Whether no other request can arrive together with this one, see `Batcher.put`.
            given: What the request says of its rows, see `Request.of`.

        Raises:
            UnknownPolicyError: The revision has no such policy.
            InputError: The inputs do not fit the model.
            OverloadedError: The queue is full.
        """
        request = Request.of(served, inputs, max_rows=self._max_rows, deadline_s=deadline_s, **given)
        try:
            self._batcher.put(request, waiting, deadline_s=deadline_s, here_s=self._here_s(served), alone=alone)
        except OverloadedError:
            self.failed(served, request.queued_ns)
            raise

    @abstractmethod
    def failed(self, served: Serving, began_ns: int) -> None:
        """Count a request that got no answer.

        Args:
            served: What was to answer it.
            began_ns: When it began, on the clock of `time.perf_counter_ns`.
        """

    def close(self) -> None:
        """Finish queued work, then stop."""
        self._batcher.close()

    def _here_s(self, _: Serving) -> float:
        """Return how long a run may block the event loop, in seconds; 0 if it must not run there."""
        return 0.0

    @abstractmethod
    def _run(self, requests: list[Request]) -> list[Answered]:
        """Answer a batch, which all have the same lane."""

    def _staged(self, requests: Sequence[Request], timing: Timing) -> None:
        """Count how long the stages of a batch took."""
        stages = self.stages
        for request in requests:
            stages.queue.add((timing.began_ns - request.queued_ns) / _NS)
        stages.infer.add((timing.inferred_ns - timing.began_ns - timing.calibrate_ns) / _NS)
        stages.calibrate.add(timing.calibrate_ns / _NS)
        stages.decide.add((timing.ended_ns - timing.inferred_ns) / _NS)


def inputs_of(requests: Sequence[Request]) -> npt.NDArray[Any]:
    """Return the inputs of a batch."""
    return requests[0].inputs if len(requests) == 1 else np.concatenate([one.inputs for one in requests])


async def _until_written(written: Future[None], deadline_s: float) -> None:
    """Wait until an answer is stored. An answer given up is withdrawn, so it counts as never given."""
    try:
        await asyncio.wait_for(asyncio.wrap_future(written), deadline_s)
    except TimeoutError:
        raise StateUnavailableError(
            "The prediction could not be stored in time, so it is withheld.",
            expected="a state database that stores it before the deadline of the request",
            remedy="Try again. If the error persists, check the state database. "
            "CANDOR_LOG_MODE=background answers without waiting for the database.",
        ) from None
