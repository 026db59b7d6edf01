"""Choose a provider and open ONNX Runtime sessions on it."""

from __future__ import annotations

from typing import Any, Final

import onnxruntime as ort

from bundle.time_limit import within
from service.errors import ConfigurationError
from service.inference import cuda

OPENING_S: Final = 120.0
"""Maximum seconds of the opening of a model: ONNX Runtime computes what depends on constants alone."""

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": cuda.PROVIDER,
    "cuda-graphs": cuda.PROVIDER,
    "tensorrt": cuda.TENSORRT,
}


def resolve_provider(wanted: str) -> str:
    """Return the provider for `wanted`: itself, or "cuda" or "cpu" for "auto".

    Besides "auto", "cpu" and "cuda", the values of CANDOR_PROVIDER, two are measured by `make gpu` only: "cuda-graphs"
    records the kernels of each batch size once and replays them, from the thread that recorded them alone; "tensorrt"
    compiles the model on its first runs.

    Raises:
        ConfigurationError: The requested provider cannot be used here.
    """
    if wanted == "cpu":
        return "cpu"
    found = cuda.cuda()
    problem, remedy = found.problem, found.remedy
    if problem is None and wanted == "tensorrt":
        problem, remedy = cuda.load_tensorrt(), "Install TensorRT 10: pip install 'tensorrt-cu13-libs<11'."
    if problem is None:
        return "cuda" if wanted == "auto" else wanted
    if wanted != "auto":
        raise ConfigurationError(
            f"The {wanted} provider was requested, but {problem}.",
            where="CANDOR_PROVIDER",
            found=_in_words(found),
            expected=_PROVIDERS[wanted],
            remedy=f"{remedy} Or set CANDOR_PROVIDER=cpu. `candor doctor` shows all findings.",
        )
    return "cpu"


def device_of(provider: str) -> str:
    """Return the device of a provider: "cpu" or "cuda"."""
    return "cpu" if provider == "cpu" else "cuda"


def open_session(model: bytes, *, provider: str, threads: int, gpu_memory_bytes: int | None) -> ort.InferenceSession:
    """Open a model on one provider, without fallback.

    Args:
        model: ONNX model.
        provider: The provider, as `resolve_provider` gave it.
        threads: Threads inside one run (CPU).
        gpu_memory_bytes: Maximum GPU memory of the session, None for no limit.

    Raises:
        ConfigurationError: ONNX Runtime did not accept the provider.
        TimeoutError: It takes longer than `OPENING_S`.
        Exception: ONNX Runtime cannot load the model (C++ exceptions of many types).
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Long enough for the next operator of a run; a pool that goes on spinning takes the core that parses requests.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "10")
    providers: list[Any] = [_PROVIDERS["cpu"]]
    if provider != "cpu":
        providers.insert(0, (cuda.PROVIDER, _cuda_options(gpu_memory_bytes, graphs=provider == "cuda-graphs")))
    if provider == "tensorrt":
        # Operators that TensorRT does not have run on CUDA.
        providers.insert(0, (cuda.TENSORRT, {"trt_fp16_enable": "False"}))
    session = within(
        OPENING_S,
        lambda: ort.InferenceSession(model, options, providers=providers, enable_fallback=0),
        lambda: options.set_load_cancellation_flag(True),
    )
    if session.get_providers()[0] != _PROVIDERS[provider]:
        raise ConfigurationError(
            f"ONNX Runtime did not accept the {provider} provider.",
            where="CANDOR_PROVIDER",
            found=session.get_providers(),
            expected=_PROVIDERS[provider],
            remedy="Read the log for its reason, and check the installation with `candor doctor`.",
        )
    return session


def _cuda_options(gpu_memory_bytes: int | None, *, graphs: bool) -> dict[str, str]:
    options = {
        # TF32 would change logits by more than calibration promises.
        "use_tf32": "0",
        # An exhaustive search runs every algorithm for every new shape, during a request.
        "cudnn_conv_algo_search": "HEURISTIC",
        # Not the next power of two, which would take memory from others on the device.
        "arena_extend_strategy": "kSameAsRequested",
        "enable_cuda_graph": str(int(graphs)),
    }
    if gpu_memory_bytes is not None:
        options["gpu_mem_limit"] = str(gpu_memory_bytes)
    return options


def _in_words(found: cuda.Cuda) -> str:
    wheels = ", ".join(f"{name} {version}" for name, version in found.wheels.items()) or "no package of ONNX Runtime"
    devices = ", ".join(found.driver.devices) or "no GPU"
    return f"{wheels}; CUDA {found.driver.cuda or '—'} of the driver; {devices}"
