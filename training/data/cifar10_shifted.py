"""CIFAR-10.1 and CIFAR-10.2: newer photographs of CIFAR-10's classes, for evaluation only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.cifar10 import CLASSES
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files
from training.errors import ConfigurationError

VERSIONS = {"v4": 2021, "v6": 2000}  # images
PARTS = {"train": 10_000, "test": 2_000}

CIFAR10_1 = Distribution(
    title="CIFAR-10.1",
    folders=("cifar-10.1", "CIFAR-10.1/datasets"),
    obtain="Download cifar10.1_v6_data.npy and cifar10.1_v6_labels.npy (or v4) from the folder datasets of "
    "https://github.com/modestyachts/CIFAR-10.1 and put them into cifar-10.1/ in the folder of data sets.",
    layout="uint8 (2000, 32, 32, 3) and whole numbers (2000,), 2021 in v4.",
)
CIFAR10_2 = Distribution(
    title="CIFAR-10.2",
    folders=("cifar-10.2",),
    obtain="Download cifar102_test.npz from https://github.com/modestyachts/cifar-10.2 and put it into cifar-10.2/ in "
    "the folder of data sets.",
    layout="an archive with images, uint8 (2000, 32, 32, 3), and labels, whole numbers (2000,); 10,000 of them in "
    "cifar102_train.npz.",
)


def load_10_1(root: Path | None = None, *, version: str = "v6") -> Dataset:
    """CIFAR-10.1: 2,000 newer images of CIFAR-10's classes, collected as CIFAR-10's were; all of them are test rows.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.
        version: `v6`, or `v4` for the 2,021 images of the first release.

    Returns:
        Images uint8 (2000, 32, 32, 3) with CIFAR-10's labels.

    Raises:
        ConfigurationError: The version is unknown.
        DataError: A file is missing or holds other arrays.

    References:
        Recht et al. 2018, Do CIFAR-10 classifiers generalize to CIFAR-10?
    """
    if version not in VERSIONS:
        raise ConfigurationError(f"version is {version!r}, expected one of: {', '.join(VERSIONS)}")
    images_name, labels_name = (f"cifar10.1_{version}_{what}.npy" for what in ("data", "labels"))
    files = CIFAR10_1.find(root, images_name, labels_name)
    (images,), (labels,) = files.arrays(images_name), files.arrays(labels_name)
    return _dataset("cifar10.1", files, images, labels, VERSIONS[version])


def load_10_2(root: Path | None = None, *, part: str = "test") -> Dataset:
    """CIFAR-10.2: 2,000 newer images of CIFAR-10's classes, from other sources than 10.1; all of them are test rows.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.
        part: `test`, or `train` for its 10,000 training images.

    Returns:
        Images uint8 (2000, 32, 32, 3) with CIFAR-10's labels.

    Raises:
        ConfigurationError: The part is unknown.
        DataError: The file is missing or holds other arrays.

    References:
        Lu et al. 2020, Harder or different? A closer look at distribution shift in dataset reproduction.
    """
    if part not in PARTS:
        raise ConfigurationError(f"part is {part!r}, expected one of: {', '.join(PARTS)}")
    name = f"cifar102_{part}.npz"
    files = CIFAR10_2.find(root, name)
    images, labels = files.arrays(name, "images", "labels")
    return _dataset("cifar10.2", files, images, labels, PARTS[part])


def _dataset(name: str, files: Files, images: NDArray[Any], labels: NDArray[Any], count: int) -> Dataset:
    if images.dtype != np.uint8 or images.shape != (count, 32, 32, 3):
        raise files.problem(f"the images in {files.folder} are {images.dtype} {images.shape}")
    if labels.dtype.kind not in "ui" or labels.shape != (count,) or int(labels.max()) >= len(CLASSES):
        raise files.problem(
            f"the labels in {files.folder} are {labels.dtype} {labels.shape}, the highest {labels.max()}"
        )
    return Dataset(name, images, labels.astype(np.int64), CLASSES, test=range(count), sources=files.digests)
