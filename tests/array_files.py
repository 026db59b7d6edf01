"""Arrays as the bytes of npy and npz files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt


def npy(array: npt.ArrayLike, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()
