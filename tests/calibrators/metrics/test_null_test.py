from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import calibration_test, expected_calibration_error
from calibrators.metrics.null_test import null_errors
from calibrators.metrics.rows import top_labels


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("norm", [1, 2, "max"])
def test_the_null_is_the_error_of_calibrated_worlds(scheme, norm, world):
    logits, labels = world(300, 4, 1.0)
    probabilities = softmax(logits)
    result = calibration_test(probabilities, labels, 10, scheme, norm, resamples=4000)
    rng = np.random.default_rng(1)
    drawn = [np.argmax(logits + rng.gumbel(size=logits.shape), axis=1) for _ in range(1500)]
    errors = np.array([expected_calibration_error(probabilities, truth, 10, scheme, norm) for truth in drawn])
    assert result.null_mean == pytest.approx(errors.mean(), abs=4 * errors.std() / np.sqrt(1500))
    assert result.null_quantile == pytest.approx(np.quantile(errors, 0.95), rel=0.06)
    assert result.error == expected_calibration_error(probabilities, labels, 10, scheme, norm)


def test_the_exact_null_of_one_bin():
    # n rows at confidence ½ in one bin: the error is |k / n − ½| with k binomial.
    labels = np.zeros(20, int)
    result = calibration_test([[0.5, 0.5]] * 20, labels, bins=1, resamples=20_000)
    k = np.arange(21)
    chances = stats.binom.pmf(k, 20, 0.5)
    assert result.null_mean == pytest.approx(chances @ np.abs(k / 20 - 0.5), rel=0.02)
    assert result.p_value == pytest.approx(1 / 20_001)


@pytest.mark.parametrize("kind", [None, "importance", "frequency"])
def test_the_level_is_exact(kind, world):
    # P(p ≤ α) for 99 draws is α exactly where α · 100 is whole and errors do not tie: counted over 1,000 calibrated
    # worlds, within 3.5 standard errors, at three levels, and uniform by a Kolmogorov–Smirnov test.
    rng, values, worlds = np.random.default_rng(0), [], 1_000
    logits, _ = world(200, 3, 1.0)
    stated = softmax(logits)
    predicted = np.zeros(200, int)
    weight = None if kind is None else rng.integers(1, 5, 200).astype(float)
    for seed in range(worlds):
        right = rng.random(200) < stated[:, 0]
        if kind == "frequency":  # each copy comes out on its own
            times = weight.astype(int)
            right = rng.binomial(times, stated[:, 0])
            rows = np.concatenate([stated, stated]), np.repeat([0, 1], 200), np.concatenate([right, times - right])
            chosen = np.zeros(400, int)
        else:
            rows, chosen = (stated, np.where(right, 0, 1), weight), predicted
        options = {"weight_kind": kind or "importance", "resamples": 99, "seed": seed}
        test = calibration_test(*rows[:2], 10, sample_weight=rows[2], predicted=chosen, **options)
        values.append(test.p_value)
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(values) <= level + 1e-9) == pytest.approx(level, abs=3.5 * np.sqrt(level / worlds))
    assert stats.kstest(np.array(values) - rng.uniform(0, 0.01, worlds), "uniform").pvalue > 0.001


def test_miscalibration_is_found(world):
    logits, labels = world(2000, 5, 2.0)
    assert calibration_test(softmax(logits), labels).p_value < 0.002
    assert calibration_test(softmax(logits / 2), labels).p_value > 0.01


def test_rows_drawn_together_give_the_same_null(world):
    logits, labels = world(6000, 3, 1.0, spread=4.0)
    probabilities = softmax(logits)
    together = null_errors(top_labels(probabilities, labels), 15, "width", 1, 1000, 0)
    singly = null_errors(top_labels(probabilities, labels, np.ones(6000)), 15, "width", 1, 1000, 1)
    assert together.mean() == pytest.approx(singly.mean(), abs=4 * singly.std() * np.sqrt(2 / 1000))
    assert together.std() == pytest.approx(singly.std(), rel=0.1)


def test_weights_widen_the_null(world):
    logits, labels = world(500, 3, 1.0)
    weight = np.where(np.arange(500) % 10 == 0, 20.0, 1.0)
    plain = calibration_test(softmax(logits), labels)
    weighted = calibration_test(softmax(logits), labels, sample_weight=weight)
    assert weighted.null_mean > 1.3 * plain.null_mean


def test_the_same_seed_gives_the_same_answer(world):
    logits, labels = world(200, 3)
    assert calibration_test(softmax(logits), labels, seed=3) == calibration_test(softmax(logits), labels, seed=3)


def test_certain_and_right_is_not_rejected():
    result = calibration_test([[1.0, 0.0]] * 50, np.zeros(50, int), resamples=100)
    assert result.error == result.null_mean == 0
    assert result.p_value == 1.0


@pytest.mark.parametrize("options", [{"resamples": 0}, {"seed": -1}, {"norm": "l1"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(CalibrationDataError, match=next(iter(options))):
        calibration_test([[0.5, 0.5]], [0], **options)
