"""What computes the logits of a bundle's model: ONNX Runtime, a server elsewhere, or the client itself."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from service.inference.given import Given
from service.inference.session import Session


class Runtime(Protocol):
    """A model that is ready to run.

    Attributes:
        provider: What computes: the provider of ONNX Runtime, "remote", or "none" where the client sends the scores.
        classes: Number K of labels.
        bound: Whether batches run in buffers on a device, see `Session`.
        on_loop: Whether a quick batch may run on the event loop's thread.
    """

    @property
    def provider(self) -> str:
        """What computes."""

    @property
    def classes(self) -> int:
        """Number K of labels."""

    @property
    def bound(self) -> bool:
        """Whether batches run in buffers on a device."""

    @property
    def on_loop(self) -> bool:
        """Whether a quick batch may run on the event loop's thread."""

    def run(self, inputs: npt.NDArray[Any], *, until_ns: int | None = None) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) float32 of a batch (N, …) in the bundle's input type.

        Args:
            inputs: The batch.
            until_ns: End of the time for it, on the clock of `time.perf_counter_ns`. Only a remote model can give up.

        Raises:
            RunTooLongError: A model in this process took longer than a run may.
        """


def open_runtime(
    bundle: Bundle,
    *,
    provider: str,
    threads: int,
    max_batch_size: int,
    gpu_memory_bytes: int | None,
    run_timeout_s: float,
    like: Session | None = None,
) -> Runtime:
    """Open the model of a verified bundle; see `Session` for the arguments.

    Raises:
        BundleRefusedError: The model cannot be loaded, or does not reproduce its golden logits.
        ConfigurationError: The requested provider cannot be used.
        UpstreamError: The server of a remote model gives no usable answer, or runs another model.
        UpstreamRejectedError: The server of a remote model cannot score the golden inputs.
    """
    if bundle.upstream is not None and bundle.manifest.graph is not None:
        from service.inference.remote import Remote  # with httpx: a tenth of the start of each recalibration

        return Remote(bundle, bundle.upstream, bundle.manifest.graph)
    if bundle.scores is not None:
        return Given(len(bundle.manifest.labels))
    return Session(
        bundle,
        provider=provider,
        threads=threads,
        max_batch_size=max_batch_size,
        gpu_memory_bytes=gpu_memory_bytes,
        run_timeout_s=run_timeout_s,
        like=like,
    )
