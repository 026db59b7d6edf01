from __future__ import annotations

import numpy as np
import pytest

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import kolmogorov_smirnov_error


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("positive", [None, 1])
def test_by_brute_force_over_every_threshold(decimals, positive, world):
    logits, labels = world(150, 2, 2.0)
    first = np.round(softmax(logits)[:, 0], decimals)
    probabilities = np.stack([first, 1 - first], axis=1)
    confidence = probabilities.max(axis=1) if positive is None else probabilities[:, 1]
    event = probabilities.argmax(axis=1) == labels if positive is None else labels == 1
    for weight in (None, np.random.default_rng(0).integers(0, 4, 150)):
        w = np.ones(150) if weight is None else weight
        expected = max(abs(np.sum((w * (confidence - event))[confidence <= s])) for s in confidence) / w.sum()
        found = kolmogorov_smirnov_error(probabilities, labels, weight, positive=positive)
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_order_of_tied_rows_does_not_matter():
    probabilities = np.array([[0.7, 0.3]] * 10)
    for labels in ([0] * 7 + [1] * 3, [1] * 3 + [0] * 7):
        assert kolmogorov_smirnov_error(probabilities, labels) == pytest.approx(0, abs=1e-12)


def test_a_gap_of_one_sign_is_the_mean_gap():
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.85, 0.15]]
    assert kolmogorov_smirnov_error(probabilities, [1, 1, 1, 1]) == pytest.approx(0.875)


def test_small_for_a_calibrated_model(world):
    logits, labels = world(20_000, 3)
    assert kolmogorov_smirnov_error(softmax(logits), labels) < 1 / np.sqrt(20_000)


@pytest.mark.parametrize("options", [{"positive": 2}, {"positive": -1}, {"positive": 0, "predicted": [0]}])
def test_a_positive_class_that_is_none_is_refused(options):
    with pytest.raises(CalibrationDataError, match="positive"):
        kolmogorov_smirnov_error([[0.5, 0.5]], [0], **options)
