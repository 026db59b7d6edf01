"""Street View House Numbers: 32 × 32 colour photographs of digits on houses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files

SVHN = Distribution(
    title="SVHN",
    folders=("svhn", "SVHN"),
    obtain="Download train_32x32.mat and test_32x32.mat (cropped digits, format 2) from "
    "http://ufldl.stanford.edu/housenumbers/ and put them into svhn/ in the folder of data sets.",
    layout="svhn/train_32x32.mat and svhn/test_32x32.mat, each with X, uint8 (32, 32, 3, N), and y, (N, 1), where 10 "
    "means the digit 0.",
)


def load(root: Path | None = None) -> Dataset:
    """SVHN: 99,289 colour photographs of house numbers' digits, 32 × 32; 26,032 of them are the test part.

    The files' label 10 becomes class 0, so that classes equal digits.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.

    Returns:
        Images uint8 (N, 32, 32, 3), the test images last; label names "0" … "9".

    Raises:
        DataError: A file is missing or damaged, or a label is invalid.

    References:
        Netzer et al. 2011, Reading digits in natural images with unsupervised feature learning.
    """
    names = ("train_32x32.mat", "test_32x32.mat")
    files = SVHN.find(root, *names)
    (train, train_labels), (test, test_labels) = (_part(files, name) for name in names)
    images = np.empty((len(train_labels) + len(test_labels), 32, 32, 3), np.uint8)
    images[: len(train_labels)], images[len(train_labels) :] = train, test
    return Dataset(
        "svhn",
        images,
        np.concatenate([train_labels, test_labels]),
        tuple("0123456789"),
        test=range(len(train_labels), len(images)),
        sources=files.digests,
    )


def _part(files: Files, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return a view (N, 32, 32, 3) of a file's images, and their digits."""
    from scipy.io import loadmat  # only this data set needs it

    files.read(name)
    try:
        document = loadmat(str(files.folder / name), variable_names=["X", "y"])
        pixels, labels = document["X"], document["y"].reshape(-1)
    except Exception as error:  # its parser raises nearly anything on damaged bytes
        raise files.problem(f"{files.folder / name} cannot be read: {type(error).__name__}: {error}") from error
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape != (32, 32, 3, len(labels)):
        raise files.problem(f"{files.folder / name} has X {pixels.dtype} {pixels.shape} for {len(labels)} labels")
    if labels.dtype.kind not in "uif" or not np.isin(labels, np.arange(1, 11)).all():
        raise files.problem(f"{files.folder / name} has labels other than 1 … 10")
    return pixels.transpose(3, 0, 1, 2), labels.astype(np.int64) % 10
