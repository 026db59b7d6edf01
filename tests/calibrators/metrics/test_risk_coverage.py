from __future__ import annotations

import numpy as np
import pytest

from calibrators import softmax
from calibrators.metrics import area_under_risk_coverage, excess_area_under_risk_coverage


def pairs(confidence, correct):
    confidence = np.asarray(confidence, float)
    return np.stack([confidence, 1 - confidence], axis=1), 1 - np.asarray(correct, int)


def usual_sum(confidence, correct):
    order = np.argsort(-confidence, kind="stable")
    return np.mean(np.cumsum(~correct[order]) / np.arange(1, len(order) + 1))


def test_is_the_limit_of_the_usual_sum_over_rows_many_times_repeated():
    confidence, correct = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
    # Copies of a row are mixed evenly with those of equal confidence only: there is one row each here.
    expected = usual_sum(np.repeat(confidence, 100_000), np.repeat(correct, 100_000))
    probabilities, labels = pairs(confidence, correct)
    assert area_under_risk_coverage(probabilities, labels) == pytest.approx(expected, abs=1e-5)


def test_near_the_usual_sum_on_many_rows(world):
    logits, labels = world(20_000, 4, 1.5)
    probabilities = softmax(logits)
    expected = usual_sum(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    assert area_under_risk_coverage(probabilities, labels) == pytest.approx(expected, abs=1e-3)


def test_rows_of_equal_confidence_in_the_mean_over_their_orders():
    # Ties: the mean over random orders of many copies.
    rng = np.random.default_rng(0)
    confidence = np.repeat([0.9, 0.7], 20_000)
    correct = np.concatenate([np.arange(20_000) % 4 > 0, np.arange(20_000) % 2 > 0])
    shuffled = np.concatenate([rng.permutation(correct[:20_000]), rng.permutation(correct[20_000:])])
    probabilities, labels = pairs([0.9] * 4 + [0.7] * 4, [0, 1, 1, 1, 0, 1, 0, 1])
    assert area_under_risk_coverage(probabilities, labels) == pytest.approx(usual_sum(confidence, shuffled), abs=5e-3)
    assert area_under_risk_coverage(probabilities[::-1], labels[::-1]) == pytest.approx(
        area_under_risk_coverage(probabilities, labels), abs=1e-12
    )


def test_excess_is_zero_for_a_perfect_order_and_positive_otherwise(world):
    probabilities, labels = pairs(np.linspace(0.99, 0.6, 50), np.arange(50) < 35)
    assert excess_area_under_risk_coverage(probabilities, labels) == pytest.approx(0, abs=1e-12)
    logits, labels = world(500, 4, 1.5)
    assert 0.01 < excess_area_under_risk_coverage(softmax(logits), labels) < 0.5


def test_all_right_or_all_wrong():
    probabilities = [[0.9, 0.1], [0.8, 0.2]]
    assert area_under_risk_coverage(probabilities, [0, 0]) == 0
    assert area_under_risk_coverage(probabilities, [1, 1]) == pytest.approx(1)
    assert excess_area_under_risk_coverage(probabilities, [0, 0]) == 0
    assert excess_area_under_risk_coverage(probabilities, [1, 1]) == pytest.approx(0, abs=1e-12)
