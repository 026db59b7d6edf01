"""Handwritten digits included in scikit-learn: real, small, and available offline."""

from __future__ import annotations

import numpy as np

from training.data.dataset import Dataset


def load() -> Dataset:
    """1,797 images of the digits 0 … 9, 8 × 8 grey, light on dark.

    Pixels are stored as 0 … 16 and brought to 0 … 255 by round(v · 255 / 16).

    Returns:
        Images uint8 (1797, 8, 8, 1), labels int64 (1797,), label names "0" … "9".

    References:
        Alpaydin & Kaynak 1998, Optical recognition of handwritten digits, UCI; the test part, by 13 writers.

    Example:
        >>> load().inputs.shape
        (1797, 8, 8, 1)
    """
    from sklearn.datasets import load_digits  # takes a second to import

    bunch = load_digits()
    images = np.round(bunch.images[..., np.newaxis] * (255 / 16)).astype(np.uint8)
    names = tuple(str(digit) for digit in range(10))
    sizes = {"train_rows": 300, "validation_rows": 0, "reference_rows": 400}  # a demo needs rows that come later, too
    return Dataset("digits", images, bunch.target.astype(np.int64), names, sizes=sizes)
