"""Find out whether ONNX Runtime can use an NVIDIA GPU: package, driver, device, libraries.

Every question is asked of the thing itself (the driver through its library, the provider by loading it), so that an
answer names what is missing: "libcudnn.so.9: cannot open shared object file", not "CUDA is not available".
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

PROVIDER = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
WHEELS = ("onnxruntime", "onnxruntime-gpu")
_SUCCESS = 0
# Found by the provider when the first convolution is made, which is late to hear that it is missing.
_CUDNN = "libcudnn.so.9"
# TensorRT's libraries, in the order of their dependencies, and the package that has them.
_TENSORRT = ("libnvinfer.so.10", "libnvonnxparser.so.10")
_TENSORRT_PACKAGE = "tensorrt_libs"
# ONNX Runtime's own; older versions have it only from their first session on. All else is loaded before it is missed.
_OWN_SYMBOL = "Provider_GetHost"


@dataclass(frozen=True, slots=True)
class Driver:
    """Report of the NVIDIA driver.

    Attributes:
        cuda: Newest supported CUDA version, such as "13.0"; None without a working driver.
        devices: Names of its GPUs.
        problem: Reason why no GPU is usable, None if one is.
    """

    cuda: str | None
    devices: tuple[str, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class Cuda:
    """Report whether the CUDA provider is usable.

    Attributes:
        wheels: Installed packages of ONNX Runtime and their versions.
        built_for: CUDA version of this ONNX Runtime, None without CUDA provider.
        driver: The driver, reported even if this ONNX Runtime cannot use it.
        problem: First obstacle, None without one.
        remedy: What to do about it.
    """

    wheels: dict[str, str]
    built_for: str | None
    driver: Driver
    problem: str | None
    remedy: str | None


@functools.cache
def cuda() -> Cuda:
    """Examine this machine, once per process. Loads CUDA and cuDNN from their packages if installed."""
    wheels = installed_wheels()
    driver = _driver()
    built_for = (ort.cuda_version or None) if PROVIDER in ort.get_available_providers() else None
    problem, remedy = _obstacle(wheels, built_for, driver)
    return Cuda(wheels, built_for, driver, problem, remedy)


def installed_wheels() -> dict[str, str]:
    """Return the versions of installed packages with an `onnxruntime`. Two of them overwrite each other's files."""
    found = {}
    for name in WHEELS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _obstacle(wheels: dict[str, str], built_for: str | None, driver: Driver) -> tuple[str | None, str | None]:
    if built_for is None:
        if len(wheels) > 1:
            return (
                "onnxruntime and onnxruntime-gpu are both installed, and the files of the former won",
                "Uninstall both, then install the `gpu` extra alone.",
            )
        return (
            f"this ONNX Runtime {ort.__version__} is built without CUDA",
            "Install the `gpu` extra in place of `cpu`: pip uninstall onnxruntime, then pip install '.[serve,gpu]'.",
        )
    if driver.problem is not None:
        return driver.problem, "Install an NVIDIA driver; in a container, start it with --gpus all."
    if int(str(driver.cuda).split(".")[0]) < int(built_for.split(".")[0]):
        return (
            f"the driver supports CUDA up to {driver.cuda}, ONNX Runtime {ort.__version__} is built for {built_for}",
            f"Install a driver for CUDA {built_for} or newer.",
        )
    problem = _load_provider()
    if problem is not None:
        return problem, "Install the `gpu` extra, which brings CUDA and cuDNN: pip install '.[serve,gpu]'."
    problem = _start(built_for)
    if problem is not None:
        return problem, "Run nvidia-smi: a newer driver may be needed, or another process may hold the GPU for itself."
    return None, None


def _driver() -> Driver:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return Driver(None, (), f"no NVIDIA driver was found: {error}")
    code = library.cuInit(0)
    if code != _SUCCESS:
        return Driver(None, (), f"the NVIDIA driver does not start: {_error_text(library, code)}")
    number, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    library.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(128)
        library.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode())
    version = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return Driver(version, tuple(names), None if names else "the NVIDIA driver sees no GPU")


def _error_text(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode()} (code {code})"


def _load_provider() -> str | None:
    """Load the library of the provider and its dependencies. Return the error of the loader."""
    # Its failures are printed, and what they mean is found out below.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(ort, "preload_dlls"):
            ort.preload_dlls()
    return _load("CUDA", _provider_library("cuda"), _CUDNN)


def load_tensorrt() -> str | None:
    """Load the TensorRT provider and TensorRT, from its package if installed. Return the error of the loader.

    ONNX Runtime preloads CUDA and cuDNN from packages, but not TensorRT.
    """
    if TENSORRT not in ort.get_available_providers():
        return f"this ONNX Runtime {ort.__version__} is built without TensorRT"
    package = importlib.util.find_spec(_TENSORRT_PACKAGE)
    folder = Path(package.submodule_search_locations[0]) if package and package.submodule_search_locations else Path()
    return _load("TensorRT", *(str(folder / name) for name in _TENSORRT), _provider_library("tensorrt"))


def _provider_library(name: str) -> str:
    return str(Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{name}.so")


def _load(provider: str, *libraries: str) -> str | None:
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError as error:
            if _OWN_SYMBOL not in str(error):
                return f"a library of the {provider} provider cannot be loaded: {error}"
    return None


def _start(built_for: str) -> str | None:
    """Create a CUDA context on the first GPU, as the first session would. Return the reason of a failure."""
    runtime = ctypes.CDLL(f"libcudart.so.{built_for.split('.')[0]}")
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    code = runtime.cudaSetDevice(0) or runtime.cudaFree(None)
    if code == _SUCCESS:
        return None
    return f"CUDA does not start on the GPU: {runtime.cudaGetErrorString(code).decode()} (code {code})"
