"""The hot path, top to bottom: array → queue → batch → ONNX Runtime → calibrate → decide → answer.

It knows no HTTP, no pydantic and no database; whoever builds a `Plane` hands it the log as a callable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import InputSpec
from calibrators import Calibrator
from service.decisions.decide import SolvedPolicy, decide_rows
from service.errors import InputShapeError, UnknownPolicyError
from service.ids import new_ids
from service.inference.batcher import Batcher
from service.inference.inputs import conform
from service.inference.session import Session
from service.revision import Revision


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A revision made ready to run. One request is answered by one of these from start to end."""

    revision: Revision
    labels: tuple[str, ...]
    input: InputSpec
    session: Session
    calibrator: Calibrator
    policies: Mapping[str, SolvedPolicy]

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
    """What a request gets: one entry for each of its N rows in every array and list."""

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


Log = Callable[[Answer, npt.NDArray[Any]], None]


@dataclass(slots=True, eq=False)
class _Request:
    lane: Served
    inputs: npt.NDArray[Any]
    policy: SolvedPolicy | None
    references: Sequence[str | None]
    groups: Sequence[str | None]

    @property
    def rows(self) -> int:
        return len(self.inputs)


class Plane:
    """Answers predictions for one model with whatever revision is in service.

    Args:
        log: Called once for each answered request, with its inputs, on the worker thread. Must not block.
        max_batch_size: Rows that one inference run takes at most.
        max_rows: Rows that one request may have.
        max_queued_rows: Rows that may wait.
        delay_s: How long a free session waits for a batch to fill.

    Attributes:
        served: The revision in service, None as long as there is none.
    """

    def __init__(self, log: Log, *, max_batch_size: int, max_rows: int, max_queued_rows: int, delay_s: float) -> None:
        self.served: Served | None = None
        self._log = log
        self._max_rows = max_rows
        self._max_batch_size = max_batch_size
        self._explore = random.SystemRandom()
        self._batcher: Batcher[_Request, Answer] = Batcher(
            self._run, max_batch_size=max_batch_size, max_queued_rows=max_queued_rows, delay_s=delay_s, name="plane"
        )

    @property
    def queued_rows(self) -> int:
        """Rows that wait for the session."""
        return self._batcher.queued_rows

    async def predict(
        self,
        served: Served,
        inputs: npt.NDArray[Any],
        *,
        deadline_s: float,
        policy: str | None = None,
        references: Sequence[str | None] | None = None,
        groups: Sequence[str | None] | None = None,
    ) -> Answer:
        """Answer a batch of inputs (N, …), or one example without its batch axis.

        Args:
            served: The revision that answers, as it was when the request came.
            inputs: What the model takes, see `conform`.
            deadline_s: Seconds within which its turn must come.
            policy: Name of the policy that decides.
            references: The client's own names of the rows, N of them.
            groups: What the rows belong to (card, patient …), N of them.

        Raises:
            UnknownPolicyError: The revision has no such policy.
            InputError: The inputs do not fit the model.
            OverloadedError: The queue is full.
            DeadlineExceededError: Its turn did not come in time.
        """
        fitting = conform(inputs, served.input)
        if len(fitting) > self._max_rows:
            raise InputShapeError(
                "Too many inputs in one request.",
                where="/inputs",
                found=len(fitting),
                expected=f"at most {self._max_rows}",
                remedy="Send several requests, or raise CANDOR_MAX_ROWS_PER_REQUEST.",
            )
        nothing = [None] * len(fitting)
        for key, names in (("references", references), ("groups", groups)):
            if names is not None and len(names) != len(fitting):
                raise InputShapeError(
                    f"`{key}` must have one entry for each input.",
                    where=f"/{key}",
                    found=len(names),
                    expected=len(fitting),
                )
        request = _Request(served, fitting, served.policy(policy), references or nothing, groups or nothing)
        return await self._batcher.submit(request, deadline_s=deadline_s)

    def close(self) -> None:
        """Finish what waits, then stop."""
        self._batcher.close()

    def _run(self, requests: list[_Request]) -> list[Answer]:
        served = requests[0].lane
        inputs = requests[0].inputs if len(requests) == 1 else np.concatenate([r.inputs for r in requests])
        size = self._max_batch_size
        chunks = [served.session.run(inputs[start : start + size]) for start in range(0, len(inputs), size)]
        logits = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        probabilities = served.calibrator.predict_proba(logits)
        labels, confidence = served.calibrator.top_label(logits, probabilities)
        ids = new_ids(len(inputs))
        answers = []
        stop = 0
        for request in requests:
            start, stop = stop, stop + request.rows
            rows = slice(start, stop)
            actions, propensities, sought = self._decide(
                request, logits[rows], probabilities[rows], labels[rows], confidence[rows]
            )
            answer = Answer(
                served=served,
                policy=request.policy,
                ids=ids[rows],
                references=request.references,
                groups=request.groups,
                logits=logits[rows],
                probabilities=probabilities[rows],
                labels=labels[rows],
                confidence=confidence[rows],
                actions=actions,
                propensities=propensities,
                label_sought=sought,
            )
            self._log(answer, request.inputs)
            answers.append(answer)
        return answers

    def _decide(
        self,
        request: _Request,
        logits: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
        labels: npt.NDArray[np.int64],
        confidence: npt.NDArray[np.float32],
    ) -> tuple[list[str | None], list[float | None], list[bool]]:
        solved = request.policy
        if solved is None:
            nothing = [None] * request.rows
            return list(nothing), list(nothing), [False] * request.rows
        bands = decide_rows(solved, request.lane.labels, logits, probabilities, labels, confidence)
        actions: list[str | None] = [solved.actions[band] for band in bands]
        propensities = [float(solved.propensities[band]) for band in bands]
        # Drawn here, before any label exists, and independently of the row's role in a refit.
        sought = [propensity > 0 and self._explore.random() < propensity for propensity in propensities]
        return actions, list(propensities), sought
