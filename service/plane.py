"""The hot path, top to bottom: array → queue → batch → ONNX Runtime → calibrate → decide → answer.

It knows no HTTP, no pydantic and no database; whoever builds a `Plane` hands it the log as a callable.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle, InputSpec
from calibrators import Calibrator
from service.decisions.decide import decide_rows
from service.decisions.solved import SolvedPolicy
from service.errors import InputShapeError, OverloadedError, StateUnavailableError, UnknownPolicyError
from service.ids import new_ids
from service.inference.batcher import Arrivals, Batcher
from service.inference.chain import Chain, Scores
from service.inference.inputs import Encoder, check_rows, conform
from service.inference.session import Session
from service.inference.statistics import Stages, Statistics, Timing
from service.revision import Revision

_NS = 1e9
_HERE_S = 0.001  # what runs as quickly as this may hold up the event loop, where nothing else is to be done


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A revision made ready to run. One request is answered by one of these from start to end.

    `specification` says what its inputs mean, see `service.inference.inputs.specification`.
    """

    revision: Revision
    bundle: Bundle
    labels: tuple[str, ...]
    input: InputSpec
    session: Session
    chain: Chain
    calibrator: Calibrator
    policies: Mapping[str, SolvedPolicy]
    specification: str
    encoder: Encoder | None = None

    def policy(self, name: str | None) -> SolvedPolicy | None:
        """Return the policy called `name`; without a name the one called "default", or the only one, or none."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a request gets: one entry for each of its N rows in every array and list.

    `segments` is None where no row has one; `timing` is that of the batch that the request was part of.
    """

    served: Served
    policy: SolvedPolicy | None
    ids: list[str]
    references: Sequence[str | None]
    groups: Sequence[str | None]
    logits: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float32]
    actions: list[str | None]
    propensities: list[float | None]
    label_sought: list[bool]
    timing: Timing
    segments: Sequence[str | None] | None = None

    def part(self, rows: slice) -> Answer:
        """Return the answer to some of the rows."""
        return Answer(
            served=self.served,
            policy=self.policy,
            ids=self.ids[rows],
            references=self.references[rows],
            groups=self.groups[rows],
            logits=self.logits[rows],
            probabilities=self.probabilities[rows],
            labels=self.labels[rows],
            confidence=self.confidence[rows],
            actions=self.actions[rows],
            propensities=self.propensities[rows],
            label_sought=self.label_sought[rows],
            timing=self.timing,
            segments=None if self.segments is None else self.segments[rows],
        )


Log = Callable[[Answer, npt.NDArray[Any], Sequence[Answer]], "Sequence[Future[None]] | None"]


_Logged = tuple[Answer, "Future[None] | None"]


@dataclass(slots=True, eq=False)
class _Request:
    lane: Served
    inputs: npt.NDArray[Any]
    policy: SolvedPolicy | None
    references: Sequence[str | None]
    groups: Sequence[str | None]
    segments: Sequence[str | None] | None
    queued_ns: int

    @property
    def rows(self) -> int:
        return len(self.inputs)


class Plane:
    """Answers predictions for one model with whatever revision is in service.

    Args:
        log: Called with what a run answered, of one policy at a time, its inputs, and the same answer in parts, one for
            each request; on the thread that ran it: the worker's, or the event loop's for a lone quick request. It must
            neither block nor raise. It returns None, or for each request a future that its answer waits for, and that
            is cancelled where the request is given up.
        max_batch_size: Rows that one inference run takes at most.
        max_rows: Rows that one request may have.
        max_queued_rows: Rows that may wait.
        delay_s: How long a free session waits for a batch to fill.
        arrivals: Shared with the other models' planes.

    Attributes:
        served: The revision in service, None as long as there is none.
        statistics: What has been done, by the revision that did it.
        stages: How long each stage took.
        refusals: Requests that got no answer, by reason.
    """

    def __init__(
        self,
        log: Log,
        *,
        max_batch_size: int,
        max_rows: int,
        max_queued_rows: int,
        delay_s: float,
        arrivals: Arrivals | None = None,
    ) -> None:
        self.served: Served | None = None
        self.statistics: dict[str, Statistics] = {}
        self.stages = Stages()
        self._log = log
        self._max_rows = max_rows
        self._max_batch_size = max_batch_size
        self._explore = random.Random()  # noqa: S311 — decides whose label is sought, keeps no secret
        self._batcher: Batcher[_Request, _Logged] = Batcher(
            self._run,
            max_batch_size=max_batch_size,
            max_queued_rows=max_queued_rows,
            delay_s=delay_s,
            name="plane",
            arrivals=arrivals,
        )
        self.refusals = self._batcher.refusals

    @property
    def queued_rows(self) -> int:
        """Rows that wait for the session."""
        return self._batcher.queued_rows

    def check_room(self, served: Served) -> None:
        """Refuse a request that would find no room anyhow, before its body is read: a refusal must cost little.

        Raises:
            OverloadedError: The queue is full.
        """
        try:
            self._batcher.check_room()
        except OverloadedError:
            self._statistics_of(served).failure.add(0)
            raise

    async def predict(
        self,
        served: Served,
        inputs: npt.NDArray[Any],
        *,
        deadline_s: float,
        policy: str | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
        segments: Sequence[str | None] | str | None = None,
    ) -> Answer:
        """Answer a batch of inputs (N, …), or one example without its batch axis.

        Args:
            served: The revision that answers, as it was when the request came.
            inputs: What the model takes, see `conform`.
            deadline_s: Seconds within which its turn must come.
            policy: Name of the policy that decides.
            references: The client's own names of the rows, N of them.
            groups: What the rows belong to (card, patient …), N of them.
            segments: Parts of the traffic that the rows belong to, N of them, or one for all.

        Raises:
            UnknownPolicyError: The revision has no such policy.
            InputError: The inputs do not fit the model, or it has no finite scores for one.
            OverloadedError: The queue is full.
            DeadlineExceededError: Its turn did not come in time.
            StateUnavailableError: The answer must be written down before it is given, and was not in time.
        """
        fitting = conform(inputs, served.input, served.encoder)
        check_rows(len(fitting), self._max_rows)
        nothing = [None] * len(fitting)
        if isinstance(segments, str):
            segments = [segments] * len(fitting)
        for key, names in (("references", references), ("groups", groups), ("segments", segments)):
            if names is not None and len(names) != len(fitting):
                raise InputShapeError(
                    f"`{key}` must have one entry for each input.",
                    where=f"/{key}",
                    found=len(names),
                    expected=len(fitting),
                )
        started = time.perf_counter_ns()
        solved = served.policy(policy)
        request = _Request(served, fitting, solved, references or nothing, groups or nothing, segments, started)
        try:
            here_s = 0.0 if served.session.bound else _HERE_S  # a GPU has its own time, to be waited for elsewhere
            answer, written = await self._batcher.submit(request, deadline_s=deadline_s, here_s=here_s)
            if written is not None:
                await _until_written(written, deadline_s - (time.perf_counter_ns() - started) / 1e9)
        except Exception:
            self._statistics_of(served).failure.add(time.perf_counter_ns() - started)
            raise
        return answer

    def close(self) -> None:
        """Finish what waits, then stop."""
        self._batcher.close()

    def _statistics_of(self, served: Served) -> Statistics:
        return self.statistics.setdefault(served.revision.id, Statistics())

    def _run(self, requests: list[_Request]) -> list[_Logged]:
        served = requests[0].lane
        statistics = self._statistics_of(served)
        began = time.perf_counter_ns()
        inputs = requests[0].inputs if len(requests) == 1 else np.concatenate([r.inputs for r in requests])
        calibrated_before = served.chain.calibrate_ns
        logits, probabilities = self._infer(served, inputs, statistics)
        inferred = time.perf_counter_ns()
        calibrate_ns = served.chain.calibrate_ns - calibrated_before
        timing = Timing(began, calibrate_ns, inferred, len(requests), len(inputs))
        answers = self._finish(served, requests, inputs, logits, probabilities, timing)
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

    def _infer(self, served: Served, inputs: npt.NDArray[Any], statistics: Statistics) -> Scores:
        chunks = []
        for start in range(0, len(inputs), self._max_batch_size):
            chunk = inputs[start : start + self._max_batch_size]
            began = time.perf_counter_ns()
            chunks.append(served.chain.run(chunk, first_row=start))
            statistics.ran(len(chunk), time.perf_counter_ns() - began)
        if len(chunks) == 1:
            return chunks[0]
        logits, probabilities = zip(*chunks, strict=True)
        return np.concatenate(logits), np.concatenate(probabilities)

    def _finish(
        self,
        served: Served,
        requests: list[_Request],
        inputs: npt.NDArray[Any],
        logits: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
        timing: Timing,
    ) -> list[_Logged]:
        """Decide the rows of a batch, hand them to the log, and return each request's own."""
        labels, confidence = served.calibrator.top_label(logits, probabilities)
        ids = new_ids(len(logits))
        wholes: list[tuple[Answer, slice, list[Answer]]] = []
        stop = 0
        # Neighbours with one policy, mostly all, are decided and logged together: array operations cost by the call.
        for _, group in groupby(requests, key=lambda request: id(request.policy)):
            alike = list(group)
            start, stop = stop, stop + sum(request.rows for request in alike)
            rows = slice(start, stop)
            scores = logits[rows], probabilities[rows], labels[rows], confidence[rows]
            whole = self._decided(served, alike, timing, ids[rows], *scores)
            wholes.append((whole, rows, [whole] if len(alike) == 1 else _parts(whole, alike)))
        logged: list[_Logged] = []
        for whole, rows, parts in wholes:  # when nothing can fail any more: a batch that fails is run again
            written = self._log(whole, inputs[rows], parts)
            logged += zip(parts, repeat(None) if written is None else written, strict=False)
        return logged

    def _decided(
        self,
        served: Served,
        requests: list[_Request],
        timing: Timing,
        ids: list[str],
        logits: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
        labels: npt.NDArray[np.int64],
        confidence: npt.NDArray[np.float32],
    ) -> Answer:
        """Decide the rows of requests that share their policy."""
        solved = requests[0].policy
        actions: list[str | None] = [None] * len(ids)
        propensities: list[float | None] = [None] * len(ids)
        sought = [False] * len(ids)
        segments = _segments(requests)
        if solved is not None:
            bands = decide_rows(solved, served.labels, logits, probabilities, labels, confidence, segments)
            actions = [solved.actions[band] for band in bands.tolist()]
            shares = solved.propensities[bands].tolist()
            # Drawn here, before any label exists, and independently of the row's role in a refit.
            sought = [share > 0 and self._explore.random() < share for share in shares]
            propensities = shares
        return Answer(
            served=served,
            policy=solved,
            ids=ids,
            references=_joined([request.references for request in requests]),
            groups=_joined([request.groups for request in requests]),
            logits=logits,
            probabilities=probabilities,
            labels=labels,
            confidence=confidence,
            actions=actions,
            propensities=propensities,
            label_sought=sought,
            timing=timing,
            segments=segments,
        )


async def _until_written(written: Future[None], deadline_s: float) -> None:
    """Wait until an answer is written down; one that is given up is withdrawn, so that it counts as never given."""
    try:
        await asyncio.wait_for(asyncio.wrap_future(written), deadline_s)
    except TimeoutError:
        raise StateUnavailableError(
            "The prediction could not be written down in time, so it is not given.",
            expected="a state database that takes it before the request's deadline",
            remedy="Try again; if it stays so, look at the state database. "
            "CANDOR_LOG_MODE=background answers without waiting for it.",
        ) from None


def _segments(requests: list[_Request]) -> Sequence[str | None] | None:
    """Return the segments of all rows; None where no request names one, which costs nothing then."""
    if all(request.segments is None for request in requests):
        return None
    return _joined([request.segments or [None] * request.rows for request in requests])


def _joined(names: list[Sequence[str | None]]) -> Sequence[str | None]:
    return names[0] if len(names) == 1 else list(chain.from_iterable(names))


def _parts(whole: Answer, requests: list[_Request]) -> list[Answer]:
    parts = []
    stop = 0
    for request in requests:
        start, stop = stop, stop + request.rows
        parts.append(whole.part(slice(start, stop)))
    return parts
