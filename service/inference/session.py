"""A verified model on a provider, checked with its golden inputs before use."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from bundle import Bundle
from bundle.functions import operators
from bundle.images import check_golden
from service.errors import BundleRefusedError, ConfigurationError, RunTooLongError
from service.inference.providers import device_of, open_session, resolve_provider
from service.inference.refused_rows import run_rows
from service.inference.run_limit import RunLimit
from service.inference.stages import Stage, bucket_sizes, rows_of

FIRST_RUNS_S: Final = 120.0
"""Maximum seconds of the golden inputs and the largest batch: a graph that loops for ever would stop the start."""

_UNBOUNDED: Final = frozenset(
    [
        "Loop",
        "ConstantOfShape",
        "Range",
        "Tile",
        "Expand",
        "Resize",
        "Upsample",
        "Pad",
        "OneHot",
        "CenterCropPad",
        "Col2Im",
        "AffineGrid",
        "DFT",
        "STFT",
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
    ]
)
"""Operators of other people's graphs whose time or memory a value of an input can set. Candor's own export takes sizes
from shapes alone, for example to resize images."""


class Session:
    """Run the model of a bundle: a batch of inputs to float32 logits.

    On a GPU, batches are padded to one of a few sizes, whose buffers are bound to the session. On a CPU a batch runs as
    it is: new shapes cost nothing extra there, and padding would cost as much as real rows. An imported graph runs as
    it came, through the `graph` of its manifest, and is never bound.

    Args:
        bundle: Verified bundle; the model is built from the bytes that were hashed.
        provider: "auto" or a provider, see `resolve_provider`.
        threads: Threads inside one run (CPU).
        max_batch_size: Rows of the largest run to prepare.
        gpu_memory_bytes: Maximum GPU memory of the session, None for no limit.
        run_timeout_s: Maximum seconds of a run; infinite for none.
        bound: Whether to bind buffers and pad batches; None does so on a GPU.
        like: A session of the same model file that is not bound; its memory is shared.

    Attributes:
        provider: The provider that runs the model.
        device: "cpu" or "cuda", where the buffers are.
        classes: K.
        bound: Whether logits stay on the device, in a stage, until they are read.
        on_loop: Whether a quick batch may run on the event loop's thread, which must never wait for a GPU, nor for a
            row that sets the time of its run.
        stages: Buffers by increasing size; empty if not bound.
        sample: Golden inputs repeated to the size of the largest run.
        lock: Protects the stages.

    Raises:
        BundleRefusedError: The model cannot be loaded, or does not reproduce its golden logits.
        ConfigurationError: The requested provider cannot be used.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        provider: str,
        threads: int,
        max_batch_size: int = 32,
        gpu_memory_bytes: int | None = None,
        run_timeout_s: float = math.inf,
        bound: bool | None = None,
        like: Session | None = None,
    ) -> None:
        self.provider = resolve_provider(provider)
        self.device = device_of(self.provider)
        self.classes = len(bundle.manifest.labels)
        self._graph = bundle.manifest.graph
        self.bound = self._graph is None and (self.device != "cpu" if bound is None else bound)
        self.on_loop = not self.bound and self._never_unbounded(bundle)
        self.lock = threading.Lock()
        self.stages: list[Stage] = []
        self._threads = threads
        self._gpu_memory_bytes = gpu_memory_bytes
        self._largest = max_batch_size
        self._session: ort.InferenceSession = self._open(bundle) if like is None else like._session  # noqa: SLF001
        self._output = ["logits"]
        self._limit = RunLimit(bundle.manifest.model, run_timeout_s, first_s=FIRST_RUNS_S)
        self._check_golden(bundle, lambda inputs: self._limit.run(self._run_as_it_is, inputs))
        self._accepted = bundle.golden.inputs[:1]
        self._make_ready(bundle)
        if self.bound:
            self._check_golden(bundle, self.run)
        self._limit.begin()

    def run(self, inputs: npt.NDArray[Any], *, until_ns: int | None = None) -> npt.NDArray[np.float32]:  # noqa: ARG002
        """Return the logits (N, K) float32 of a batch (N, …) in the bundle's input dtype.

        Raises:
            InputValueError: The graph refuses a row.
            RunTooLongError: The run took longer than it may.
        """
        if not self.bound:
            return run_rows(lambda part: self._limit.run(self._run_as_it_is, part), inputs, self._accepted)
        found = []
        for part in self.parts(inputs):
            with self.on_device(part) as (_, stage):
                found.append(rows_of(stage.logits, len(part)))
        return np.concatenate(found)

    def of_columns(self, columns: Sequence[int]) -> Session:
        """Return the same model with a pair of logits for each of some columns of its output, see `GraphOutput`."""
        assert self._graph is not None  # noqa: S101 — only imported graphs have columns
        output = self._graph.output.model_copy(update={"columns": tuple(columns)})
        view = copy(self)
        view.classes = 2 * len(columns)
        view._graph = self._graph.model_copy(update={"output": output})  # noqa: SLF001 — its own copy
        return view

    def parts(self, inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Split a batch (N, …), N ≥ 0, into parts that fit into a stage."""
        return [inputs[start : start + self._largest] for start in range(0, max(1, len(inputs)), self._largest)]

    @contextmanager
    def on_device(self, inputs: npt.NDArray[Any]) -> Iterator[tuple[int, Stage]]:
        """Run a batch that fits into a stage. Yield the number of the stage and the stage, locked meanwhile.

        Its logits are on the device: one row per input, then padding.
        """
        number = next(i for i, stage in enumerate(self.stages) if stage.size >= len(inputs))
        with self.lock:
            self._limit.run(self.stages[number].run, inputs)
            yield number, self.stages[number]

    def open_beside(self, model: bytes) -> ort.InferenceSession:
        """Open another model, a small one, on the same device with the same threads and limits."""
        return self._open_on(self.device, model)

    def _open_on(self, provider: str, model: bytes) -> ort.InferenceSession:
        return open_session(model, provider=provider, threads=self._threads, gpu_memory_bytes=self._gpu_memory_bytes)

    def _run_as_it_is(self, options: ort.RunOptions, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if self.bound:
            options.add_run_config_entry("gpu_graph_id", "-1")  # an ordinary run, see `Stage.run`
        options.log_severity_level = 4  # a failed run raises its error
        if self._graph is None:
            logits: npt.NDArray[np.float32] = self._session.run(self._output, {"input": inputs}, options)[0]
            return logits
        return self._graph.run(partial(self._session.run, run_options=options), inputs, self.classes)

    def _never_unbounded(self, bundle: Bundle) -> bool:
        unbounded = frozenset({"Loop"}) if self._graph is None else _UNBOUNDED
        return unbounded.isdisjoint(operators(bundle.model_bytes))

    def _open(self, bundle: Bundle) -> ort.InferenceSession:
        try:
            return self._open_on(self.provider, bundle.model_bytes)
        except ConfigurationError:
            raise
        except TimeoutError as error:
            raise BundleRefusedError(
                f"Bundle {bundle.path}: ONNX Runtime takes {error} to open the model.", where="model.onnx"
            ) from error
        except Exception as error:  # ONNX Runtime raises bare C++ exceptions of many types
            raise BundleRefusedError(
                f"Bundle {bundle.path}: ONNX Runtime cannot load model.onnx: {error}", where="model.onnx"
            ) from error

    def _make_ready(self, bundle: Bundle) -> None:
        """Run every size once, so that no request waits for memory or the choice of an algorithm."""
        rows = self.sample = np.resize(bundle.golden.inputs, (self._largest, *bundle.golden.inputs.shape[1:]))
        try:
            if not self.bound:
                self.run(rows)
                return
            # The largest first: smaller ones fit into its memory, and into the range of an engine of TensorRT.
            for size in reversed(bucket_sizes(self._largest)):
                stage = Stage(
                    self._session,
                    device=self.device,
                    shape=(size, *rows.shape[1:]),
                    dtype=rows.dtype,
                    classes=self.classes,
                )
                self._limit.run(stage.run, rows[:size])
                self.stages.insert(0, stage)
        except ConfigurationError:
            raise
        except RunTooLongError as error:
            raise _too_slow(bundle) from error
        except Exception as error:  # ONNX Runtime raises many types
            raise BundleRefusedError(
                f"Bundle {bundle.path}: the model cannot run {self._largest} rows at once: {error}",
                where="model.onnx",
                remedy="Lower CANDOR_MAX_BATCH_SIZE where memory is short.",
            ) from error

    def _check_golden(self, bundle: Bundle, run: Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]) -> None:
        golden = bundle.golden
        try:
            check_golden(golden, bundle.manifest.input)
            # Row by row and all at once, to catch a fixed or mixed-up batch axis.
            runs = run(golden.inputs), np.concatenate([run(row[None]) for row in golden.inputs])
        except RunTooLongError as error:
            raise _too_slow(bundle) from error
        except Exception as error:  # a bundle's error, or one of ONNX Runtime's many
            raise BundleRefusedError(
                f"Bundle {bundle.path}: the golden inputs cannot be run: {error}", where="golden.npz"
            ) from error
        for logits in runs:
            if (differs := golden.difference(logits)) is not None:
                raise BundleRefusedError(
                    f"Bundle {bundle.path}: {differs.message}.",
                    where="golden.npz",
                    found=differs.found,
                    expected=differs.expected,
                )


def _too_slow(bundle: Bundle) -> BundleRefusedError:
    return BundleRefusedError(
        f"Bundle {bundle.path}: the first runs of the model take longer than {FIRST_RUNS_S:g} s.", where="model.onnx"
    )
