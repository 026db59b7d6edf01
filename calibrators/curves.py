"""Reading piecewise linear curves."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import Doubles


def interpolate(values: Doubles, inputs: Doubles, outputs: Doubles) -> Doubles:
    """The curve through the points (inputs, outputs) at ``values``, constant beyond its ends.

    Args:
        values: Any shape, finite.
        inputs: (M,) increasing, M ≥ 1.
        outputs: (M,).

    Returns:
        Of the shape of ``values``, between the outputs on either side.
    """
    result = np.asarray(np.interp(values, inputs, outputs))
    failed = ~np.isfinite(result)
    if failed.any():
        # Between inputs that are almost nothing apart the slope overflows, the share of the way does not.
        sought = values[failed]
        right = np.clip(np.searchsorted(inputs, sought), 1, len(inputs) - 1)
        low, high = inputs[right - 1], inputs[right]
        share = np.clip((sought - low) / (high - low), 0, 1)
        result[failed] = (1 - share) * outputs[right - 1] + share * outputs[right]
    return result
