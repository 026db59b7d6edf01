"""Files with damaged bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np


def damaged(path: Path) -> Iterator[None]:
    """Write a file 60 times, each time with 20 other bytes than the original; beginning and end stay."""
    good, rng = path.read_bytes(), np.random.default_rng(3)
    for _ in range(60):
        bad = bytearray(good)
        for place in rng.integers(4, len(good) - 8, 20):
            bad[place] = rng.integers(256)
        path.write_bytes(bad)
        yield
