"""What a data set is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """Labelled images.

    Attributes:
        name: Key in `DATASETS`.
        images: uint8 (N, H, W, C).
        labels: Class of each image, int64 (N,), in 0 … K − 1.
        label_names: Names of the K classes.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    label_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)
