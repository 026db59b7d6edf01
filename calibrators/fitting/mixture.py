"""Weights of a mixture of fixed distributions: the maximum of their likelihood on the simplex."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import scipy

from calibrators.arrays import Doubles
from calibrators.errors import no_convergence

Passes: TypeAlias = Callable[[], Iterable[tuple[Doubles, Doubles]]]

# Maximum remaining gain of the mean log-likelihood: the goal, and the limit accepted if rounding prevents it.
_GAP = 1e-9
_ALLOWED_GAP = 1e-7
_MAX_STEPS = 200
# Stands for zero during the search: negligible, but safe to divide by and to square.
_NOTHING = 1e-60


def mixture_weights(passes: Passes, components: int) -> Doubles:
    """Maximise Σ_i s_i log Σ_k w_k c_ik over w ≥ 0 with Σ w = 1; return w (M,).

    Sequential quadratic programming on the simplex. The objective is concave, and max_k Σ_i s_i c_ik / (Σ_j w_j c_ij) −
    1 bounds the remaining gain from above, so the optimum is certified.

    Args:
        passes: Makes an iterator over chunks of the data: chances (n, M) of 0 or more, with a positive entry in each
            row, and shares s (n,), which add up to one over all chunks.
        components: M.

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
            # Newton's method would at best double a weight far too small; expectation maximisation corrects it.
            weights = weights * pull
            weights /= weights.sum()
            continue
        goal = _quadratic_step(curvature, pull)
        step, length = goal - weights, 1.0
        expected = float((1 - pull) @ step)
        while length > 1e-8 and not _value(passes, weights + length * step) <= value + 1e-4 * length * min(expected, 0):
            length /= 2
        # If rounding spoils the step, expectation maximisation never loses.
        weights = weights + length * step if length > 1e-8 else weights * pull
        weights = np.maximum(weights, _NOTHING)
        weights /= weights.sum()
    if nearest <= _ALLOWED_GAP:
        return np.where(best > 1e10 * _NOTHING, best, 0.0)
    found = f"a mean log-likelihood within {nearest:.3g} of its maximum"
    raise no_convergence("mixture weights", found, f"within {_ALLOWED_GAP:g}")


def _quadratic_step(curvature: Doubles, pull: Doubles) -> Doubles:
    """Minimise the second-order model ½ yᵀ H y − yᵀ (2 pull − 1) over y ≥ 0, scaled to the simplex."""
    # All of H is 0 or more, so only a positive 2 pull − 1 lets its y be positive; those have H_kk > 1/4.
    free = np.flatnonzero(pull > 0.5)
    # In units that give H a diagonal of ones, even for very unequal components.
    unit = 1 / np.sqrt(np.diag(curvature)[free])
    part = curvature[np.ix_(free, free)] * unit[:, None] * unit + 1e-12 * np.eye(len(free))
    root = scipy.linalg.cholesky(part)
    found = np.zeros(len(pull))
    target = scipy.linalg.solve_triangular(root, (2 * pull[free] - 1) * unit, trans=1)
    found[free] = unit * scipy.optimize.nnls(root, target)[0]
    total = float(found.sum())
    return found / total if total > 0 else pull / pull.sum()


def _value(passes: Passes, weights: Doubles) -> float:
    value = 0.0
    with np.errstate(divide="ignore"):
        for relative, share in _relative(passes):
            value -= float(share @ np.log(relative @ weights))
    return value


def _relative(passes: Passes) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield rows with a share, scaled to a largest chance of one: nothing underflows, the weights stay the same."""
    for chances, share in passes():
        relative = chances / np.maximum.reduce(chances, axis=1, keepdims=True)
        kept = share > 0
        yield (relative, share) if kept.all() else (relative[kept], share[kept])
