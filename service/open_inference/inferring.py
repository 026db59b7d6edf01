"""An inference request, from its content to the answer of the plane."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from service.open_inference.errors import rows_of_the_tensor
from service.open_inference.request import Inference
from service.operations.predicting import Predicting
from service.serving.model import Model
from service.serving.plane import Answer, Served


class Inferred(NamedTuple):
    """An answered request, with the times (`time.perf_counter`) of its arrival and of the end of its decoding."""

    answer: Answer
    inference: Inference
    arrived: float
    decoded: float


class Inferring(Predicting):
    """Base of the callables that answer inference requests."""

    async def _inferred(
        self,
        model: Model,
        served: Served,
        read: Callable[[], Inference],
        size: int,
        *,
        quick: bool,
        remaining_s: float | None = None,
    ) -> Inferred:
        """Read a request and answer it. The deadline starts here, so it covers the wait for a parser.

        Args:
            model: The model.
            served: The revision that answers.
            read: Reads the request.
            size: Size of the request in bytes.
            quick: Whether `read` may run on the event loop.
            remaining_s: Time that the client still waits, None if unknown.

        Raises:
            CandorError: The request cannot be answered.
        """
        arrived = time.perf_counter()
        inference, inputs = await self._read(read, served, size, quick=quick)
        decoded = time.perf_counter()
        model.plane.stages.decode.add(decoded - arrived)
        limits = (self._deadline_s, inference.timeout_s, remaining_s)
        deadline_s = min(limit for limit in limits if limit is not None)
        with rows_of_the_tensor(inference.where):
            answer = await model.plane.predict(
                served,
                inputs,
                deadline_s=deadline_s - (decoded - arrived),
                policy=inference.policy,
                references=inference.references,
                groups=inference.groups,
                segments=inference.segment,
            )
        self._metrics.predicted(answer, time.perf_counter() - decoded)
        self._count_absent(model.name, served, inputs, inference.absent)
        return Inferred(answer, inference, arrived, decoded)
