from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import brier_score, spiegelhalter_test


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_give_the_classical_statistic(weighted, world):
    logits, labels = world(400, 2, 1.3)
    probabilities = softmax(logits)
    weight = np.random.default_rng(0).uniform(0.1, 2, 400) if weighted else np.ones(400)
    p = probabilities[:, 1]
    z = np.sum(weight * (labels - p) * (1 - 2 * p)) / math.sqrt(np.sum(weight**2 * (1 - 2 * p) ** 2 * p * (1 - p)))
    found = spiegelhalter_test(probabilities, labels, weight)
    assert found.statistic == pytest.approx(z, rel=1e-10)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-10)


def test_the_moments_of_many_classes_by_enumeration():
    p = softmax(np.random.default_rng(0).normal(0, 1, (6, 4)))
    scores = np.array([[brier_score(row[None], [k]) for k in range(4)] for row in p])
    mean = np.sum(p * scores, axis=1)
    variance = np.sum(p * (scores - mean[:, None]) ** 2, axis=1)
    labels = np.array([0, 1, 2, 3, 0, 1])
    expected = np.sum(scores[np.arange(6), labels] - mean) / math.sqrt(variance.sum())
    assert spiegelhalter_test(p, labels).statistic == pytest.approx(expected, rel=1e-10)


def test_calibrated_worlds_are_rejected_at_the_nominal_rate():
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(1000):
        p = softmax(rng.normal(0, 1.5, (200, 3)))
        labels = (rng.random((200, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
        rejected += spiegelhalter_test(p, np.minimum(labels, 2), rng.uniform(0.1, 3, 200)).p_value < 0.05
    assert 28 <= rejected <= 75


def test_sign_says_overconfident(world):
    logits, labels = world(2000, 4, 2.0)
    assert spiegelhalter_test(softmax(logits), labels).statistic > 5
    assert spiegelhalter_test(softmax(logits / 6), labels).statistic < -5


def test_nothing_to_test_is_said_and_a_broken_certainty_rejects():
    for probabilities in ([[1.0, 0.0]], [[0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]):
        with pytest.raises(CalibrationDataError, match="Nothing to test"):
            spiegelhalter_test(probabilities, [0] * len(probabilities))
    assert spiegelhalter_test([[1.0, 0.0]], [1]).p_value == 0
