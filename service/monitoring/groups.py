"""Groups whose rows a monitor has counted: rows of a group are alike, so only the first one says something new.

The memory is bounded: of all groups those counted last, and of a sample of the groups all that were ever counted. The
sample is of a hash, so it does not depend on labels; it shows how many rows come from groups that are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.decisions.numbers import number, whole
from service.errors import InputValueError
from service.monitoring.documents import array_of, text_of

KEPT: Final = 8192
"""Groups that a monitor remembers, those counted last."""

SAMPLED: Final = 2048
"""Groups of the sample, of which it remembers all."""

FEW: Final = 0.01
"""Share of rows of forgotten groups up to which they are tolerated."""

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio, odd: neighbours go far apart


class Groups:
    """The groups that were counted.

    Args:
        document: From `to_dict`; None without groups.

    Raises:
        InputValueError: It is not such a document.
    """

    def __init__(self, document: Any = None) -> None:
        self._counted = self._sample = np.empty(0, np.int64)
        self._bits = self._rows = 0
        self._unseen = 0  # rows of forgotten groups, estimated: each of a sampled one for as many as it stands for
        if document is None:
            return
        if not isinstance(document, Mapping) or set(document) != {"counted", "sample", "bits", "rows", "unseen"}:
            raise InputValueError(
                "Expected the groups of a monitor.",
                where="groups",
                found=document,
                expected=Groups().to_dict(),
                remedy="Pass the document unchanged.",
            )
        self._counted, self._sample = (
            array_of(document[name], np.dtype("<i8"), f"groups/{name}").astype(np.int64)
            for name in ("counted", "sample")
        )
        self._bits, self._rows, self._unseen = (
            whole(document[name], f"groups/{name}", least=0) for name in ("bits", "rows", "unseen")
        )
        number(float(self._bits), "groups/bits", below=64.0)

    @property
    def forgotten(self) -> float:
        """Estimated share of the rows that are taken for the first of their group because the group is forgotten."""
        return self._unseen / self._rows if self._rows else 0.0

    def fresh(self, group: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are the first that is counted of their group, as far as it remembers, and count them all.

        Args:
            group: Groups of rows in order of prediction, shape (N,).
        """
        first = np.zeros(len(group), np.bool_)
        first[np.unique(group, return_index=True)[1]] = True
        first &= ~np.isin(group, self._counted)
        drawn, unseen = self.drawn(group), first & np.isin(group, self._sample)
        self._rows += len(group)
        self._unseen += int(unseen.sum()) << self._bits
        last = np.concatenate([self._counted, group])[::-1]  # newest first
        kept = np.sort(np.unique(last, return_index=True)[1])[:KEPT]
        self._counted = last[kept][::-1]
        self._sample = np.union1d(self._sample, group[drawn])
        while len(self._sample) > SAMPLED:
            self._bits += 1
            self._sample = self._sample[self.drawn(self._sample)]
        return first & ~unseen

    def drawn(self, group: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which groups are in the sample: of these, no row is taken for the first that is not."""
        if not self._bits:
            return np.ones(len(group), np.bool_)
        return np.asarray(
            (group.astype(np.int64, copy=False).view(np.uint64) * _SPREAD) >> np.uint64(64 - self._bits) == 0
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "counted": text_of(self._counted.astype("<i8")),
            "sample": text_of(self._sample.astype("<i8")),
            "bits": self._bits,
            "rows": self._rows,
            "unseen": self._unseen,
        }
