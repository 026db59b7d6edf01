"""What answers predictions in any protocol and over any transport: the steps of a prediction, limits, threads."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy.typing as npt

from bundle import Columns, InputSpec, Tokenizer
from service.errors import InputError
from service.inference.encoded import Absent, absent_in
from service.inference.inputs import Encoder
from service.operations.decoding import Decoders
from service.serving.model import Model
from service.serving.models import Models
from service.serving.plane import Answer, Served
from service.settings import Settings
from service.telemetry.metrics import Metrics


class Read(Protocol):
    """Content of a body in any protocol."""

    @property
    def inputs(self) -> npt.NDArray[Any] | list[bytes]:
        """Input array, or encoded images."""

    @property
    def absent(self) -> Absent | None:
        """Accepted missing and unknown values of table rows; None for other inputs."""

    def array(self, spec: InputSpec, *, max_pixels: int) -> npt.NDArray[Any]:
        """Return the inputs, decoded where they are images."""


R = TypeVar("R", bound=Read)
W = TypeVar("W")

LARGE: Final = 64 * 1024  # bytes; larger bodies and answers are handled off the event loop
_LARGE_TEXT: Final = 8 * 1024  # of bodies for a tokenizer, which takes some 2 ms for them


def most_at_once(encoder: Encoder | None) -> int:
    """Return the largest body, in bytes, that is read on the event loop."""
    return _LARGE_TEXT if isinstance(encoder, Tokenizer) else LARGE


class Predicting:
    """Predict over a transport: what its predictions share, and their steps where one of them may have to wait.

    Args:
        models: Models of this process.
        settings: Limits and deadline.
        metrics: Counts requests.
        decoders: Threads for slow decoding.
    """

    def __init__(self, models: Models, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        self.models = models
        self.max_pixels = settings.max_pixels
        self.max_rows = settings.max_rows_per_request
        self.max_body = settings.max_body_bytes
        self.deadline_s = settings.deadline_s
        self.metrics = metrics
        self._decoders = decoders

    async def predict(self, prediction: Prediction[R, W], body: bytes) -> None:
        """Take a prediction from its body to its answer. The deadline starts here, so it covers the wait for a thread.

        Raises:
            CandorError: The request cannot be answered.
        """
        prediction.arrived = time.perf_counter()
        try:
            if prediction.quick(body):
                prediction.parse(body)
            else:
                await self._decoders.run(partial(_read, prediction, body), len(body))  # one visit to a thread
        except InputError as error:
            prediction.refused(error)
            raise
        await self.resume(prediction, len(body))

    async def resume(self, prediction: Prediction[R, W], size: int) -> None:
        """Take a prediction whose body of `size` bytes was parsed to its answer.

        Raises:
            CandorError: The request cannot be answered.
        """
        if prediction.encoded:
            await self._decoders.run(prediction.decode, size)
        given = prediction.asked()
        try:
            answer = await prediction.model.plane.predict(prediction.served, prediction.inputs, **given)
        except InputError as error:
            prediction.place(error)
            prediction.refused(error)
            raise
        prediction.answered(answer)

    async def written(self, prediction: Prediction[R, W]) -> W:
        """Return the content of an answer: a large one is written in a thread."""
        if (size := prediction.size) <= LARGE:
            return prediction.written()
        content = await self._decoders.finish(prediction.write, size)
        prediction.wrote()
        return content


def _read(prediction: Prediction[R, W], body: bytes) -> None:
    prediction.parse(body)
    if prediction.encoded:
        prediction.decode()


class Prediction(ABC, Generic[R, W]):
    """One prediction, in steps none of which waits, in the order of these methods.

    `parse`, `decode` and `write` may run in a thread; all others run on the event loop.

    Args:
        predicting: What the predictions of its transport share.
        model: The model.
        served: The revision that answers, whatever is activated meanwhile.

    Attributes:
        arrived: When the body was complete, in seconds of `time.perf_counter`.
        read: Content of the body, once parsed.
        encoded: Whether the inputs are images that are still to be decoded, never on the event loop.
        inputs: Input array, once parsed or decoded.
        answer: The answer, once there is one.
        times: When the body was complete, when it was decoded, answered and encoded.
    """

    read: R
    encoded = False
    inputs: npt.NDArray[Any]
    answer: Answer
    arrived: float
    _decoded: float
    _answered: float
    _encoded: float

    def __init__(self, predicting: Predicting, model: Model, served: Served) -> None:
        self._predicting = predicting
        self.model = model
        self.served = served

    @property
    def times(self) -> tuple[float, float, float, float]:
        """See the attributes of the class."""
        return self.arrived, self._decoded, self._answered, self._encoded

    @abstractmethod
    def quick(self, body: bytes) -> bool:
        """Return whether `parse` may run on the event loop.

        Raises:
            MalformedBodyError: The body has no such parts as its head says.
        """

    def parse(self, body: bytes) -> None:
        """Read the body.

        Raises:
            CandorError: The body cannot be used.
        """
        self.read = self._read(body)
        if isinstance(self.read.inputs, list):
            self.encoded = True
        else:
            self.inputs = self.read.inputs

    @abstractmethod
    def _read(self, body: bytes) -> R:
        """Return the content of the body."""

    def decode(self) -> None:
        """Decode images.

        Raises:
            InputValueError: An image cannot be used; `where` names it.
        """
        try:
            self.inputs = self.read.array(self.served.input, max_pixels=self._predicting.max_pixels)
        except InputError as error:
            self.place(error)
            raise
        self.encoded = False

    def asked(self) -> dict[str, Any]:
        """Return the named arguments of `Plane.begin`."""
        given = self._given()
        self._decoded = time.perf_counter()
        decode_s = self._decoded - self.arrived
        self.model.plane.stages.decode.add(decode_s)
        if self.read.absent is not None:
            given["encoded"] = True
        given["deadline_s"] = given.get("deadline_s", self._predicting.deadline_s) - decode_s
        return given

    @abstractmethod
    def _given(self) -> dict[str, Any]:
        """Return what the request gives of the named arguments of `Plane.begin`.

        Raises:
            InputValueError: It gives something twice.
        """

    def place(self, error: InputError) -> None:
        """Name the place of an error in a row as the request has it."""

    def refused(self, error: InputError) -> None:
        """Count the value of a table that an error refuses, if it refuses one; call on the event loop."""
        if error.refused is not None:
            self._predicting.metrics.value_refused(self.model.name, *error.refused)

    def failed(self, error: Exception) -> None:
        """Count a prediction that the plane has begun and not answered."""
        self.model.plane.failed(self.served, round(self._decoded * 1e9))
        if isinstance(error, InputError):
            self.place(error)

    def answered(self, answer: Answer) -> None:
        """Take the answer, and count it."""
        self.answer = answer
        self._answered = time.perf_counter()
        metrics, encoder = self._predicting.metrics, self.served.encoder
        metrics.predicted(answer, self._answered - self._decoded)
        if isinstance(encoder, Columns):
            absent = self.read.absent
            metrics.absent(self.model.name, absent_in(self.inputs, encoder) if absent is None else absent)

    def labelled(self, answer: Any) -> None:
        """Take the answer of a multi-label model, and count it for each label."""
        self.answer = answer
        self._answered = time.perf_counter()
        metrics, encoder = self._predicting.metrics, self.served.encoder
        for one in answer.answers:
            metrics.predicted(one, self._answered - self._decoded)
        if isinstance(encoder, Columns):
            absent = self.read.absent
            metrics.absent(self.model.name, absent_in(self.inputs, encoder) if absent is None else absent)

    @property
    @abstractmethod
    def size(self) -> int:
        """About how many bytes `write` has to make."""

    @abstractmethod
    def write(self) -> W:
        """Return the content of the answer."""

    def wrote(self) -> None:
        """Note that the answer is written."""
        self._encoded = time.perf_counter()
        self.model.plane.stages.encode.add(self._encoded - self._answered)

    def written(self) -> W:
        """Write on the event loop."""
        content = self.write()
        self.wrote()
        return content
