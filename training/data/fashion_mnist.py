"""Fashion-MNIST: articles of clothing, 28 × 28 grey."""

from __future__ import annotations

from pathlib import Path

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
        root: Folder of data sets, or of this one; None for CANDOR_DATA.
        part: `all`, or `test` for the 10,000 images of the test files alone, without a test part.

    Returns:
        Images uint8 (N, 28, 28, 1), light on dark, the test images last.

    Raises:
        ConfigurationError: `part` is neither of these.
        DataError: A file is missing, truncated or of another layout, or a label is invalid.

    References:
        Xiao, Rasul & Vollgraf 2017, Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms.
    """
    if part not in PARTS:
        raise ConfigurationError(f"part is {part!r}, expected one of: {', '.join(PARTS)}")
    files = FASHION_MNIST.find(root, *idx.names(*idx.PARTS))
    if part == "test":
        test = idx.read_part(files, "t10k")
        return Dataset("fashion_mnist", test.images, test.labels, CLASSES, sources=files.digests)
    train_is_there, test_is_there = (any((files.folder / name).exists() for name in idx.names(p)) for p in idx.PARTS)
    if test_is_there and not train_is_there:
        raise files.problem(
            f"only the test files are in {files.folder}; part=test reads their 10,000 images as a separate data set"
        )
    return idx.both_parts("fashion_mnist", files, CLASSES)
