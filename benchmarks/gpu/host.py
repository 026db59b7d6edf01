"""What the parts run on: an NVIDIA GPU, or the CPU where none answers."""

from __future__ import annotations

import hashlib
import importlib.metadata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.report import processor
from benchmarks.serving.servers import ROOT
from service.inference.cuda import cuda

_SOURCE = ("benchmarks", "bundle", "calibrators", "service", "training")
_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "tensorrt-cu13-libs", "torch")


class UnusableError(Exception):
    """A GPU answers, but ONNX Runtime cannot use it."""


@dataclass(frozen=True)
class Sizes:
    """How much a part does.

    Attributes:
        images: Training images in an epoch; a multiple of `batch_size`, so that the compiler sees one shape.
        batch_size: Training images in a step.
        epochs: Epochs of each variant; the first also compiles.
        batches: Rows in a batch of inference, ascending.
        seconds: Length of each measurement of serving.
        loads: Connections and images per request of each measurement over HTTP.
        budget_s: Maximum seconds of all parts together; a part may take half of it.
    """

    images: int
    batch_size: int
    epochs: int
    batches: tuple[int, ...]
    seconds: float
    loads: tuple[tuple[int, int], ...]
    budget_s: float


FULL = Sizes(50_000, 500, 4, (1, 2, 4, 8, 16, 32, 64, 128), 1.0, ((1, 1), (16, 1), (64, 1), (4, 32), (4, 128)), 1_200.0)
REHEARSAL = Sizes(128, 64, 2, (1, 4, 16), 0.3, ((1, 1), (4, 1), (2, 16)), 3_600.0)


@dataclass(frozen=True)
class Host:
    """A machine, and what runs on it.

    Attributes:
        gpu: Names of its GPUs; None for a rehearsal on the CPU.
        reason: Why there is no GPU, None if there is one.
        driver: Newest CUDA version that its driver supports.
        processor: Its CPU.
        versions: Versions of the packages that compute.
        source: Digest of the source that is measured.
    """

    gpu: str | None
    reason: str | None
    driver: str | None
    processor: str
    versions: dict[str, str]
    source: str = ""

    @property
    def sizes(self) -> Sizes:
        """How much each part does here."""
        return REHEARSAL if self.gpu is None else FULL


def find() -> Host:
    """Examine this machine.

    Raises:
        UnusableError: It has a GPU that ONNX Runtime cannot use; the message gives the reason and the remedy.
    """
    found = cuda()
    if found.driver.problem is None and found.problem is not None:
        raise UnusableError(f"{', '.join(found.driver.devices)}: {found.problem}. {found.remedy}")
    versions = {}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    gpu = None if found.problem else ", ".join(found.driver.devices)
    return Host(gpu, found.driver.problem, found.driver.cuda, processor(), versions, digest_of(ROOT))


def digest_of(root: Path) -> str:
    """Return a short digest of the Python files of a checkout that a measurement may run."""
    whole = hashlib.sha256()
    for file in sorted(file for name in _SOURCE for file in (root / name).rglob("*.py")):
        content = file.read_bytes()
        whole.update(f"{file.relative_to(root)} {len(content)}\n".encode() + content)
    return whole.hexdigest()[:12]
