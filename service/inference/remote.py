"""Models that stay where they run: batches are forwarded over the Open Inference Protocol (V2)."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle import Bundle, Graph, Upstream
from bundle.graph import ProbabilityError
from bundle.upstream import metadata_digest
from bundle.upstream_client import CallFailedError, HeaderValueError, UpstreamClient
from service.errors import (
    BundleRefusedError,
    CandorError,
    UpstreamAnswerError,
    UpstreamChangedError,
    UpstreamDownError,
    UpstreamRejectedError,
    UpstreamSlowError,
)

FAILURES: Final = ("down", "slow", "answer", "rejected", "changed")
_ERRORS: Final[dict[str, type[CandorError]]] = {
    "down": UpstreamDownError,
    "slow": UpstreamSlowError,
    "answer": UpstreamAnswerError,
    "rejected": UpstreamRejectedError,
}
_SAID: Final = {
    "down": "The server that runs the model does not answer.",
    "slow": "The server that runs the model takes too long.",
    "answer": "The server that runs the model sends an unusable answer.",
    "rejected": "The server that runs the model cannot score these rows.",
}
_HEAD_BYTES, _VALUE_BYTES = 2**16, 64  # of the largest answer: its JSON, and one value as JSON


class Remote:
    """Run the model of a bundle on its upstream: a batch of inputs to float32 logits.

    What answers must be what the bundle was made of. Each answer names its version, and `check` compares the metadata,
    the version and the golden logits. After a change, runs are refused, or only reported, as the bundle says.

    Args:
        bundle: Verified bundle.
        upstream: Its upstream.
        graph: How examples enter the model there, and how its output becomes logits.

    Attributes:
        classes: Number K of labels.
        changed: How the model differs from the bundle; None if it does not.
        unanswered: Why the last request got no usable answer; None if it got one.
        failures: Requests without a usable answer since the start, by kind (`FAILURES`).

    Raises:
        UpstreamError: The server gives no usable answer, or runs another model and the bundle refuses changes.
        UpstreamRejectedError: It cannot score the golden inputs.
        BundleRefusedError: The environment lacks the value of a header.
    """

    provider: Final = "remote"
    bound: Final = False
    on_loop: Final = False

    def __init__(self, bundle: Bundle, upstream: Upstream, graph: Graph) -> None:
        self.classes = len(bundle.manifest.labels)
        self.changed: str | None = None
        self.unanswered: str | None = None
        self.failures = dict.fromkeys(FAILURES, 0)
        self._bundle = bundle
        self._upstream = upstream
        self._graph = graph
        self._lock = threading.Lock()
        try:
            self._client = UpstreamClient(upstream)
        except HeaderValueError as error:
            raise BundleRefusedError(
                f"Bundle {bundle.path}: {error}",
                where="upstream.json",
                remedy="Set it for the service; its value is a header of every request to the model's server.",
            ) from None
        self.check()
        self.check_ready()

    @property
    def problem(self) -> str | None:
        """Why the model does not answer, or is not what it was; None if all is well."""
        return self.changed or self.unanswered

    def check_ready(self) -> None:
        """Raise UpstreamChangedError if runs are refused because the model has changed."""
        if self.changed is not None and self._upstream.on_change == "refuse":
            raise UpstreamChangedError(
                "The model has changed on its server, so its predictions are withheld.",
                found=self.changed,
                remedy="Restore the model there, or import it again with rows that certify it as it is now.",
            )

    def run(self, inputs: npt.NDArray[Any], *, until_ns: int | None = None) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) float32 of a batch (N, …) in the bundle's input type.

        Args:
            inputs: The batch.
            until_ns: End of the time for it, on the clock of `time.perf_counter_ns`; the upstream's own timeout counts
                too.

        Raises:
            UpstreamError: There is no usable answer, or the model has changed.
            UpstreamRejectedError: The server cannot score these rows.
            ProbabilityError: It gives a row a number outside 0 to 1 for a probability.
        """
        self._refuse_a_changed_model()
        left_s = self._upstream.timeout_s
        if until_ns is not None:
            left_s = min(left_s, (until_ns - time.perf_counter_ns()) / 1e9)
        logits, changed = self._score(inputs, time.monotonic() + left_s)
        if changed is not None:
            self.changed = changed
            self._refuse_a_changed_model()
        return logits

    def check(self) -> None:
        """Compare the metadata, the version and the golden logits with the bundle, and note a change or its end.

        Raises:
            UpstreamError: There is no usable answer.
            UpstreamRejectedError: The server cannot score the golden inputs.
        """
        until = time.monotonic() + self._upstream.timeout_s
        try:
            metadata = self._client.metadata(until=until)
        except CallFailedError as error:
            raise self._failed(error.kind, str(error)) from None
        if metadata_digest(metadata) != self._upstream.metadata:
            self.changed = "the metadata of the model differ from those at its import"
            return
        golden = self._bundle.golden
        try:
            logits, changed = self._score(golden.inputs, until)
        except UpstreamRejectedError as error:
            self.unanswered = str(error.found)
            raise
        except ProbabilityError as error:
            self.changed = str(error)
            return
        differs = golden.difference(logits)
        if changed is None and differs is not None:
            changed = f"{differs.message}: {differs.found}, expected {differs.expected}"
        self.changed = changed

    def _score(self, inputs: npt.NDArray[Any], until: float) -> tuple[npt.NDArray[np.float32], str | None]:
        """Return logits, and how the version that gave them differs from the bundle's."""
        output = self._graph.output
        columns = max([self.classes, *(place + 1 for place in output.order)])
        versions: set[str | None] = set()

        def call(names: list[str], feeds: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
            rows = len(next(iter(feeds.values())))
            largest = _HEAD_BYTES + rows * columns * _VALUE_BYTES
            values, version = self._client.infer(feeds, names[0], largest=largest, until=until)
            if values.ndim == 0 or len(values) != rows:
                raise ValueError(f"output {names[0]!r} has shape {list(values.shape)} for {rows} rows")
            versions.add(version)
            return [values]

        try:
            logits = self._graph.run(call, inputs, self.classes)
        except CallFailedError as error:
            raise self._failed(error.kind, str(error)) from None
        except ProbabilityError:  # of one row: the server answers
            raise
        except (ValueError, IndexError) as error:
            raise self._failed("answer", str(error)) from None
        self.unanswered = None
        wanted = self._upstream.version
        others = sorted(map(str, versions - {wanted})) if wanted is not None else []
        return logits, f"version {others[0]} answers, expected {wanted}" if others else None

    def _refuse_a_changed_model(self) -> None:
        try:
            self.check_ready()
        except UpstreamChangedError:
            self._count("changed")
            raise

    def _failed(self, kind: str, found: str) -> CandorError:
        self._count(kind)
        if kind != "rejected":
            self.unanswered = found
        return _ERRORS[kind](_SAID[kind], found=found)

    def _count(self, kind: str) -> None:
        with self._lock:  # batches and checks run on different threads
            self.failures[kind] += 1
