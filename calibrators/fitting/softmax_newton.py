"""Newton's method for softmax regression with few parameters: one pass over the rows gives value, gradient and Hessian.

The Hessian is smaller than a row chunk. A step without gain is halved, so that the value falls from step to step; near
the optimum each pass doubles the number of right digits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationFitError, no_convergence
from calibrators.fitting.quasi_newton import Expansion, Pairs, quasi_newton_step

_MAX_STEPS = 200
_MEMORY = 20
# Half of a Newton decrement is the remaining gain; the last two predict that after the next step.
_DONE = 1e-13


def newton_minimum(
    derivatives: Callable[[Doubles], Expansion],
    start: Doubles,
    slopes: Callable[[Doubles], tuple[float, Doubles]] | None = None,
) -> Doubles:
    """Return the minimum of a strictly convex function.

    Args:
        derivatives: Value, gradient (D,) and positive definite Hessian (D, D) at θ (D,).
        start: First θ.
        slopes: Value and gradient alone, if they cost much less: a Hessian is then kept as long as each step cuts the
            remaining gain by ten.

    Raises:
        CalibrationFitError: No convergence.
    """
    theta, length, decrement = start, 1.0, np.inf
    value, gradient, hessian = derivatives(theta)
    inverse, fresh = np.linalg.inv(hessian), True
    pairs: Pairs = deque(maxlen=_MEMORY)
    for _ in range(_MAX_STEPS):
        direction = -quasi_newton_step(gradient, pairs, inverse.__matmul__)
        before, decrement = decrement, -float(gradient @ direction)
        if not fresh and (length < 1.0 or not decrement < 0.1 * before):
            value, gradient, hessian = derivatives(theta)
            inverse, fresh = np.linalg.inv(hessian), True
            pairs.clear()
            direction = -(inverse @ gradient)
            decrement = -float(gradient @ direction)
        # Decrements d₁, d₂ are followed by about d₂ (d₂ / d₁)² with a fresh Hessian, and at most d₂ (d₂ / d₁) without.
        foreseen = decrement
        if length == 1.0 and decrement < 1e-3 * before < 1e-4:
            foreseen *= (decrement / before) ** (2 if fresh else 1)
        if foreseen <= _DONE:
            return theta + direction
        length = 1.0
        while True:
            move = length * direction
            reached, slope, *rest = derivatives(theta + move) if slopes is None else slopes(theta + move)
            if reached <= value - 0.1 * length * decrement + 1e-15 * (1 + abs(value)):
                break
            length /= 2
            if length < 1e-10:
                # The rest is rounding.
                if decrement < 1e-9:
                    return theta
                raise _no_convergence(decrement)
        fresh = bool(rest)
        if fresh:
            inverse = np.linalg.inv(rest[0])
        elif float(move @ (slope - gradient)) > 0:
            pairs.append((move, slope - gradient))
        theta, value, gradient = theta + move, reached, slope
    raise _no_convergence(decrement)


def _no_convergence(decrement: float) -> CalibrationFitError:
    found = f"a Newton decrement of {decrement:.3g}"
    return no_convergence("softmax regression", found, f"one of at most {_DONE:g}")
