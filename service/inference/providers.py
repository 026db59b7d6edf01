"""Choose a provider and open ONNX Runtime sessions on it."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort

from service.errors import ConfigurationError
from service.inference import cuda

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": cuda.PROVIDER}


def resolve_provider(wanted: str) -> str:
    """Return "cpu" or "cuda" for `wanted` ("auto", "cpu" or "cuda").

    Raises:
        ConfigurationError: `cuda` was requested and cannot be used here.
    """
    if wanted == "cpu":
        return "cpu"
    found = cuda.cuda()
    if found.problem is None:
        return "cuda"
    if wanted == "cuda":
        raise ConfigurationError(
            f"The cuda provider was requested, but {found.problem}.",
            where="CANDOR_PROVIDER",
            found=_in_words(found),
            expected=cuda.PROVIDER,
            remedy=f"{found.remedy} Or set CANDOR_PROVIDER=cpu. `candor doctor` shows all findings.",
        )
    return "cpu"


def open_session(model: bytes, *, provider: str, threads: int, gpu_memory_bytes: int | None) -> ort.InferenceSession:
    """Open a model on one provider, without fallback.

    Args:
        model: ONNX model.
        provider: "cpu" or "cuda", as `resolve_provider` gave it.
        threads: Threads inside one run (CPU).
        gpu_memory_bytes: Maximum GPU memory of the session, None for no limit.

    Raises:
        ConfigurationError: ONNX Runtime did not accept the provider.
        Exception: ONNX Runtime cannot load the model (C++ exceptions of many types).
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A spinning pool takes the core that parses the next request.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[Any] = [_PROVIDERS["cpu"]]
    if provider == "cuda":
        providers.insert(0, (_PROVIDERS["cuda"], _cuda_options(gpu_memory_bytes)))
    session = ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    if session.get_providers()[0] != _PROVIDERS[provider]:
        raise ConfigurationError(
            f"ONNX Runtime did not accept the {provider} provider.",
            where="CANDOR_PROVIDER",
            found=session.get_providers(),
            expected=_PROVIDERS[provider],
            remedy="Read the log for its reason, and check the installation with `candor doctor`.",
        )
    return session


def _cuda_options(gpu_memory_bytes: int | None) -> dict[str, str]:
    options = {
        # TF32 would change logits by more than calibration promises.
        "use_tf32": "0",
        # An exhaustive search runs every algorithm for every new shape, during a request.
        "cudnn_conv_algo_search": "HEURISTIC",
        # Not the next power of two, which would take memory from others on the device.
        "arena_extend_strategy": "kSameAsRequested",
    }
    if gpu_memory_bytes is not None:
        options["gpu_mem_limit"] = str(gpu_memory_bytes)
    return options


def _in_words(found: cuda.Cuda) -> str:
    wheels = ", ".join(f"{name} {version}" for name, version in found.wheels.items()) or "no package of ONNX Runtime"
    devices = ", ".join(found.driver.devices) or "no GPU"
    return f"{wheels}; CUDA {found.driver.cuda or '—'} of the driver; {devices}"
