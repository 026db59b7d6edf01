"""The hot path, top to bottom: array → queue → batch → ONNX Runtime → calibrate → decide → answer.

It knows no HTTP, no pydantic and no database; a `Plane` gets the log as a callable.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle, InputSpec
from calibrators import Calibrator
from candor.contract.conditions import REVIEW
from service.decisions.decide import decide_rows
from service.decisions.revision import Revision
from service.decisions.sets import sets_of
from service.decisions.solved import SolvedPolicy
from service.errors import UnknownPolicyError
from service.ids import new_ids
from service.inference.chain import Chain, Scores
from service.inference.inputs import Encoder
from service.inference.per_row import PerRow, joined
from service.inference.runtimes import Runtime
from service.inference.statistics import Statistics, Timing
from service.serving.queued import Queued, Request, inputs_of
from service.serving.sampling import Sample

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


Decided = list[tuple[Answer, slice, list[Answer]]]
"""Answers of a run: of neighbours with the same policy, their rows, and the same by request."""


class Plane(Queued[Served, Logged]):
    """Answer predictions of one model with the active revision.

    Args:
        log: Called with the answers of a run, one policy at a time, its inputs, and the same answers split by request,
            on the thread of the run: the worker, or the event loop for a quick batch. It must neither block nor
            raise. It returns None, or per request a future that the answer waits for, cancelled if the request is
            given up.
        limits: See `Queued`.

    Attributes:
        served: Active revision, None before the first.
    """

    def __init__(self, log: Log, **limits: Any) -> None:
        super().__init__("plane", **limits)
        self.served: Served | None = None
        self._log = log
        self._explore = random.Random()  # noqa: S311 — decides whose label is sought, keeps no secret

    def failed(self, served: Served, began_ns: int) -> None:
        """Count a request that got no answer; see `Queued.failed`."""
        self._statistics_of(served).failure.add(time.perf_counter_ns() - began_ns)

    def _here_s(self, served: Served) -> float:
        return _HERE_S if served.session.on_loop else 0.0

    def _statistics_of(self, served: Served) -> Statistics:
        found = self.statistics.get(served.revision.id)
        return self.statistics.setdefault(served.revision.id, Statistics()) if found is None else found

    def _run(self, requests: list[Request]) -> list[Logged]:
        served = requests[0].lane
        statistics = self._statistics_of(served)
        began = time.perf_counter_ns()
        inputs = inputs_of(requests)
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
        self._staged(requests, timing)
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
            whole = decided(
                served,
                alike[0].policy,
                ids[rows],
                logits[rows],
                probabilities[rows],
                labels[rows],
                confidence[rows],
                per_row=joined([request.per_row for request in alike], [request.rows for request in alike]),
                timing=timing,
                explore=self._explore,
            )
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
        propensities = shares = solved.propensities[bands].tolist()
        if any(shares):
            # Drawn here, before any label exists, and independently of the role of the row in a recalibration.
            sought = [share > 0 and explore.random() < share for share in shares]
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


def _parts(whole: Answer, requests: list[Request]) -> list[Answer]:
    parts = []
    stop = 0
    for request in requests:
        start, stop = stop, stop + request.rows
        parts.append(whole.part(slice(start, stop)))
    return parts
