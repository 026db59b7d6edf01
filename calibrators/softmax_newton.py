"""Newton's method for softmax regression with few parameters: one pass over the rows gives value, gradient and Hessian.

Few means that the Hessian is smaller than a row chunk. A step that no longer gains is halved, so that the value falls
from step to step; near the optimum the number of right digits doubles with each pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationFitError

Expansion: TypeAlias = tuple[float, Doubles, Doubles]

_MAX_STEPS = 200
# Half of a squared Newton decrement is what is still to gain. Below the first it is done; below the second a full step
# is believed to gain it, when the step before converged quadratically.
_DONE = 1e-14
_BELIEVED = 1e-15


def newton_minimum(derivatives: Callable[[Doubles], Expansion], start: Doubles) -> Doubles:
    """Minimises a strictly convex function.

    Args:
        derivatives: Value, gradient (D,) and positive definite Hessian (D, D) at θ (D,).
        start: First θ.

    Raises:
        CalibrationFitError: No convergence.
    """
    theta, length, decrement = start, 1.0, np.inf
    value, gradient, hessian = derivatives(theta)
    for _ in range(_MAX_STEPS):
        direction = -np.linalg.solve(hessian, gradient)
        before, decrement = decrement, -float(gradient @ direction)
        if decrement <= 2 * _DONE:
            return theta + direction
        # Quadratic convergence multiplies the exponent: decrements d₁, d₂ are followed by about d₂ (d₂ / d₁)².
        if length == 1.0 and decrement < 1e-3 * before < 1e-4 and decrement * (decrement / before) ** 2 < _BELIEVED:
            return theta + direction
        length = 1.0
        while True:
            following = derivatives(theta + length * direction)
            if following[0] <= value - 0.1 * length * decrement + 1e-15 * abs(value):
                break
            length /= 2
            if length < 1e-10:
                # Nothing is gained any more but rounding.
                if decrement < 1e-9:
                    return theta
                raise _no_convergence(decrement)
        theta = theta + length * direction
        value, gradient, hessian = following
    raise _no_convergence(decrement)


def _no_convergence(decrement: float) -> CalibrationFitError:
    return CalibrationFitError(
        "No convergence",
        where="softmax regression",
        found=f"a Newton decrement of {decrement:.3g}",
        expected=f"one of at most {2 * _DONE:g}",
    )
