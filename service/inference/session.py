"""One verified model on one provider, proven by its golden inputs before anybody may use it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

# ONNX Runtime reports to its makers unless it is told not to before it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from bundle import Bundle
from bundle.images import check_golden
from service.errors import BundleRefusedError, ConfigurationError

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Exporters promise agreement to 1e-4; a different CPU or a GPU may add rounding of that size.
_TOLERANCE = 2e-4


def resolve_provider(wanted: str) -> str:
    """Return "cpu" or "cuda" for `wanted` ("auto", "cpu" or "cuda").

    Raises:
        ConfigurationError: `cuda` was asked for and this ONNX Runtime has no CUDA provider.
    """
    available = ort.get_available_providers()
    if wanted == "auto":
        return "cuda" if _PROVIDERS["cuda"] in available else "cpu"
    if _PROVIDERS[wanted] not in available:
        raise ConfigurationError(
            f"The {wanted} provider was asked for, but this ONNX Runtime does not have it.",
            where="CANDOR_PROVIDER",
            found=available,
            expected=_PROVIDERS[wanted],
            remedy="Install the `gpu` extra (onnxruntime-gpu) in place of `cpu`, or set CANDOR_PROVIDER=cpu.",
        )
    return wanted


class Session:
    """Runs a bundle's model: a batch of inputs in, float32 logits out.

    Args:
        bundle: A verified bundle; the model is built from the very bytes that were hashed.
        provider: "auto", "cpu" or "cuda".
        threads: Threads inside one run (CPU).

    Raises:
        BundleRefusedError: The model cannot be loaded, or does not give its golden logits.
        ConfigurationError: The provider that was asked for is not there.
    """

    def __init__(self, bundle: Bundle, *, provider: str, threads: int) -> None:
        self.provider = resolve_provider(provider)
        self._session = self._open(bundle, threads, fallback=provider == "auto")
        self._output = ["logits"]
        self._check_golden(bundle)

    def run(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the logits (N, K) float32 of a batch (N, …) in the bundle's input dtype."""
        logits: npt.NDArray[np.float32] = self._session.run(self._output, {"input": inputs})[0]
        return logits

    def _open(self, bundle: Bundle, threads: int, *, fallback: bool) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # A spinning pool steals the core that parses the next request.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers: list[Any] = [_PROVIDERS["cpu"]]
        if self.provider == "cuda":
            # TF32 would change logits by more than calibration promises.
            providers.insert(0, (_PROVIDERS["cuda"], {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}))
        try:
            session = ort.InferenceSession(bundle.model_bytes, options, providers=providers)
        except Exception as error:  # ONNX Runtime raises bare C++ exceptions of many types
            raise BundleRefusedError(
                f"Bundle {bundle.path}: ONNX Runtime cannot load model.onnx: {error}", where="model.onnx"
            ) from error
        if self.provider == "cuda" and session.get_providers()[0] != _PROVIDERS["cuda"]:
            if not fallback:
                raise ConfigurationError(
                    "The CUDA provider was asked for, but it could not start on this machine.",
                    where="CANDOR_PROVIDER",
                    found=session.get_providers(),
                    expected=_PROVIDERS["cuda"],
                    remedy="Check the driver with nvidia-smi and that CUDA and cuDNN match onnxruntime-gpu.",
                )
            self.provider = "cpu"
        return session

    def _check_golden(self, bundle: Bundle) -> None:
        golden = bundle.golden
        try:
            check_golden(golden, bundle.manifest.input)
            # One row at a time and all at once: a graph whose batch axis is fixed or mixed up must not pass.
            runs = self.run(golden.inputs), np.concatenate([self.run(row[None]) for row in golden.inputs])
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
