"""Checks of single numbers, with errors that name the number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from service.errors import InputValueError


def number(value: Any, where: str, *, above: float = -math.inf, below: float = math.inf, closed: str = "") -> float:
    """Return a finite number in an open interval; `closed` names the ends that belong to it ("below", "above").

    Raises:
        InputValueError: It is not a finite number in the interval.
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if fits:
        fits = above < value < below or (value == above and "below" in closed) or (value == below and "above" in closed)
    if not fits:
        left, right = "[" if "below" in closed else "(", "]" if "above" in closed else ")"
        raise InputValueError(
            f"{where} is out of range.",
            where=where,
            found=value,
            expected=f"a finite number in {left}{above:g}, {below:g}{right}",
            remedy="Correct it. Write shares and probabilities as 0.05, not as 5.",
        )
    return float(value)


def whole(value: Any, where: str, *, least: int) -> int:
    """Return an integer that is at least `least`.

    Raises:
        InputValueError: It is not an integer, or too small.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputValueError(
            f"{where} is out of range.",
            where=where,
            found=value,
            expected=f"an integer, at least {least}",
            remedy="Give numbers of rows as integers, and times in microseconds since the epoch, UTC.",
        )
    return int(value)
