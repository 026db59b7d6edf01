from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import calibration_slope_intercept
from tests.calibrators.two_classes import probabilities_of


@pytest.mark.parametrize("positive", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_scikit_learn(positive, weighted, world):
    logits, labels = world(900, 3, 2.0)
    probabilities = softmax(logits)
    weight = np.random.default_rng(0).uniform(0.1, 2, 900) if weighted else None
    chance = probabilities.max(axis=1) if positive is None else probabilities[:, positive]
    event = probabilities.argmax(axis=1) == labels if positive is None else labels == positive
    oracle = LogisticRegression(C=1e12, tol=1e-12, max_iter=1000).fit(special.logit(chance)[:, None], event, weight)
    line = calibration_slope_intercept(probabilities, labels, weight, positive=positive)
    assert line.slope == pytest.approx(oracle.coef_[0, 0], abs=1e-5)
    assert line.intercept == pytest.approx(oracle.intercept_[0], abs=1e-5)
    shifted = special.expit(special.logit(chance) + line.in_the_large)
    assert np.average(shifted, weights=weight) == pytest.approx(np.average(event, weights=weight), abs=1e-10)


def test_slope_is_the_temperature(world):
    logits, labels = world(50_000, 2, 2.0)
    line = calibration_slope_intercept(softmax(logits), labels, positive=1)
    assert abs(line.slope - 0.5) < 4 * line.slope_error
    assert abs(line.intercept) < 4 * line.intercept_error
    assert line.p_value < 1e-10


def test_errors_and_p_value_hold_over_worlds():
    rng = np.random.default_rng(0)
    slopes, errors, intercepts, rejected = [], [], [], 0
    for _ in range(400):
        x = rng.normal(0, 1.5, 400)
        weight = rng.uniform(0.2, 2, 400)
        line = calibration_slope_intercept(
            probabilities_of(special.expit(x)), (rng.random(400) < special.expit(x)).astype(int), weight, positive=1
        )
        slopes.append(line.slope)
        errors.append((line.slope_error, line.intercept_error))
        intercepts.append(line.intercept)
        rejected += line.p_value < 0.05
    assert np.std(slopes) == pytest.approx(np.mean([e[0] for e in errors]), rel=0.12)
    assert np.std(intercepts) == pytest.approx(np.mean([e[1] for e in errors]), rel=0.12)
    assert 6 <= rejected <= 40  # 20 expected; the sandwich is a little narrow at this size


@pytest.mark.parametrize("weighted", [False, True])
def test_the_p_value_keeps_its_level_with_ten_events_in_300(weighted):
    # Within 3.5 standard errors of a count of worlds; a Wald test has 0.03 (0.05 with weights) at 0.01.
    rng, values, worlds = np.random.default_rng(0), [], 600 if weighted else 1_200
    for _ in range(worlds):
        x = rng.normal(-3.8, 1, 300)
        event = (rng.random(300) < special.expit(x)).astype(int)
        weight = rng.exponential(size=300) + 0.2 if weighted else None
        try:
            values.append(
                calibration_slope_intercept(probabilities_of(special.expit(x)), event, weight, positive=1).p_value
            )
        except CalibrationDataError:  # no event, or separated: no line
            values.append(1.0)
    for level in (0.05, 0.01):
        error = np.sqrt(level * (1 - level) / worlds)
        assert np.mean(np.array(values) <= level) == pytest.approx(level, abs=3.5 * error)


@pytest.mark.parametrize("kind", ["importance", "frequency"])
def test_the_p_value_is_that_of_the_likelihood_ratio(kind, world):
    logits, labels = world(400, 2, 1.2)
    probabilities, times = softmax(logits), np.random.default_rng(0).integers(1, 4, 400)
    line = calibration_slope_intercept(probabilities, labels, times, positive=1, weight_kind=kind)
    odds, event = special.logit(probabilities[:, 1]), labels == 1

    def likelihood(z):
        return times @ (event * z - np.logaddexp(0, z))

    gain = 2 * (likelihood(line.intercept + line.slope * odds) - likelihood(odds))
    features, spread = np.stack([np.ones(400), odds], axis=1), probabilities[:, 0] * probabilities[:, 1] * times
    curvature = features.T @ (features * spread[:, None])
    scatter = curvature if kind == "frequency" else features.T @ (features * (spread * times)[:, None])
    widening = np.linalg.eigvals(np.linalg.solve(curvature, scatter)).mean()
    assert line.p_value == pytest.approx(stats.chi2.sf(gain / widening, 2), rel=1e-6)


def test_a_confidence_that_rounds_to_one_keeps_its_place(world):
    logits, labels = world(2000, 3, 8.0, spread=12.0)
    single = softmax(logits.astype(np.float32))
    assert (single.max(axis=1) == 1).any()
    exact = calibration_slope_intercept(softmax(logits), labels)
    assert calibration_slope_intercept(single, labels).slope == pytest.approx(exact.slope, rel=1e-4)


def test_certain_rows_that_came_true_say_nothing_and_those_that_failed_are_refused():
    probabilities = probabilities_of(np.array([0.3, 0.3, 0.6, 0.6, 0.6]))
    labels = [0, 1, 1, 0, 1]
    plain = calibration_slope_intercept(probabilities, labels, positive=1)
    certain = calibration_slope_intercept([*probabilities.tolist(), [0.0, 1.0]], [*labels, 1], positive=1)
    assert certain == plain
    with pytest.raises(CalibrationDataError, match=r"probabilities\[5\]"):
        calibration_slope_intercept([*probabilities.tolist(), [0.0, 1.0]], [*labels, 0], positive=1)
    ignored = calibration_slope_intercept(
        [*probabilities.tolist(), [0.0, 1.0]], [*labels, 0], [1, 1, 1, 1, 1, 0], positive=1
    )
    assert ignored.slope == pytest.approx(plain.slope, abs=1e-9)


@pytest.mark.parametrize(
    ("chance", "labels", "found"),
    [
        ([0.2, 0.8], [1, 1], "same outcome"),
        ([0.3, 0.3], [0, 1], "one log-odds"),
        ([0.2, 0.3, 0.8], [0, 0, 1], "separate"),
        ([0.2, 0.3, 0.8], [1, 1, 0], "separate"),
        ([1.0, 0.0], [1, 0], "same outcome"),
    ],
)
def test_where_no_line_exists_that_is_said(chance, labels, found):
    with pytest.raises(CalibrationDataError, match=found):
        calibration_slope_intercept(probabilities_of(np.array(chance)), labels, positive=1)
