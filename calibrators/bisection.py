"""Bisection over the float64 numbers themselves: exact, without tolerance and without an inverse formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles

_INFINITY = int(np.array(np.inf).view(np.int64))


def first_numbers(reached: Callable[[Doubles], npt.NDArray[np.bool_]], count: int) -> Doubles:
    """Return the least numbers at which conditions hold, float64 (n,) from −inf to +inf; +inf where none does.

    Args:
        reached: Takes numbers (n,) and returns which of n conditions hold, bool (n,). A condition that holds at a
            number must hold at every larger one. +inf is never tried, −inf last.
        count: n.

    Example:
        >>> first_numbers(lambda numbers: numbers / 2 >= 1, 1)
        array([2.])
    """
    # Bisect integers with the order of the floats. Their span is below 2⁶⁴.
    low = np.full(count, -_INFINITY, np.int64)
    high = np.full(count, _INFINITY, np.int64)
    for _ in range(65):
        middle = low // 2 + high // 2 + (low & high & 1)
        yes = reached(_number(middle))
        high = np.where(yes, middle, high)
        low = np.where(yes, low, middle)
    return _number(high)


def _number(ordered: npt.NDArray[np.int64]) -> Doubles:
    return np.copysign(np.abs(ordered).view(np.float64), np.where(ordered < 0, -1.0, 1.0))
