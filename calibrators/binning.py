"""Bins over [0, 1], right-closed: (lo, hi]; the first one is closed on both sides."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles, Floats

Scheme: TypeAlias = Literal["width", "mass"]
SCHEMES: tuple[Scheme, ...] = ("width", "mass")
# Equal-width bins are computed instead of searched from this many scores, up to this many bins.
_FEW, _MANY = 256, 4_096
# Up to this many bins, comparing all scores with every edge is faster than numbering their bins.
_COMPARED = 32


def bin_edges(scores: Floats, bins: int, scheme: Scheme, weight: Doubles | None = None) -> Floats:
    """Return the edges of the bins, from 0 to 1, in the type of the scores.

    Edges in that type keep a float32 score of 0.2 on the edge 0.2 instead of just above it.

    Args:
        scores: (N,) in [0, 1]; N ≥ 1 for ``"mass"``.
        bins: Number of bins.
        scheme: ``"width"``: equal width. ``"mass"``: equal total weight; equal scores are never split, and bins left
            empty by ties are dropped.
        weight: (N,) positive, or None.

    Returns:
        (B + 1,) non-decreasing, B ≤ ``bins``; all but the first two differ.
    """
    if scheme == "width":
        return (np.arange(bins + 1) / bins).astype(scores.dtype)
    if weight is None:
        return mass_edges(np.sort(scores), bins)
    order = np.argsort(scores, kind="stable")
    return mass_edges(scores[order], bins, weight[order])


def mass_edges(scores: Floats, bins: int, weight: Doubles | None = None) -> Floats:
    """Return the ``"mass"`` edges for N ≥ 1 increasing scores (N,) and their weights (N,) or None."""
    if weight is None:
        last = -(-np.arange(1, bins) * len(scores) // bins) - 1
    else:
        mass = np.cumsum(weight)
        # The slack undoes rounding by an ulp, so that weights act like repeated rows.
        last = np.searchsorted(mass, mass[-1] * (1 - 1e-12) * np.arange(1, bins) / bins)
    upper = np.unique(scores[last])
    return np.concatenate([[0], upper[upper < scores[-1]], [1]]).astype(scores.dtype)


def raised_edges(edges: Doubles, following: Doubles) -> Doubles:
    """Return edges a little above the scores that they were, so that other roundings of those stay below.

    They rise by 1e-5 in log-odds, or half the way to the following score; of neighbouring numbers, not at all.

    Args:
        edges: (B,) scores, the last of their bins.
        following: (B,) the next larger scores.
    """
    raised = np.minimum(edges + 1e-5 * edges * (1 - edges), edges + (following - edges) / 2)
    return np.where(raised < following, raised, edges)


def bin_index(scores: Floats, edges: Floats) -> npt.NDArray[np.intp]:
    """Return the bin number, 0 … B−1, of each score in [0, 1], for edges (B + 1,) from `bin_edges`."""
    bins = len(edges) - 1
    if scores.size < _FEW or bins > _MANY or scores.dtype == np.float16 or edges.dtype != scores.dtype:
        return np.searchsorted(edges[1:-1], scores, side="left")
    if not np.array_equal(edges, (np.arange(bins + 1) / bins).astype(edges.dtype)):
        return np.searchsorted(edges[1:-1], scores, side="left")
    # Multiplication finds the bin or, by rounding, one beside it; the edges themselves decide.
    index = (scores * edges.dtype.type(bins)).astype(np.intp)
    np.clip(index, 0, bins - 1, out=index)
    index -= scores <= edges[:-1].take(index)
    np.maximum(index, 0, out=index)
    index += scores > edges[1:].take(index)
    return index


def bin_counts(scores: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    """Count the scores (n,) per bin, (B,); fastest on a chunk that fits the cache."""
    if len(edges) > _COMPARED + 1:
        return np.bincount(bin_index(scores, edges), minlength=len(edges) - 1)
    below = [np.count_nonzero(scores <= edge) for edge in edges[1:-1]]
    return np.diff(below, prepend=0, append=len(scores))
