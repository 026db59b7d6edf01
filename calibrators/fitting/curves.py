"""Evaluate piecewise linear curves, one for many values or many for a few."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles


def interpolate(values: Doubles, inputs: Doubles, outputs: Doubles) -> Doubles:
    """Return the curve through the points (inputs, outputs) at ``values``, constant beyond its ends.

    Args:
        values: Any shape, finite.
        inputs: (M,) increasing, M ≥ 1.
        outputs: (M,).
    """
    result = np.asarray(np.interp(values, inputs, outputs))
    if not math.isfinite(np.vdot(result, result)):  # faster than to look at each
        failed = ~np.isfinite(result)
        # Between almost equal inputs the slope overflows, but the share of the way does not.
        sought = values[failed]
        right = np.clip(np.searchsorted(inputs, sought), 1, len(inputs) - 1)
        low, high = inputs[right - 1], inputs[right]
        share = np.clip((sought - low) / (high - low), 0, 1)
        result[failed] = (1 - share) * outputs[right - 1] + share * outputs[right]
    return result


class StackedInputs:
    """The inputs of C curves in one array: one search finds the places of a value in each.

    NumPy orders complex numbers by their real part, then by the imaginary one: by curve, then by input.

    Args:
        inputs: Increasing inputs (M,) of each curve.

    Attributes:
        starts: (C,) place of each curve's first input among all.
    """

    def __init__(self, inputs: list[Doubles]) -> None:
        sizes = [len(each) for each in inputs]
        self.starts = np.cumsum([0, *sizes[:-1]])
        self._curves = np.arange(len(inputs))
        self._keys = np.empty(sum(sizes), np.complex128)
        self._keys.real, self._keys.imag = np.repeat(self._curves, sizes), np.concatenate(inputs)

    def below(self, values: Doubles, side: Literal["left", "right"]) -> npt.NDArray[np.intp]:
        """Return how many inputs of its curve each value (n, C) exceeds; with "right", those equal to it as well."""
        sought = np.empty(values.shape, np.complex128)
        sought.real, sought.imag = self._curves, values
        return np.asarray(np.searchsorted(self._keys, sought, side) - self.starts)


class StackedSteps:
    """C step functions, evaluated together.

    Args:
        inputs: Increasing inputs (M,) of each function, at which it changes.
        values: Its values (M + 1,).
        side: "left" if the value at an input is that below it, "right" if it is that above.
    """

    def __init__(self, inputs: list[Doubles], values: list[Doubles], side: Literal["left", "right"]) -> None:
        self._search, self._side = StackedInputs(inputs), side
        self._values = np.concatenate(values)
        self._starts = self._search.starts + np.arange(len(values))

    def __call__(self, scores: Doubles) -> Doubles:
        """Return the functions at scores (n, C)."""
        return np.asarray(self._values[self._search.below(scores, self._side) + self._starts])


class StackedLines:
    """C curves, each as `interpolate` has it, evaluated together.

    Args:
        inputs: Increasing inputs (M,) of each curve, M ≥ 1.
        outputs: Outputs (M,) of each.
    """

    def __init__(self, inputs: list[Doubles], outputs: list[Doubles]) -> None:
        self._search = StackedInputs(inputs)
        self._inputs, self._outputs = np.concatenate(inputs), np.concatenate(outputs)
        with np.errstate(over="ignore"):
            slopes = [np.append(np.diff(y) / np.diff(x), 0.0) for x, y in zip(inputs, outputs, strict=True)]
        self._slopes = np.concatenate(slopes)

    def __call__(self, values: Doubles) -> Doubles | None:
        """Return the curves at values (n, C); None where slopes overflow."""
        place = np.maximum(self._search.below(values, "right") - 1, 0)
        place += self._search.starts
        with np.errstate(invalid="ignore"):
            result = self._slopes[place] * np.maximum(values - self._inputs[place], 0)
        result += self._outputs[place]
        return result if np.isfinite(result).all() else None


def _interp_rounds_each_step() -> bool:
    """Return whether `numpy.interp` was compiled without fused multiply-adds, which leave out a rounding."""
    (low, high), (first, last) = _PROBE
    values = np.linspace(low, high, 64, endpoint=False)
    line = (last - first) / (high - low) * (values - low) + first
    return bool((np.interp(values, [low, high], [first, last]) == line).all())


_PROBE = (0.1, 0.7), (0.2, 0.9)
INTERP_ROUNDS_EACH_STEP = _interp_rounds_each_step()
"""Whether `StackedLines` give what `interpolate` gives, to the last bit."""
