from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import precision_recall_curve, refinement_aupr


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_scikit_learn(decimals, weighted, world):
    logits, labels = world(150, 2, 1.5)
    stated = np.round(softmax(logits)[:, 1], decimals)  # coarse probabilities tie
    weight = np.random.default_rng(0).uniform(0.1, 2, 150) if weighted else None
    curve = precision_recall_curve(np.stack([1 - stated, stated], 1), labels, 200, weight, positive=1)
    precision, recall, threshold = sklearn_metrics.precision_recall_curve(labels, stated, sample_weight=weight)
    np.testing.assert_allclose(curve.threshold, threshold[::-1])
    np.testing.assert_allclose(curve.precision, precision[-2::-1])
    np.testing.assert_allclose(curve.recall, recall[-2::-1])


def test_few_thresholds_of_many_are_spread_over_rows_and_over_the_top():
    rng = np.random.default_rng(1)
    stated = rng.permutation(20_000) / 20_000
    probabilities, labels = np.stack([1 - stated, stated], 1), (rng.random(20_000) < stated**50).astype(int)
    whole = precision_recall_curve(probabilities, labels, 1_000_000, positive=1)
    curve = precision_recall_curve(probabilities, labels, positive=1)
    assert len(whole.threshold) == 20_000
    assert 150 < len(curve.threshold) <= 200
    assert (np.diff(curve.threshold) < 0).all()
    assert (np.diff(curve.recall) >= 0).all()
    assert (curve.flagged[0], curve.flagged[-1], curve.recall[-1]) == (1 / 20_000, 1, 1)
    assert (curve.flagged < 0.01).sum() > 30
    assert np.diff(curve.flagged).max() < 0.011
    place = np.searchsorted(-whole.threshold, -curve.threshold)
    np.testing.assert_array_equal(curve.precision, whole.precision[place])
    gains = np.diff(whole.recall, prepend=0)
    assert gains @ whole.precision == pytest.approx(refinement_aupr(probabilities, labels, positive=1))


def test_without_a_class_the_right_answers_are_found():
    curve = precision_recall_curve([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], [0, 0, 0])
    assert curve.precision.tolist() == [1, 0.5, pytest.approx(2 / 3)]


@pytest.mark.parametrize("points", [10, 200])
def test_whole_weights_of_any_scale_are_repeated_rows(points, world):
    logits, labels = world(300, 3, 1.5)
    probabilities, times = softmax(logits), np.random.default_rng(2).integers(0, 4, 300)
    repeated = precision_recall_curve(np.repeat(probabilities, times, axis=0), np.repeat(labels, times), points)
    for scale in (1, 0.01):
        found = precision_recall_curve(probabilities, labels, points, scale * times)
        for name in ("threshold", "precision", "recall", "flagged"):
            np.testing.assert_allclose(getattr(found, name), getattr(repeated, name), rtol=1e-12)


def test_what_is_refused():
    with pytest.raises(CalibrationDataError, match="Recall is not defined"):
        precision_recall_curve([[0.9, 0.1]], [1])
    for points in (2, 2.5, 10**7, True):
        with pytest.raises(CalibrationDataError, match="points"):
            precision_recall_curve([[0.9, 0.1]], [0], points)
