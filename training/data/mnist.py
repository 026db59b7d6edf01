"""MNIST: handwritten digits, 28 × 28 grey."""

from __future__ import annotations

from pathlib import Path

from training.data import idx
from training.data.dataset import Dataset
from training.data.distribution import Distribution

MNIST = Distribution(
    title="MNIST",
    folders=("mnist", "MNIST/raw", "MNIST"),
    obtain="Download the four files of MNIST in the idx layout (from http://yann.lecun.com/exdb/mnist/ or a mirror of "
    "it) and put them into mnist/ in the folder of data sets, packed or not.",
    layout="mnist/ with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, each with or without .gz.",
)


def load(root: Path | None = None) -> Dataset:
    """MNIST: 70,000 handwritten digits, 28 × 28 grey; 10,000 of them are the test part.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.

    Returns:
        Images uint8 (70000, 28, 28, 1), light on dark, the test images last; label names "0" … "9".

    Raises:
        DataError: A file is missing, truncated or of another layout, or a label is invalid.

    References:
        LeCun et al. 1998, Gradient-based learning applied to document recognition.
    """
    return idx.both_parts("mnist", MNIST.find(root, *idx.names(*idx.PARTS)), tuple("0123456789"))
