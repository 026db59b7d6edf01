"""One verified model on one provider, proven by its golden inputs before anybody may use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from bundle import Bundle
from bundle.images import check_golden
from service.errors import BundleRefusedError, ConfigurationError
from service.inference.providers import open_session, resolve_provider
from service.inference.stages import Stage, bucket_sizes, rows_of

# Exporters promise agreement to 1e-4; a different CPU or a GPU may add rounding of that size.
_TOLERANCE = 2e-4


class Session:
    """Runs a bundle's model: a batch of inputs in, float32 logits out.

    On a GPU, batches are padded to one of a few sizes, whose buffers are bound to the session. On a CPU a batch runs as
    it is: no shape costs more the first time, and rows that nobody asked for cost as much as others.

    Args:
        bundle: A verified bundle; the model is built from the very bytes that were hashed.
        provider: "auto", "cpu" or "cuda".
        threads: Threads inside one run (CPU).
        max_batch_size: Rows of the largest run that is made ready beforehand.
        gpu_memory_bytes: The most GPU memory that the session may take; None for no limit.
        bound: Whether buffers are bound and batches padded; None: on a GPU.

    Attributes:
        provider: "cpu" or "cuda", the one that runs the model.
        classes: K.
        bound: Whether logits stay on the device, in one of the stages, until they are asked for.
        stages: The buffers, by increasing size; none where they are not bound.
        sample: Inputs as many as the largest run takes, made of the golden ones.
        lock: Held by whoever uses the stages.

    Raises:
        BundleRefusedError: The model cannot be loaded, or does not give its golden logits.
        ConfigurationError: The provider that was asked for cannot be used.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        provider: str,
        threads: int,
        max_batch_size: int = 32,
        gpu_memory_bytes: int | None = None,
        bound: bool | None = None,
    ) -> None:
        self.provider = resolve_provider(provider)
        self.classes = len(bundle.manifest.labels)
        self.bound = self.provider != "cpu" if bound is None else bound
        self.lock = threading.Lock()
        self.stages: list[Stage] = []
        self._threads = threads
        self._gpu_memory_bytes = gpu_memory_bytes
        self._largest = max_batch_size
        self._session = self._open(bundle)
        self._output = ["logits"]
        self._check_golden(bundle, self._run_as_it_is)
        self._make_ready(bundle)
        if self.bound:
            self._check_golden(bundle, self.run)

    def run(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) float32 of a batch (N, …) in the bundle's input dtype."""
        if not self.bound:
            return self._run_as_it_is(inputs)
        found = []
        for part in self.parts(inputs):
            with self.on_device(part) as (_, stage):
                found.append(rows_of(stage.logits, len(part)))
        return np.concatenate(found)

    def parts(self, inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Split a batch (N, …), N ≥ 0, into ones that fit into a stage."""
        return [inputs[start : start + self._largest] for start in range(0, max(1, len(inputs)), self._largest)]

    @contextmanager
    def on_device(self, inputs: npt.NDArray[Any]) -> Iterator[tuple[int, Stage]]:
        """Run a batch that fits into a stage; gives the stage's number and the stage, for as long as nobody else runs.

        Its logits are on the device, one row for each input and then rows that mean nothing.
        """
        number = next(i for i, stage in enumerate(self.stages) if stage.size >= len(inputs))
        with self.lock:
            self.stages[number].run(inputs)
            yield number, self.stages[number]

    def open_beside(self, model: bytes) -> ort.InferenceSession:
        """Open another model with the same provider, threads and limits."""
        return open_session(
            model, provider=self.provider, threads=self._threads, gpu_memory_bytes=self._gpu_memory_bytes
        )

    def _run_as_it_is(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        logits: npt.NDArray[np.float32] = self._session.run(self._output, {"input": inputs})[0]
        return logits

    def _open(self, bundle: Bundle) -> ort.InferenceSession:
        try:
            return self.open_beside(bundle.model_bytes)
        except ConfigurationError:
            raise
        except Exception as error:  # ONNX Runtime raises bare C++ exceptions of many types
            raise BundleRefusedError(
                f"Bundle {bundle.path}: ONNX Runtime cannot load model.onnx: {error}", where="model.onnx"
            ) from error

    def _make_ready(self, bundle: Bundle) -> None:
        """Run every size once, so that no request waits for memory or for the choice of an algorithm."""
        rows = self.sample = np.resize(bundle.golden.inputs, (self._largest, *bundle.golden.inputs.shape[1:]))
        try:
            if not self.bound:
                self.run(rows)
                return
            for size in bucket_sizes(self._largest):
                stage = Stage(
                    self._session,
                    device=self.provider,
                    shape=(size, *rows.shape[1:]),
                    dtype=rows.dtype,
                    classes=self.classes,
                )
                stage.run(rows[:size])
                self.stages.append(stage)
        except ConfigurationError:
            raise
        except Exception as error:  # one of ONNX Runtime's many
            raise BundleRefusedError(
                f"Bundle {bundle.path}: the model cannot run {self._largest} rows at once: {error}",
                where="model.onnx",
                remedy="Lower CANDOR_MAX_BATCH_SIZE where memory is short.",
            ) from error

    def _check_golden(self, bundle: Bundle, run: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]) -> None:
        golden = bundle.golden
        try:
            check_golden(golden, bundle.manifest.input)
            # One row at a time and all at once: a graph whose batch axis is fixed or mixed up must not pass.
            runs = run(golden.inputs), np.concatenate([run(row[None]) for row in golden.inputs])
        except Exception as error:  # a bundle's error, or one of ONNX Runtime's many
            raise BundleRefusedError(
                f"Bundle {bundle.path}: the golden inputs cannot be run: {error}", where="golden.npz"
            ) from error
        for logits in runs:
            if logits.shape != golden.logits.shape:
                raise BundleRefusedError(
                    f"Bundle {bundle.path}: the golden inputs give logits of another shape.",
                    where="golden.npz",
                    found=list(logits.shape),
                    expected=list(golden.logits.shape),
                )
            difference = float(np.abs(logits - golden.logits).max())
            if not difference <= _TOLERANCE * (1 + float(np.abs(golden.logits).max())):
                raise BundleRefusedError(
                    f"Bundle {bundle.path}: the golden inputs give other logits than when it was exported.",
                    where="golden.npz",
                    found=f"largest difference {difference:.3g}",
                    expected=f"at most {_TOLERANCE:g} of the largest logit",
                )
