"""CIFAR-10: 32 × 32 colour photographs of ten kinds of things."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data.cifar_records import read_records
from training.data.dataset import Dataset
from training.data.distribution import Distribution

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORDS = 10_000

CIFAR10 = Distribution(
    title="CIFAR-10",
    folders=("cifar-10-batches-bin",),
    obtain="Download the binary version, cifar-10-binary.tar.gz, from https://www.cs.toronto.edu/~kriz/cifar.html and "
    "unpack it in the folder of data sets.",
    layout="cifar-10-batches-bin/ with data_batch_1.bin … data_batch_5.bin and test_batch.bin, each of 10,000 records: "
    "a label byte, then 1,024 red, 1,024 green and 1,024 blue bytes.",
)


def load(root: Path | None = None) -> Dataset:
    """CIFAR-10: 60,000 colour photographs of ten kinds of things, 32 × 32; 10,000 of them are the test part.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.

    Returns:
        Images uint8 (60000, 32, 32, 3) in the official order, the test images last.

    Raises:
        DataError: A batch is missing, has another size, or holds an invalid label.

    References:
        Krizhevsky 2009, Learning multiple layers of features from tiny images.
    """
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    files = CIFAR10.find(root, *names)
    images, labels = read_records(files, dict.fromkeys(names, RECORDS), classes=(len(CLASSES),))
    test = range(len(images) - RECORDS, len(images))
    return Dataset("cifar10", images, labels[:, 0].astype(np.int64), CLASSES, test=test, sources=files.digests)
