"""Settings of every test, and the model that several folders of tests serve."""

from __future__ import annotations

import os

# One thread per process: libraries would start one per processor, and wait for each other. It also keeps what is
# trained the same everywhere, to the bit.
os.environ["OMP_NUM_THREADS"] = "1"

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings

import bundle as bundles
from bundle import Bundle
from tests.waiting import PATIENCE_S, PROMPT_REFITS
from training import TrainConfig, train_bundle
from training.data.drift import dim

# No test asserts a time: a loaded machine is no failure.
settings.register_profile("candor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("candor")

collect_ignore = ["ray_nodes.py"]  # a program of another environment
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
MadeOnce = Callable[[str, Callable[[Path], None]], Path]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none. One that is there and cannot be used is a failure."""
    if item.get_closest_marker("gpu") is not None:
        from service.inference.cuda import cuda

        if (reason := cuda().driver.problem) is not None:
            pytest.skip(reason)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Return a copy of a folder that only the first of pytest's processes makes; the others wait for it."""
    together = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        together = together.parent

    def folder(name: str, make: Callable[[Path], None]) -> Path:
        whole = together / f"{name}-made"
        with (together / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                begun = tmp_path_factory.mktemp(name)
                make(begun)
                begun.rename(whole)
        return shutil.copytree(whole, tmp_path_factory.mktemp(name), dirs_exist_ok=True)

    return folder


@pytest.fixture(scope="session")
def api_reference(made_once: MadeOnce) -> Path:
    """The site's API reference, generated from a running service."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "examples.api_reference", str(folder / "api-reference.md")]
        environment = os.environ | PROMPT_REFITS
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr

    return made_once("reference", make) / "api-reference.md"


@dataclass(frozen=True, eq=False)
class Digits:
    """A small trained model and the rows that it has never seen.

    Attributes:
        root: Folder of bundles with one bundle in it.
        bundle: That bundle, verified.
        images: uint8 (N, 8, 8, 1), seen neither in training nor in the reference rows.
        dimmed: The same under a dying lamp.
        labels: Label names of the images.
    """

    root: Path
    bundle: Bundle
    images: npt.NDArray[np.uint8]
    dimmed: npt.NDArray[np.uint8]
    labels: list[str]


@pytest.fixture(scope="session")
def digits(made_once: MadeOnce) -> Digits:
    def train(root: Path) -> None:
        train_bundle(TrainConfig(dataset="digits", epochs=25), root)  # here, where PyTorch is imported already

    root = made_once("trained", train)
    data, parts = TrainConfig().load()
    rows = parts.feedback
    images = data.inputs[rows]
    names = [data.label_names[label] for label in data.labels[rows]]
    dimmed = dim(images, seed=7, gain=0.15)  # a fifth misread: enough errors for any gate
    return Digits(root, bundles.verify(root / "digits" / "1"), images, dimmed, names)


@pytest.fixture
def memory() -> Iterator[Any]:
    """The files of `memory://`, empty again after the test."""
    import fsspec

    files = fsspec.filesystem("memory")
    yield files
    for name in files.ls("/", detail=False):
        files.rm(name, recursive=True)
