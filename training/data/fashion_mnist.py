"""Fashion-MNIST: articles of clothing, 28 × 28 grey."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data import idx
from training.data.dataset import Dataset
from training.data.distribution import Distribution
from training.errors import ConfigurationError

CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
PARTS = ("all", "test")

FASHION_MNIST = Distribution(
    title="Fashion-MNIST",
    folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
    obtain="Download the four files from https://github.com/zalandoresearch/fashion-mnist and put them into "
    "fashion-mnist/ in the folder of data sets, packed or not.",
    layout="fashion-mnist/ with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, each with or without .gz.",
)


def load(root: Path | None = None, *, part: str = "all") -> Dataset:
    """Fashion-MNIST: 70,000 articles of clothing, 28 × 28 grey; 10,000 of them are the test part.

    Args:
        root: Folder of data sets, or of this one; None for the one that CANDOR_DATA names.
        part: `all`, or `test` for the 10,000 images of the test files as a data set of its own, without a test part.

    Returns:
        Images uint8 (N, 28, 28, 1), light on dark, the test images last.

    Raises:
        ConfigurationError: `part` is neither.
        DataError: A file is missing, truncated or of another layout, or a label is none.

    References:
        Xiao, Rasul & Vollgraf 2017, Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms.
    """
    if part not in PARTS:
        raise ConfigurationError(f"part is {part!r}, expected one of: {', '.join(PARTS)}")
    marks = [f"{name}{ending}" for half in ("train", "t10k") for name in idx.names(half) for ending in ("", ".gz")]
    files = FASHION_MNIST.find(root, *marks)
    if part == "all" and not idx.is_there(files, "train") and idx.is_there(files, "t10k"):
        raise files.problem(
            f"only the test files are in {files.folder}; part=test takes their 10,000 images as a data set of its own"
        )
    test = idx.read_part(files, "t10k")
    if part == "test":
        return Dataset("fashion_mnist", test.images, test.labels, CLASSES, sources=files.digests)
    train = idx.read_part(files, "train")
    return Dataset(
        "fashion_mnist",
        np.concatenate([train.images, test.images]),
        np.concatenate([train.labels, test.labels]),
        CLASSES,
        test=range(len(train.labels), len(train.labels) + len(test.labels)),
        sources=files.digests,
    )
