"""Evaluate piecewise linear curves."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import Doubles


def interpolate(values: Doubles, inputs: Doubles, outputs: Doubles) -> Doubles:
    """Return the curve through the points (inputs, outputs) at ``values``, constant beyond its ends.

    Args:
        values: Any shape, finite.
        inputs: (M,) increasing, M ≥ 1.
        outputs: (M,).
    """
    result = np.asarray(np.interp(values, inputs, outputs))
    failed = ~np.isfinite(result)
    if failed.any():
        # Between almost equal inputs the slope overflows, but the share of the way does not.
        sought = values[failed]
        right = np.clip(np.searchsorted(inputs, sought), 1, len(inputs) - 1)
        low, high = inputs[right - 1], inputs[right]
        share = np.clip((sought - low) / (high - low), 0, 1)
        result[failed] = (1 - share) * outputs[right - 1] + share * outputs[right]
    return result
