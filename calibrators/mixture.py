"""Weights of a mixture of fixed distributions: the maximum of their likelihood on the simplex."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from scipy import linalg, optimize

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationFitError

Passes: TypeAlias = Callable[[], Iterable[tuple[Doubles, Doubles]]]

# What the mean log-likelihood may still gain at the most: aimed at, and put up with where rounding forbids it.
_GAP = 1e-9
_ALLOWED_GAP = 1e-7
_MAX_STEPS = 200
# Far below what matters, and far above what overflows when it is divided by and squared; zero in the end.
_NOTHING = 1e-60


def mixture_weights(passes: Passes, components: int) -> Doubles:
    """Maximises Σ_i s_i log Σ_k w_k c_ik over w ≥ 0 with Σ w = 1.

    Sequential quadratic programming on the simplex; the objective is concave, and max_k Σ_i s_i c_ik / (Σ_j w_j c_ij)
    − 1 bounds from above what is left to gain, so the optimum is certified.

    Args:
        passes: Makes an iterator over chunks of the data: chances (n, M) of 0 or more, some entry of each row above 0,
            and shares s (n,), which add up to one over all chunks.
        components: M.

    Returns:
        (M,) float64 of 0 or more that add up to one.

    Raises:
        CalibrationFitError: No convergence.

    References:
        Kim, Carbonetto, Stephens, Anitescu (2020), A fast algorithm for maximum likelihood estimation of mixture
        proportions using sequential quadratic programming.
    """
    weights = np.full(components, 1 / components)
    gap, best, nearest = math.inf, weights, math.inf
    for _ in range(_MAX_STEPS):
        value, pull, curvature = 0.0, np.zeros(components), np.zeros((components, components))
        for relative, share in _relative(passes):
            mixed = relative @ weights
            relative /= mixed[:, None]
            value -= float(share @ np.log(mixed))
            pull += share @ relative
            curvature += (relative * share[:, None]).T @ relative
        gap = float(pull.max()) - 1
        if gap < nearest:
            best, nearest = weights, gap
        if gap <= _GAP:
            break
        if gap > 1 and weights[int(np.argmax(pull))] * pull.max() > 1e-15:
            # A weight far too small, which Newton's method would double at best: expectation maximisation mends it.
            weights = weights * pull
            weights /= weights.sum()
            continue
        goal = _quadratic_step(curvature, pull)
        step, length = goal - weights, 1.0
        expected = float((1 - pull) @ step)
        while length > 1e-8 and not _value(passes, weights + length * step) <= value + 1e-4 * length * min(expected, 0):
            length /= 2
        # Where rounding spoils the step, one of expectation maximisation never loses.
        weights = weights + length * step if length > 1e-8 else weights * pull
        weights = np.maximum(weights, _NOTHING)
        weights /= weights.sum()
    if nearest <= _ALLOWED_GAP:
        return np.where(best > 1e10 * _NOTHING, best, 0.0)
    raise CalibrationFitError(
        "No convergence",
        where="mixture weights",
        found=f"a mean log-likelihood within {nearest:.3g} of its maximum",
        expected=f"one within {_ALLOWED_GAP:g}",
    )


def _quadratic_step(curvature: Doubles, pull: Doubles) -> Doubles:
    """Minimises the second-order model ½ yᵀ H y − yᵀ (2 pull − 1) over y ≥ 0, scaled to the simplex."""
    # All of H is 0 or more, so only a positive 2 pull − 1 lets its y be positive; those have H_kk > 1/4.
    free = np.flatnonzero(pull > 0.5)
    # In units that give H a diagonal of ones, however unlike the components are.
    unit = 1 / np.sqrt(np.diag(curvature)[free])
    part = curvature[np.ix_(free, free)] * unit[:, None] * unit + 1e-12 * np.eye(len(free))
    root = linalg.cholesky(part)
    found = np.zeros(len(pull))
    found[free] = unit * optimize.nnls(root, linalg.solve_triangular(root, (2 * pull[free] - 1) * unit, trans=1))[0]
    total = float(found.sum())
    return found / total if total > 0 else pull / pull.sum()


def _value(passes: Passes, weights: Doubles) -> float:
    value = 0.0
    with np.errstate(divide="ignore"):
        for relative, share in _relative(passes):
            value -= float(share @ np.log(relative @ weights))
    return value


def _relative(passes: Passes) -> Iterator[tuple[Doubles, Doubles]]:
    """Rows with a share, scaled to a largest chance of one: the weights do not depend on it, and nothing underflows."""
    for chances, share in passes():
        relative = chances / np.maximum.reduce(chances, axis=1, keepdims=True)
        kept = share > 0
        yield (relative, share) if kept.all() else (relative[kept], share[kept])
