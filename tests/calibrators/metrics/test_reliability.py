from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

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


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_are_those_of_clopper_and_pearson(level, world):
    logits, labels = world(300, 3, 2.0)
    curve = reliability_curve(softmax(logits), labels, 12, "mass", level=level)
    for count, accuracy, low, high in zip(curve.count, curve.accuracy, curve.low, curve.high, strict=True):
        expected = stats.binomtest(round(count * accuracy), count).proportion_ci(level, method="exact")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_intervals_of_bins_without_an_error_and_without_a_hit():
    curve = reliability_curve([[0.9, 0.1]] * 3 + [[0.6, 0.4]] * 3, [0] * 3 + [1] * 3, bins=5)
    assert (curve.low[0], curve.high[1]) == (0, 1)
    assert (curve.high[0], curve.low[1]) == pytest.approx((1 - 0.025 ** (1 / 3), 0.025 ** (1 / 3)))


def test_weights_in_intervals_are_frequencies_or_worth_fewer_rows(world):
    logits, labels = world(400, 3, 2.0)
    probabilities = softmax(logits)
    times = np.random.default_rng(1).integers(1, 5, 400)
    found = reliability_curve(probabilities, labels, 5, sample_weight=times, weight_kind="frequency")
    repeated = reliability_curve(np.repeat(probabilities, times, axis=0), np.repeat(labels, times), 5)
    weighted = reliability_curve(probabilities, labels, 5, sample_weight=times)
    for name in ("accuracy", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(repeated, name), atol=1e-12)
    assert (weighted.high - weighted.low > found.high - found.low).all()
    np.testing.assert_allclose(
        reliability_curve(probabilities, labels, 5, sample_weight=0.01 * times).low, weighted.low, rtol=1e-9
    )
