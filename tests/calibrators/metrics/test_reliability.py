from __future__ import annotations

import numpy as np
import pytest

from calibrators import softmax
from calibrators.metrics import expected_calibration_error, reliability_curve


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_the_curve_is_what_the_error_sums(scheme, world):
    logits, labels = world(900, 4, 2.0)
    probabilities = softmax(logits)
    weight = np.random.default_rng(0).uniform(0.1, 2, 900)
    for weights in (None, weight):
        curve = reliability_curve(probabilities, labels, 12, scheme, weights)
        assert curve.share.sum() == pytest.approx(1)
        assert curve.count.sum() == 900
        assert ((curve.lower <= curve.confidence) & (curve.confidence <= curve.upper)).all()
        assert (curve.lower[1:] >= curve.upper[:-1]).all()
        error = curve.share @ np.abs(curve.confidence - curve.accuracy)
        assert error == pytest.approx(expected_calibration_error(probabilities, labels, 12, scheme, 1, weights))


def test_bins_without_rows_are_left_out():
    curve = reliability_curve([[0.9, 0.1], [0.51, 0.49]], [0, 1], bins=10)
    assert curve.count.tolist() == [1, 1]
    assert curve.lower.tolist() == [0.5, 0.8]
    assert curve.accuracy.tolist() == [0.0, 1.0]
