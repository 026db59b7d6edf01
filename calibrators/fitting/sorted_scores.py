"""Rows in the order of their scores, and their totals in groups of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles

Starts = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class SortedScores:
    """Rows in increasing order of their scores, N ≥ 1.

    Attributes:
        scores: (N,) increasing.
        weight: (N,) weight of those rows, or None for one each.
        hit_scores: (H,) increasing scores of the hits alone.
        hit_weight: (H,) their weight, or None.
    """

    scores: Doubles
    weight: Doubles | None
    hit_scores: Doubles
    hit_weight: Doubles | None

    def distinct(self) -> Starts:
        """Return the start of each of the U distinct scores: (U,) row numbers, increasing from 0."""
        return np.concatenate([[0], np.flatnonzero(self.scores[1:] != self.scores[:-1]) + 1])

    def pooled(self) -> Starts:
        """Return the starts (B,) of blocks that isotonic regression cannot split: row numbers, increasing from 0.

        No score is split. The rows between one hit's score and the next hit's are misses, which pull the level down
        until it joins the hit's own; misses before the first hit are a block of level 0.
        """
        starts = np.searchsorted(self.scores, np.unique(self.hit_scores))
        return starts if len(starts) and starts[0] == 0 else np.concatenate([[0], starts])

    def totals(self, starts: Starts) -> tuple[Doubles, Doubles]:
        """Return sums over groups of neighbours that split no score.

        Args:
            starts: (G,) row number of each group's start, increasing from 0.

        Returns:
            (G,) weight of each group, above 0, and (G,) weight of its hits, at most that.
        """
        if self.weight is None or self.hit_weight is None:
            hits = np.searchsorted(self.hit_scores, self.scores[starts])
            return _sizes(starts, len(self.scores)), _sizes(hits, len(self.hit_scores))
        mass = np.add.reduceat(self.weight, starts)
        group = np.searchsorted(self.scores[starts], self.hit_scores, side="right") - 1
        return mass, np.minimum(np.bincount(group, self.hit_weight, len(starts)), mass)


def sort_scores(scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> SortedScores:
    """Sort scores (N,) with their hits (N,) and weights (N,) or None."""
    if weight is None:
        # Sorting twice costs a fraction of one sort that carries the labels along.
        return SortedScores(np.sort(scores), None, np.sort(scores[hits]), None)
    order = np.argsort(scores)
    scores, hits, weight = scores[order], hits[order], weight[order]
    return SortedScores(scores, weight, scores[hits], weight[hits])


def _sizes(starts: Starts, end: int) -> Doubles:
    """Return sizes (G,) of the groups that begin at ``starts`` (G,); the last one ends at ``end``."""
    sizes = np.empty(len(starts))
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1] = end - starts[-1]
    return sizes
