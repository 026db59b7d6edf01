"""What was asked for and is not there is an error at once, with the reason."""

from __future__ import annotations

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


@WITHOUT_GPU
def test_auto_falls_back_to_the_cpu() -> None:
    assert resolve_provider("auto") == "cpu"


@WITHOUT_GPU
def test_cuda_that_is_not_there_is_an_error_with_the_reason() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_provider("cuda")
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
