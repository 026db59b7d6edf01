"""Groups whose rows a monitor has counted: rows of a group are alike, so only the first one says something new."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.monitoring.documents import array_of, text_of

KEPT: Final = 8192
"""Groups that a monitor remembers, those counted last: a group that returns after so many others counts as new."""


class Groups:
    """The groups that were counted last.

    Args:
        text: From `to_text`; empty without groups.
    """

    def __init__(self, text: str = "") -> None:
        self._counted: NDArray[np.int64] = array_of(text, np.dtype("<i8"), "groups").astype(np.int64)

    def fresh(self, group: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are the first that is counted of their group, and count them all.

        Args:
            group: Groups of rows in order of prediction, shape (N,).
        """
        first = np.zeros(len(group), np.bool_)
        first[np.unique(group, return_index=True)[1]] = True
        first &= ~np.isin(group, self._counted)
        last = np.concatenate([self._counted, group])[::-1]  # newest first
        kept = np.sort(np.unique(last, return_index=True)[1])[:KEPT]
        self._counted = last[kept][::-1]
        return first

    def to_text(self) -> Any:
        """Return the groups as text for a JSON document."""
        return text_of(self._counted.astype("<i8"))
