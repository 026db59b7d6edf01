from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import calibration_test, kernel_calibration_test


def brute_force(probabilities, labels, weight, width):
    residuals = np.eye(probabilities.shape[1])[labels] - probabilities
    top = bottom = 0.0
    for i in range(len(labels)):
        for j in range(len(labels)):
            if i != j:
                share = weight[i] * weight[j]
                distance = np.linalg.norm(probabilities[i] - probabilities[j])
                top += share * math.exp(-distance / width) * (residuals[i] @ residuals[j])
                bottom += share
    return top / bottom


@pytest.mark.parametrize("weighted", [False, True])
def test_by_brute_force_over_pairs(weighted, world):
    logits, labels = world(60, 4, 2.0)
    weight = np.random.default_rng(0).uniform(0.1, 2, 60) if weighted else None
    found = kernel_calibration_test(softmax(logits), labels, weight, width=0.3)
    expected = brute_force(softmax(logits), labels, np.ones(60) if weight is None else weight, 0.3)
    assert found.error == pytest.approx(expected, abs=1e-12)


def test_the_level_is_exact_and_the_mean_is_zero():
    rng, values, errors = np.random.default_rng(0), [], []
    stated = rng.dirichlet([1, 1, 1], 60)
    weight = rng.uniform(0.1, 2, 60)
    for seed in range(1_000):
        labels = (rng.random((60, 1)) > np.cumsum(stated, axis=1)[:, :2]).sum(axis=1)
        test = kernel_calibration_test(stated, labels, weight, resamples=19, seed=seed)
        values.append(test.p_value)
        errors.append(test.error)
    assert np.mean(np.array(values) <= 0.05 + 1e-9) == pytest.approx(0.05, abs=3.5 * np.sqrt(0.05 / 1_000))
    assert stats.kstest(np.array(values) - rng.uniform(0, 0.05, 1_000), "uniform").pvalue > 0.001
    assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(1_000)


def test_it_sees_what_no_top_label_shows():
    # The top label holds; the other two classes are taken for each other.
    rng = np.random.default_rng(0)
    rest = rng.uniform(0, 0.4, 1_500)
    stated = np.stack([np.full(1_500, 0.6), rest, 0.4 - rest], axis=1)
    score = rng.random((1_500, 1))
    labels = (score > np.cumsum(stated[:, [0, 2, 1]], axis=1)[:, :2]).sum(axis=1)
    assert kernel_calibration_test(stated, labels).p_value == 1 / 200
    assert calibration_test(stated, labels).p_value > 0.01


def test_the_order_of_rows_does_not_fool_it():
    rng = np.random.default_rng(0)
    stated = rng.dirichlet([1, 1], 2_000)
    labels = (rng.random(2_000) > stated[:, 0]).astype(int)
    order = np.argsort(labels, kind="stable")
    assert kernel_calibration_test(stated[order], labels[order]).p_value > 0.01


def test_equal_rows_have_a_width_too():
    test = kernel_calibration_test([[0.5, 0.5]] * 10, [0, 1] * 5)
    assert test.width > 0
    assert -1 <= test.error <= 1


@pytest.mark.parametrize(
    ("options", "match"), [({"width": 0.0}, "width"), ({"resamples": 0}, "resamples"), ({"seed": -1}, "seed")]
)
def test_unknown_options_are_refused(options, match):
    with pytest.raises(CalibrationDataError, match=match):
        kernel_calibration_test([[0.5, 0.5]] * 2, [0, 1], **options)
