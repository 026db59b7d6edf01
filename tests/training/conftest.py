"""A tiny configuration, and one bundle that many tests read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bundle
from training import TrainConfig, train_bundle

TINY = TrainConfig(epochs=3, train_rows=100, reference_rows=60)


@pytest.fixture(autouse=True, scope="session")
def _operators_read_once() -> Iterator[None]:
    """PyTorch's exporter reads all operators' sources for every export, in half a second; here it does so once."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(scope="session")
def tiny() -> TrainConfig:
    return TINY


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bundle; not to be changed."""
    return train_bundle(TINY, tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def trained_bundle(trained: Path) -> bundle.Bundle:
    return bundle.verify(trained)
