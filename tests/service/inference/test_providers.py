"""What was asked for and is not there is an error at once, with the reason."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from service.errors import ConfigurationError
from service.inference import cuda
from service.inference.providers import resolve_provider

from ..conftest import Spawn

WITHOUT_GPU = pytest.mark.skipif(cuda.cuda().problem is None, reason="this machine has a GPU that can be used")


def test_cpu_is_cpu() -> None:
    assert resolve_provider("cpu") == "cpu"


def test_what_is_found_names_the_package_and_its_version() -> None:
    assert ort.__version__ in cuda.cuda().wheels.values()
    assert (cuda.cuda().problem is None) == (cuda.cuda().remedy is None)


@pytest.mark.parametrize(
    ("library", "says", "problem"),
    [
        ("providers_cuda", "libcublasLt.so.13: cannot open shared object file", True),
        ("providers_cuda", "libonnxruntime_providers_cuda.so: undefined symbol: cublasLtMatmul", True),
        ("providers_cuda", "libonnxruntime_providers_cuda.so: undefined symbol: Provider_GetHost", False),
        ("libcudnn", "libcudnn.so.9: cannot open shared object file", True),
    ],
)
def test_a_library_that_is_missing_is_named_in_the_words_of_the_loader(
    monkeypatch: pytest.MonkeyPatch, library: str, says: str, problem: bool
) -> None:
    """All but what ONNX Runtime itself brings when it loads its provider."""

    def load(name: str) -> None:
        if library in name:
            raise OSError(says)

    monkeypatch.setattr(cuda.ctypes, "CDLL", load)
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    found = cuda._load_provider()
    assert found == (f"a library of the CUDA provider cannot be loaded: {says}" if problem else None)


@pytest.mark.parametrize("packaged", [True, False])
def test_tensorrt_is_loaded_from_its_package_or_where_the_loader_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packaged: bool
) -> None:
    """Before the provider of ONNX Runtime, which does not look into packages."""
    loaded: list[str] = []
    if packaged:
        (tmp_path / "tensorrt_libs").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
    else:
        monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [cuda.TENSORRT])
    monkeypatch.setattr(cuda.ctypes, "CDLL", loaded.append)
    assert cuda.load_tensorrt() is None
    folder = f"{tmp_path}/tensorrt_libs/" if packaged else ""
    assert loaded[:2] == [f"{folder}libnvinfer.so.10", f"{folder}libnvonnxparser.so.10"]
    assert loaded[2].endswith("/libonnxruntime_providers_tensorrt.so")


def test_an_onnx_runtime_without_tensorrt_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert "built without TensorRT" in str(cuda.load_tensorrt())


@WITHOUT_GPU
def test_auto_falls_back_to_the_cpu() -> None:
    assert resolve_provider("auto") == "cpu"


@WITHOUT_GPU
@pytest.mark.parametrize("provider", ["cuda", "cuda-graphs", "tensorrt"])
def test_a_provider_that_is_not_there_is_an_error_with_the_reason(provider: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The {provider} provider was requested, but ") as caught:
        resolve_provider(provider)
    assert str(cuda.cuda().problem) in str(caught.value)
    assert caught.value.where == "CANDOR_PROVIDER"
    assert ort.__version__ in str(caught.value.found)
    assert "candor doctor" in str(caught.value.remedy)


@WITHOUT_GPU
def test_a_service_that_was_asked_for_cuda_does_not_start(spawn: Spawn) -> None:
    status, said = spawn(wait=False, provider="cuda").end()
    assert status == 2
    assert "cuda provider was requested" in said
    assert "Traceback" not in said
