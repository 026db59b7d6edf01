"""What answers predictions in any protocol and over any transport: limits, and work off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy.typing as npt

from bundle import Columns, InputSpec, Tokenizer
from service.inference.encoded import Absent, absent_in
from service.inference.inputs import Encoder
from service.operations.decoding import Decoders
from service.serving.models import Models
from service.serving.plane import Served
from service.settings import Settings
from service.telemetry.metrics import Metrics


class Read(Protocol):
    """Content of a body in any protocol."""

    @property
    def inputs(self) -> npt.NDArray[Any] | list[bytes]:
        """Input array, or encoded images."""

    def array(self, spec: InputSpec, *, max_pixels: int) -> npt.NDArray[Any]:
        """Return the inputs, decoded where they are images."""


R = TypeVar("R", bound=Read)
T = TypeVar("T")

LARGE: Final = 64 * 1024  # bytes; larger bodies and answers are handled off the event loop
_LARGE_TEXT: Final = 8 * 1024  # of bodies for a tokenizer, which takes some 2 ms for them


def most_at_once(encoder: Encoder | None) -> int:
    """Return the largest body, in bytes, that is read on the event loop."""
    return _LARGE_TEXT if isinstance(encoder, Tokenizer) else LARGE


class Predicting:
    """Base of the callables that answer predictions.

    Args:
        models: Models of this process.
        settings: Limits and deadline.
        metrics: Counts requests.
        decoders: Threads for slow decoding.
    """

    def __init__(self, models: Models, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        self._models = models
        self._max_pixels = settings.max_pixels
        self._max_rows = settings.max_rows_per_request
        self._max_body = settings.max_body_bytes
        self._deadline_s = settings.deadline_s
        self._metrics = metrics
        self._decoders = decoders

    async def _aside(self, work: Callable[[], T], size: int) -> T:
        """Call `work` on an answer: here for up to `LARGE` bytes, else in a thread."""
        return work() if size <= LARGE else await self._decoders.finish(work, size)

    async def _read(
        self, parse: Callable[[], R], served: Served, size: int, *, quick: bool
    ) -> tuple[R, npt.NDArray[Any]]:
        """Return the content of a body and its inputs, images decoded. Visit a thread once at most.

        Args:
            parse: Reads the body.
            served: The revision that answers.
            size: Size of the body in bytes.
            quick: Whether `parse` may run on the event loop. Decoding never does.
        """

        def array(read: R) -> npt.NDArray[Any]:
            return read.array(served.input, max_pixels=self._max_pixels)

        def whole() -> tuple[R, npt.NDArray[Any]]:
            read = parse()
            return read, array(read)

        if not quick:
            return await self._decoders.run(whole, size)
        read = parse()
        if isinstance(read.inputs, list):
            return read, await self._decoders.run(partial(array, read), size)
        return read, read.inputs

    def _count_absent(self, model: str, served: Served, inputs: npt.NDArray[Any], absent: Absent | None) -> None:
        """Count missing and unknown values of the answered rows of a table; `absent` is None for arrays."""
        if isinstance(served.encoder, Columns):
            self._metrics.absent(model, absent_in(inputs, served.encoder) if absent is None else absent)
