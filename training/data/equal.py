"""Equal rows of your own data: often one thing twice, so that no two parts share them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.fingerprints import of_columns
from training.kept_texts import KeptTexts
from training.scratch import chunks

_LOG = logging.getLogger(__name__)
_TEXTS = 1024  # at a time
Numbers = NDArray[np.int64]


def equal_rows(inputs: NDArray[Any], labels: Numbers) -> Numbers | None:
    """Return the number of each row's inputs, the same for equal rows, int64 (N,), and log how many are repeated.

    Args:
        inputs: Rows of a table float32 (N, F), NaN for missing numbers; or images or tokens, integers (N, …).
        labels: Class of each row, (N,).

    Returns:
        The numbers, which differ for different rows but for a chance of some N²/2⁶⁵; None where all rows differ.

    Example:
        >>> first, second, third = equal_rows(np.array([[1, np.nan], [2, 0], [1, np.nan]], np.float32), np.zeros(3))
        >>> bool(first == third != second)
        True
    """
    parts = (inputs[part] for part in chunks(inputs))
    return _numbered((of_columns(part.T if part.dtype == np.float32 else [part]) for part in parts), labels)


def equal_texts(texts: KeptTexts, labels: Numbers) -> Numbers | None:
    """Return the number of each text, see `equal_rows`."""
    parts = (texts[start : start + _TEXTS].tolist() for start in range(0, len(texts), _TEXTS))
    return _numbered((of_columns([np.array(part, np.object_)]) for part in parts), labels)


def _numbered(found: Iterator[NDArray[np.uint64]], labels: Numbers) -> Numbers | None:
    _, first, place = np.unique(np.concatenate([*found]), return_index=True, return_inverse=True)
    repeated = len(labels) - len(first)
    if not repeated:
        return None
    other = int((labels != labels[first][place]).sum())
    _LOG.warning(
        "%s the inputs of an earlier row%s. Equal rows stay in one part.",
        "1 row repeats" if repeated == 1 else f"{repeated:,} rows repeat",
        f", {other:,} of them with another label" if other else "",
    )
    return place.astype(np.int64)
