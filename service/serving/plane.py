"""The hot path, top to bottom: array → queue → batch → ONNX Runtime → calibrate → decide → answer.

It knows no HTTP, no pydantic and no database; a `Plane` gets the log as a callable.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import groupby, repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bundle import Bundle, InputSpec
from calibrators import Calibrator
from candor.contract.conditions import REVIEW
from service.decisions.decide import decide_rows
from service.decisions.revision import Revision
from service.decisions.sets import sets_of
from service.decisions.solved import SolvedPolicy
from service.errors import OverloadedError, StateUnavailableError, UnknownPolicyError
from service.ids import new_ids
from service.inference.batcher import Batcher, LoopThread, Waiting
from service.inference.chain import Chain, Scores
from service.inference.inputs import Encoder, check_rows, conform
from service.inference.per_row import NOTHING_SAID, PerRow, joined
from service.inference.runtimes import Runtime
from service.inference.statistics import Stages, Statistics, Timing
from service.serving.sampling import Sample

_NS = 1e9
_HERE_S = 0.001  # a run this short may block the event loop


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A revision ready to run. One of these answers a request from start to end.

    `specification` identifies the meaning of its inputs, see `service.inference.inputs.specification`. `sample` gets
    the inputs of every answer, for the test of input drift; None where there is none.
    """

    revision: Revision
    bundle: Bundle
    labels: tuple[str, ...]
    input: InputSpec
    session: Runtime
    chain: Chain
    calibrator: Calibrator
    policies: Mapping[str, SolvedPolicy]
    specification: str
    encoder: Encoder | None = None
    sample: Sample | None = None

    def policy(self, name: str | None) -> SolvedPolicy | None:
        """Return the policy `name`. Without a name: the policy "default", or the only one, or None."""
        if name is None:
            if len(self.policies) == 1:
                return next(iter(self.policies.values()))
            return self.policies.get("default")
        try:
            return self.policies[name]
        except KeyError:
            raise UnknownPolicyError(
                f"Revision {self.revision.id} of {self.revision.model} has no policy {name!r}.",
                where="policy",
                found=name,
                expected=sorted(self.policies),
            ) from None


@dataclass(slots=True, eq=False)  # not frozen: its making would take six times as long, once per request
class Answer:
    """Answer to a request, never changed. Every array and list has one entry per row.

    `sets` tells of each label whether it is in the row's prediction set, (N, K), None if the policy makes none;
    `timing` is that of the batch of the request.
    """

    served: Served
    policy: SolvedPolicy | None
    ids: list[str]
    per_row: PerRow
    logits: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float32]
    actions: list[str | None]
    propensities: list[float | None]
    sought: list[bool | None]
    timing: Timing
    sets: npt.NDArray[np.bool_] | None = None

    def part(self, rows: slice) -> Answer:
        """Return the answer to some of the rows."""
        return Answer(
            self.served,
            self.policy,
            self.ids[rows],
            self.per_row.part(rows),
            self.logits[rows],
            self.probabilities[rows],
            self.labels[rows],
            self.confidence[rows],
            self.actions[rows],
            self.propensities[rows],
            self.sought[rows],
            self.timing,
            None if self.sets is None else self.sets[rows],
        )


Log = Callable[[Answer, npt.NDArray[Any], Sequence[Answer]], "Sequence[Future[None]] | None"]


Logged = tuple[Answer, "Future[None] | None"]
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


Decided = list[tuple[Answer, slice, list[Answer]]]
"""Answers of a run: of neighbours with the same policy, their rows, and the same by request."""


class Plane:
    """Answer predictions of one model with the active revision.

    Args:
        log: Called with the answers of a run, one policy at a time, its inputs, and the same answers split by request,
            on the thread of the run: the worker, or the event loop for a quick batch. It must neither block nor
            raise. It returns None, or per request a future that the answer waits for, cancelled if the request is
            given up.
        max_batch_size: Maximum rows per inference batch.
        max_rows: Maximum rows per request.
        max_queued_rows: Maximum queued rows.
        delay_s: Time that a free session waits for a batch to fill.
        loop_thread: Shared with the planes of the other models.

    Attributes:
        served: Active revision, None before the first.
        statistics: Statistics by revision.
        stages: Durations of the stages.
        refusals: Requests without an answer, by reason.
    """

    def __init__(
        self,
        log: Log,
        *,
        max_batch_size: int,
        max_rows: int,
        max_queued_rows: int,
        delay_s: float,
        loop_thread: LoopThread | None = None,
    ) -> None:
        self.served: Served | None = None
        self.statistics: dict[str, Statistics] = {}
        self.stages = Stages()
        self._log = log
        self._max_rows = max_rows
        self._max_batch_size = max_batch_size
        self._explore = random.Random()  # noqa: S311 — decides whose label is sought, keeps no secret
        self._batcher: Batcher[Request, Logged] = Batcher(
            self._run,
            max_batch_size=max_batch_size,
            max_queued_rows=max_queued_rows,
            delay_s=delay_s,
            name="plane",
            loop_thread=loop_thread,
        )
        self.refusals = self._batcher.refusals

    @property
    def queued_rows(self) -> int:
        """Number of queued rows."""
        return self._batcher.queued_rows

    def check_room(self, served: Served) -> None:
        """Refuse a request that would find the queue full, before its body is read: a refusal must cost little.

        Raises:
            OverloadedError: The queue is full.
        """
        try:
            self._batcher.check_room()
        except OverloadedError:
            self._statistics_of(served).failure.add(0)
            raise

    async def predict(self, served: Served, inputs: npt.NDArray[Any], *, deadline_s: float, **given: Any) -> Answer:
        """Answer a batch of inputs, see `begin`.

        Raises:
            CandorError: See `begin`.
            StateUnavailableError: The answer must be stored first, and was not stored in time.
        """
        waiting: asyncio.Future[Logged] = asyncio.get_running_loop().create_future()
        began = time.perf_counter_ns()
        self.begin(served, inputs, waiting, deadline_s=deadline_s, **given)
        try:
            answer, written = await waiting
            if written is not None:
                await until_written(written, deadline_s - (time.perf_counter_ns() - began) / _NS)
        except Exception:
            self.failed(served, began)
            raise
        return answer

    def begin(
        self,
        served: Served,
        inputs: npt.NDArray[Any],
        waiting: Waiting[Logged],
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
            served: Revision that was active when the request arrived.
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
        here_s = _HERE_S if served.session.on_loop else 0.0
        try:
            self._batcher.put(request, waiting, deadline_s=deadline_s, here_s=here_s, alone=alone)
        except OverloadedError:
            self.failed(served, request.queued_ns)
            raise

    def failed(self, served: Served, began_ns: int) -> None:
        """Count a request that got no answer.

        Args:
            served: Its revision.
            began_ns: When it began, on the clock of `time.perf_counter_ns`.
        """
        self._statistics_of(served).failure.add(time.perf_counter_ns() - began_ns)

    def close(self) -> None:
        """Finish queued work, then stop."""
        self._batcher.close()

    def _statistics_of(self, served: Served) -> Statistics:
        found = self.statistics.get(served.revision.id)
        return self.statistics.setdefault(served.revision.id, Statistics()) if found is None else found

    def _run(self, requests: list[Request]) -> list[Logged]:
        served = requests[0].lane
        statistics = self._statistics_of(served)
        began = time.perf_counter_ns()
        inputs = requests[0].inputs if len(requests) == 1 else np.concatenate([r.inputs for r in requests])
        calibrated_before = served.chain.calibrate_ns
        until_ns = max(request.until_ns for request in requests)
        logits, probabilities = self._infer(served, inputs, until_ns, statistics)
        inferred = time.perf_counter_ns()
        calibrate_ns = served.chain.calibrate_ns - calibrated_before
        timing = Timing(began, calibrate_ns, inferred, len(requests), len(inputs))
        wholes = self.decide(served, requests, logits, probabilities, timing, new_ids(len(logits)))
        answers = self.log(served, wholes, inputs)
        timing.ended_ns = ended = time.perf_counter_ns()
        count, queued_ns = len(requests), sum(request.queued_ns for request in requests)
        statistics.queue.add(count * began - queued_ns, count)
        statistics.success.add(count * ended - queued_ns, count)
        statistics.infer.add(count * (inferred - began), count)
        statistics.finish.add(count * (ended - inferred), count)
        statistics.last_at_ms = time.time_ns() // 1_000_000
        stages = self.stages
        for request in requests:
            stages.queue.add((began - request.queued_ns) / _NS)
        stages.infer.add((inferred - began - calibrate_ns) / _NS)
        stages.calibrate.add(calibrate_ns / _NS)
        stages.decide.add((ended - inferred) / _NS)
        return answers

    def _infer(self, served: Served, inputs: npt.NDArray[Any], until_ns: int, statistics: Statistics) -> Scores:
        chunks = []
        for start in range(0, len(inputs), self._max_batch_size):
            chunk = inputs[start : start + self._max_batch_size]
            began = time.perf_counter_ns()
            chunks.append(served.chain.run(chunk, first_row=start, until_ns=until_ns))
            statistics.ran(len(chunk), time.perf_counter_ns() - began)
        if len(chunks) == 1:
            return chunks[0]
        logits, probabilities = zip(*chunks, strict=True)
        return np.concatenate(logits), np.concatenate(probabilities)

    def decide(
        self,
        served: Served,
        requests: list[Request],
        logits: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
        timing: Timing,
        ids: list[str],
    ) -> Decided:
        """Decide the rows of a batch."""
        labels, confidence = served.calibrator.top_label(logits, probabilities)
        wholes: Decided = []
        stop = 0
        # Neighbours with the same policy, usually all, are decided and logged together: array operations cost per call.
        for _, group in groupby(requests, key=lambda request: id(request.policy)):
            alike = list(group)
            start, stop = stop, stop + sum(request.rows for request in alike)
            rows = slice(start, stop)
            scores = logits[rows], probabilities[rows], labels[rows], confidence[rows]
            whole = self._decided(served, alike, timing, ids[rows], *scores)
            wholes.append((whole, rows, [whole] if len(alike) == 1 else _parts(whole, alike)))
        return wholes

    def log(self, served: Served, wholes: Decided, inputs: npt.NDArray[Any]) -> list[Logged]:
        """Log a decided batch, and return the answer of each request; last, since a failed batch runs again."""
        if served.sample is not None:
            served.sample.add(inputs)
        logged: list[Logged] = []
        for whole, rows, parts in wholes:
            written = self._log(whole, inputs[rows], parts)
            logged += zip(parts, repeat(None) if written is None else written, strict=False)
        return logged

    def _decided(
        self,
        served: Served,
        requests: list[Request],
        timing: Timing,
        ids: list[str],
        logits: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
        labels: npt.NDArray[np.int64],
        confidence: npt.NDArray[np.float32],
    ) -> Answer:
        """Decide the rows of requests that share their policy."""
        return decided(
            served,
            requests[0].policy,
            ids,
            logits,
            probabilities,
            labels,
            confidence,
            per_row=joined([request.per_row for request in requests], [request.rows for request in requests]),
            timing=timing,
            explore=self._explore,
        )


def decided(
    served: Served,
    solved: SolvedPolicy | None,
    ids: list[str],
    logits: npt.NDArray[np.float32],
    probabilities: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    confidence: npt.NDArray[np.float32],
    *,
    per_row: PerRow,
    timing: Timing,
    explore: random.Random,
) -> Answer:
    """Decide scored rows by one policy; `explore` draws whose label is sought."""
    actions: list[str | None] = [None] * len(ids)
    propensities: list[float | None] = [None] * len(ids)
    sought: list[bool | None] = [False] * len(ids)
    segments = per_row.segments
    if solved is not None:
        bands = decide_rows(solved, served.labels, logits, probabilities, labels, confidence, segments, per_row.amounts)
        actions = [solved.actions[band] for band in bands.tolist()]
        shares = solved.propensities[bands].tolist()
        # Drawn here, before any label exists, and independently of the role of the row in a recalibration.
        sought = [share > 0 and explore.random() < share for share in shares]
        propensities = shares
        if solved.selects_reviews:  # the log does, which alone knows the rows of all processes
            for row, action in enumerate(actions):
                if action == REVIEW:
                    propensities[row] = sought[row] = None
    return Answer(
        served=served,
        policy=solved,
        ids=ids,
        per_row=per_row,
        logits=logits,
        probabilities=probabilities,
        labels=labels,
        confidence=confidence,
        actions=actions,
        propensities=propensities,
        sought=sought,
        timing=timing,
        sets=sets_of(solved.sets, probabilities, segments) if solved is not None and solved.sets else None,
    )


async def until_written(written: Future[None], deadline_s: float) -> None:
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


def _parts(whole: Answer, requests: list[Request]) -> list[Answer]:
    parts = []
    stop = 0
    for request in requests:
        start, stop = stop, stop + request.rows
        parts.append(whole.part(slice(start, stop)))
    return parts
