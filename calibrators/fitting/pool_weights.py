"""Weights of a linear pool: the mixture of probabilities with the smallest log loss on held-out rows."""

from __future__ import annotations

import numpy as np
import scipy

from calibrators.arrays import Doubles

_FIRST_STEPS = 30
# Smaller weights count as this in the logarithm of the prior.
_LEAST = 1e-9


def pool_weights(own: Doubles, share: Doubles, prior: float = 0.0) -> Doubles:
    """Return weights (M,) of 0 or more, with a sum of 1, that minimise Σ share · −log(own · w) − prior · mean log w.

    The prior is a Dirichlet distribution around equal weights. The problem is convex. A few steps of expectation
    maximisation lead to the neighbourhood of its minimum, sequential quadratic programming from there on; the better of
    both is returned.

    Args:
        own: (N, M) probabilities of each row's label, above 0, by each member.
        share: (N,) weights of the rows, with a sum of 1.
        prior: Weight of the prior beside all rows, 0 or more.
    """
    members = own.shape[1]

    def value_and_gradient(weights: Doubles) -> tuple[float, Doubles]:
        mixed = np.maximum(own @ weights, 1e-300)
        least = np.maximum(weights, _LEAST)
        value = -float(share @ np.log(mixed)) - prior * float(np.log(least).mean())
        return value, -((share / mixed) @ own) - prior / members / least

    start = np.full(members, 1 / members)
    for _ in range(_FIRST_STEPS):
        start = start * ((share / (own @ start)) @ own) + prior / members
        start /= start.sum()
    found = scipy.optimize.minimize(
        value_and_gradient,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * members,
        constraints=scipy.optimize.LinearConstraint(np.ones((1, members)), 1, 1),
        options={"ftol": 1e-12, "maxiter": 200},
    ).x
    weights = np.clip(found, 0, None)
    weights = weights / weights.sum() if weights.sum() > 0 else start
    return weights if value_and_gradient(weights)[0] <= value_and_gradient(start)[0] else start
