"""CIFAR-100: 32 × 32 colour photographs of a hundred kinds of things in twenty groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data.cifar_records import read_records
from training.data.dataset import Dataset
from training.data.distribution import Distribution
from training.errors import ConfigurationError

LEVELS = {"coarse": 20, "fine": 100}  # in the order of the label bytes
RECORDS = {"train.bin": 50_000, "test.bin": 10_000}

CIFAR100 = Distribution(
    title="CIFAR-100",
    folders=("cifar-100-binary",),
    obtain="Download the binary version, cifar-100-binary.tar.gz, from https://www.cs.toronto.edu/~kriz/cifar.html and "
    "unpack it in the folder of data sets.",
    layout="cifar-100-binary/ with train.bin of 50,000 and test.bin of 10,000 records (a coarse and a fine label byte, "
    "then 1,024 red, 1,024 green and 1,024 blue bytes), fine_label_names.txt and coarse_label_names.txt.",
)


def load(root: Path | None = None, *, labels: str = "fine") -> Dataset:
    """CIFAR-100: 60,000 colour photographs of a hundred kinds of things, 32 × 32; 10,000 of them are the test part.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.
        labels: `fine` for the hundred classes, `coarse` for their twenty groups.

    Returns:
        Images uint8 (60000, 32, 32, 3) in the official order, the test images last.

    Raises:
        ConfigurationError: `labels` is neither of these.
        DataError: A file is missing, has another size, or holds an invalid label.

    References:
        Krizhevsky 2009, Learning multiple layers of features from tiny images.
    """
    if labels not in LEVELS:
        raise ConfigurationError(f"labels is {labels!r}, expected one of: {', '.join(LEVELS)}")
    files = CIFAR100.find(root, *RECORDS)
    names = tuple(files.read(f"{labels}_label_names.txt").decode("utf-8", "replace").split())
    if len(set(names)) != LEVELS[labels] or len(names) != LEVELS[labels]:
        raise files.problem(f"{labels}_label_names.txt has {len(names)} names, not {LEVELS[labels]} distinct ones")
    images, both = read_records(files, RECORDS, classes=tuple(LEVELS.values()))
    chosen = both[:, list(LEVELS).index(labels)].astype(np.int64)
    test = range(RECORDS["train.bin"], len(images))
    return Dataset("cifar100", images, chosen, names, test=test, sources=files.digests)
