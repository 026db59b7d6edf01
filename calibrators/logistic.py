"""Binary logistic regression on one or two features, by Newton's method."""

from __future__ import annotations

import numpy as np
from scipy import special

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationFitError

_MAX_STEPS = 200
_DECREMENT = 1e-15


def fit_logistic(
    features: Doubles, targets: Doubles, weight: Doubles | None, *, ridge: float = 0.0, centre: Doubles | None = None
) -> tuple[Doubles, float]:
    """Minimises mean −[t log σ(u) + (1 − t) log σ(−u)] + ½ ridge ‖θ − centre‖² over θ, u = features · θ.

    Damped Newton steps; the objective is convex. Columns should be of the order of one.

    Args:
        features: (N, d), d ≤ 3, the constant column among them.
        targets: (N,) in [0, 1].
        weight: (N,) or None.
        ridge: 0 or more; above 0 the optimum is finite whatever the data.
        centre: (d,) where the ridge draws to, and the start; zeros if None.

    Returns:
        θ (d,), and the objective there.

    Raises:
        CalibrationFitError: No convergence.
    """
    size = features.shape[1]
    centre = np.zeros(size) if centre is None else centre
    share = np.full(len(targets), 1 / max(len(targets), 1)) if weight is None else weight / weight.sum()

    def value(theta: Doubles) -> float:
        scores = features @ theta
        losses = np.logaddexp(0, scores) - targets * scores
        return float(share @ losses + 0.5 * ridge * np.sum((theta - centre) ** 2))

    theta, current = centre.astype(np.float64), value(centre)
    for _ in range(_MAX_STEPS):
        chance = special.expit(features @ theta)
        gradient = features.T @ (share * (chance - targets)) + ridge * (theta - centre)
        curvature = (features * (share * chance * (1 - chance))[:, None]).T @ features + ridge * np.eye(size)
        step = np.linalg.lstsq(curvature, gradient, rcond=1e-14)[0]
        decrement = float(gradient @ step)
        if decrement <= _DECREMENT:
            return theta - step, value(theta - step)
        length = 1.0
        while (following := value(theta - length * step)) > current - 0.25 * length * decrement and length > 1e-10:
            length /= 2
        if length <= 1e-10:
            # Nothing is gained any more but rounding: the optimum to all digits that the objective has.
            if decrement < 1e-11:
                return theta, current
            break
        theta, current = theta - length * step, following
    else:
        if decrement < 1e-11:
            return theta, current
    raise CalibrationFitError(
        "No convergence",
        where="logistic regression",
        found=f"a Newton decrement of {decrement:.3g}",
        expected=f"one of at most {_DECREMENT:g}",
    )
