"""A quasi-Newton method that starts from a good guess of the Hessian."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from calibrators.arrays import Doubles

Expansion: TypeAlias = tuple[float, Doubles, Doubles]
Pairs: TypeAlias = deque[tuple[Doubles, Doubles]]

_MEMORY = 20
_MAX_STEPS = 500
_SHORTEST = 1e-6


class QuasiNewton:
    """Limited-memory BFGS for a strictly convex function, resumable; every step starts with the full length.

    If values differ by rounding only, steps are judged by slopes (Hager, Zhang 2005, A new conjugate gradient method
    with guaranteed descent and an efficient line search, section 3).

    Args:
        expansion: Value, gradient (D,), and a description of the Hessian at θ (D,).
        inverse: Multiplies a vector (D,) by the inverse of the described Hessian.
        theta: First θ.

    Attributes:
        theta: Current θ.

    References:
        Nocedal, Wright (2006), Numerical optimization, algorithm 7.4.
    """

    def __init__(
        self, expansion: Callable[[Doubles], Expansion], inverse: Callable[[Doubles, Doubles], Doubles], theta: Doubles
    ) -> None:
        self.theta = theta
        self._expansion = expansion
        self._inverse = inverse
        self._pairs: Pairs = deque(maxlen=_MEMORY)

    def run(self, tolerance: float) -> float:
        """Continue until the gradient's norm is at most ``tolerance`` or nothing is gained; return that norm."""
        value, gradient, hessian = self._expansion(self.theta)
        for _ in range(_MAX_STEPS):
            norm = float(np.linalg.norm(gradient))
            if norm <= tolerance:
                break
            direction = -quasi_newton_step(gradient, self._pairs, partial(self._inverse, hessian))
            slope = float(gradient @ direction)
            length = 1.0
            while length > _SHORTEST:
                following = self._expansion(self.theta + length * direction)
                reached = float(following[1] @ direction)
                gained = following[0] <= value + 1e-4 * length * slope
                flat = abs(reached) <= 0.8 * abs(slope) and following[0] <= value + 1e-6 * abs(value)
                if gained or flat:
                    break
                length *= min(max(slope / (slope - reached), 0.1), 0.7) if reached > 0 else 0.5
            else:
                break
            move, change = length * direction, following[1] - gradient
            if float(move @ change) > 0:
                self._pairs.append((move, change))
            self.theta = self.theta + move
            value, gradient, hessian = following
        return float(np.linalg.norm(gradient))


def quasi_newton_step(gradient: Doubles, pairs: Pairs, inverse: Callable[[Doubles], Doubles]) -> Doubles:
    """Return the inverse Hessian times the gradient (D,), as far as the last steps have shown it.

    Args:
        gradient: (D,).
        pairs: Moves (D,) and the changes of the gradient along them, oldest first.
        inverse: Multiplies a vector (D,) by a first guess of the inverse Hessian.
    """
    step, shares = gradient.copy(), []
    for move, change in reversed(pairs):
        share = float(move @ step) / float(move @ change)
        step -= share * change
        shares.append(share)
    step = inverse(step)
    for (move, change), share in zip(pairs, reversed(shares), strict=True):
        step += move * (share - float(change @ step) / float(move @ change))
    return step
