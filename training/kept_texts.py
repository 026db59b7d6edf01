"""All texts of a data set: in memory, or beyond a size in a temporary file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from training.scratch import Growing

_ENCODING, _HALVES = "utf-8", "surrogatepass"  # a text may contain half of a surrogate pair


class KeptTexts:
    """N texts, read-only; some of them by row numbers or a slice, without a copy of the texts.

    Args:
        content: The texts one after the other in UTF-8, uint8.
        begins: Place of each text's first byte, int64 (N,).
        ends: Place after its last, int64 (N,).
    """

    def __init__(self, content: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._content, self._begins, self._ends = content, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, rows: NDArray[np.int64] | slice) -> KeptTexts:
        """Return some of the texts."""
        return KeptTexts(self._content, self._begins[rows], self._ends[rows])

    def tolist(self) -> list[str]:
        """Return the texts themselves."""
        bounds = zip(self._begins.tolist(), self._ends.tolist(), strict=True)
        return [self._content[begin:end].tobytes().decode(_ENCODING, _HALVES) for begin, end in bounds]


class GrowingTexts:
    """Texts that are still being read.

    Raises:
        DataError: The temporary file cannot be written.
    """

    def __init__(self) -> None:
        self._content = Growing((), np.uint8)
        self._sizes: list[NDArray[np.int64]] = []

    def add(self, texts: Iterable[str]) -> None:
        """Append texts."""
        encoded = [text.encode(_ENCODING, _HALVES) for text in texts]
        self._sizes.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._content.add(np.frombuffer(b"".join(encoded), np.uint8))

    def finish(self) -> KeptTexts:
        """Return all texts."""
        sizes = np.concatenate([np.empty(0, np.int64), *self._sizes])
        ends = np.cumsum(sizes)
        return KeptTexts(self._content.array(), ends - sizes, ends)
