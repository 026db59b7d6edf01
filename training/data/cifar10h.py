"""CIFAR-10H: what people say the CIFAR-10 test images show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.cifar10 import CLASSES
from training.data.distribution import Distribution, Files

LEAST_AGREEMENT = 0.9  # with the test labels; 0.992 when the order is right, 0.1 when it is not

CIFAR10H = Distribution(
    title="CIFAR-10H",
    folders=("cifar10h", "cifar-10h/data"),
    obtain="Download cifar10h-counts.npy and cifar10h-probs.npy from https://github.com/jcpeterson/cifar-10h and put "
    "them into cifar10h/ in the folder of data sets (their licence is non-commercial).",
    layout="two arrays (10000, 10), in the order of CIFAR-10's test images and classes: counts, whole numbers, and "
    "probabilities, counts over their sum.",
)


@dataclass(frozen=True)
class HumanLabels:
    """Labels that many people gave to each image.

    Attributes:
        counts: How many chose each class, int64 (N, K).
        probabilities: Their shares, float64 (N, K), rows sum to one.
        sources: sha256 of each file that was read.
    """

    counts: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    sources: dict[str, str]


def load(labels: NDArray[np.int64], root: Path | None = None) -> HumanLabels:
    """Some fifty people's labels for each of the 10,000 CIFAR-10 test images, to evaluate probabilities with.

    Args:
        labels: CIFAR-10's test labels in the official order, int64 (10000,); the order of the counts is held against
            them.
        root: Folder of data sets, or of this one; None for the one that CANDOR_DATA names.

    Raises:
        DataError: A file is missing or holds other arrays, probabilities and counts differ, or at most nine in ten
            images have the label that most people gave.

    References:
        Peterson et al. 2019, Human uncertainty makes classification more robust.
    """
    names = ("cifar10h-counts.npy", "cifar10h-probs.npy")
    files = CIFAR10H.find(root, *names)
    counts, probabilities = (_array(files, name, len(labels)) for name in names)
    if counts.dtype.kind not in "ui" or int(counts.min()) < 0 or int(counts.sum(axis=1).min()) < 1:
        raise files.problem(f"{names[0]} in {files.folder} holds {counts.dtype}, or an image without a label")
    shares = counts / counts.sum(axis=1, keepdims=True)
    if probabilities.dtype.kind != "f" or not np.allclose(shares, probabilities, rtol=0, atol=1e-6):
        raise files.problem(f"{names[1]} in {files.folder} does not hold the shares of the counts")
    agreement = float((counts.argmax(axis=1) == labels).mean())
    if not agreement > LEAST_AGREEMENT:
        raise files.problem(
            f"most people's label is the given one for {agreement:.1%} of the images: the order is another"
        )
    return HumanLabels(counts.astype(np.int64), shares, files.digests)


def _array(files: Files, name: str, rows: int) -> NDArray[Any]:
    files.read(name)
    try:
        array: Any = np.load(files.folder / name, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise files.problem(f"{files.folder / name} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray) or array.shape != (rows, len(CLASSES)):
        raise files.problem(f"{files.folder / name} holds {getattr(array, 'shape', 'no array')} for {rows} test labels")
    return array
