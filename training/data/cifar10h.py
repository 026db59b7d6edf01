"""CIFAR-10H: people's labels for the CIFAR-10 test images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.cifar10 import CLASSES
from training.data.distribution import Distribution

LEAST_AGREEMENT = 0.9  # with the test labels; 0.992 in the right order, 0.1 in a wrong one

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
        counts: Number of people who chose each class, int64 (N, K).
        probabilities: Shares of people, float64 (N, K), rows sum to one.
        sources: sha256 of each file read.
    """

    counts: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    sources: dict[str, str]


def load(labels: NDArray[np.int64], root: Path | None = None) -> HumanLabels:
    """Read about fifty people's labels for each of the 10,000 CIFAR-10 test images, to evaluate probabilities.

    Args:
        labels: CIFAR-10's test labels in the official order, int64 (10000,), to verify the order of the counts.
        root: Folder of data sets, or of this one; None for CANDOR_DATA.

    Raises:
        DataError: A file is missing or holds other arrays, probabilities and counts differ, or most people's label is
            the given one for 90 % of the images or fewer.

    References:
        Peterson et al. 2019, Human uncertainty makes classification more robust.
    """
    names = ("cifar10h-counts.npy", "cifar10h-probs.npy")
    files = CIFAR10H.find(root, *names)
    (counts,), (probabilities,) = map(files.arrays, names)
    if not counts.shape == probabilities.shape == (len(labels), len(CLASSES)):
        raise files.problem(
            f"{files.folder} holds arrays {counts.shape} and {probabilities.shape} for {len(labels)} test labels"
        )
    if counts.dtype.kind not in "ui" or int(counts.min()) < 0 or int(counts.sum(axis=1).min()) < 1:
        raise files.problem(f"{names[0]} in {files.folder} holds {counts.dtype}, or an image without a label")
    shares = counts / counts.sum(axis=1, keepdims=True)
    if probabilities.dtype.kind != "f" or not np.allclose(shares, probabilities, rtol=0, atol=1e-6):
        raise files.problem(f"{names[1]} in {files.folder} does not hold the shares of the counts")
    agreement = float((counts.argmax(axis=1) == labels).mean())
    if not agreement > LEAST_AGREEMENT:
        raise files.problem(
            f"most people's label is the given one for {agreement:.1%} of the images only: the order differs"
        )
    return HumanLabels(counts.astype(np.int64), shares, files.digests)
