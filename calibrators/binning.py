"""Bins over [0, 1], right-closed: (lo, hi], the first one closed on both sides."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles, Floats

Scheme: TypeAlias = Literal["width", "mass"]
SCHEMES: tuple[Scheme, ...] = ("width", "mass")
# Equal-width bins are computed rather than searched for from this many scores, up to this many bins.
_FEW, _MANY = 256, 4_096


def bin_edges(scores: Floats, bins: int, scheme: Scheme, weight: Doubles | None = None) -> Floats:
    """Edges of the bins, from 0 to 1, in the type of the scores.

    In that type, so that a float32 score of 0.2 lies on the edge 0.2, as one would expect, and not just above it.

    Args:
        scores: (N,) in [0, 1]; N ≥ 1 for ``"mass"``.
        bins: Number of bins.
        scheme: ``"width"``: equal width. ``"mass"``: equal total weight, as near as ties allow: equal scores are never
            split, and bins that ties leave empty are left out.
        weight: (N,) positive, or None.

    Returns:
        (B + 1,) non-decreasing, B ≤ ``bins``; all but the first two differ.
    """
    if scheme == "width":
        return (np.arange(bins + 1) / bins).astype(scores.dtype)
    if weight is None:
        total = len(scores)
        ranks = -(-np.arange(1, bins) * total // bins) - 1
        upper = np.partition(scores, np.unique(ranks))[ranks] if bins > 1 else scores[:0]
    else:
        order = np.argsort(scores, kind="stable")
        mass = np.cumsum(weight[order])
        # The slack keeps a boundary that rounding has moved by an ulp where repeated rows would have put it.
        wanted = mass[-1] * (1 - 1e-12) * np.arange(1, bins) / bins
        upper = scores[order][np.searchsorted(mass, wanted)]
    upper = np.unique(upper)
    return np.concatenate([[0], upper[upper < scores.max()], [1]]).astype(scores.dtype)


def bin_index(scores: Floats, edges: Floats) -> npt.NDArray[np.intp]:
    """Number of the bin that each score falls in.

    Args:
        scores: Any shape, in [0, 1].
        edges: (B + 1,) from `bin_edges`.

    Returns:
        Integers in 0 … B−1, of the shape of ``scores``.
    """
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
