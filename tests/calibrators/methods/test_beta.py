from __future__ import annotations

import warnings

import numpy as np
import pytest
from betacal import BetaCalibration
from scipy import optimize, special

from calibrators import Beta, CalibrationDataError, Identity, Platt, Temperature, metrics


def objective(theta, scores, hits, weight=None):
    u = theta[0] * special.log_expit(scores) - theta[1] * special.log_expit(-scores) + theta[2]
    return np.average(np.logaddexp(0, u) - hits * u, weights=weight)


def bent(rows, a, b, c, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, rows)
    chance = special.expit(a * special.log_expit(scores) - b * special.log_expit(-scores) + c)
    return np.stack([np.zeros(rows), scores], axis=1), (rng.random(rows) < chance).astype(int)


@pytest.mark.parametrize(
    "truth", [(1.0, 1.0, 0.0), (0.4, 1.8, 0.5), (2.0, 0.0, 1.0), (-0.6, 1.5, 0.0), (1.5, -0.6, 0.0), (-1.0, -1.0, 0.3)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_reaches_the_optimum_with_a_and_b_not_negative(truth, weighted):
    logits, labels = bent(1500, *truth)
    weight = np.random.default_rng(1).uniform(0.1, 2, 1500) if weighted else None
    found = Beta().fit(logits, labels, weight).coefficients_[0]
    least = optimize.minimize(
        objective,
        [1.0, 1.0, 0.0],
        (logits[:, 1], labels, weight),
        method="L-BFGS-B",
        bounds=[(0, None), (0, None), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9},
    ).fun
    assert (found[:2] >= 0).all()
    assert objective(found, logits[:, 1], labels, weight) <= least + 1e-7


def test_finds_the_curve_that_made_the_labels():
    found = Beta().fit(*bent(100_000, 0.5, 1.6, 0.4)).coefficients_[0]
    np.testing.assert_allclose(found, [0.5, 1.6, 0.4], atol=0.08)


def test_never_behind_platt_on_its_own_rows():
    logits, labels = bent(3000, 0.5, 1.6, 0.4)
    beta, platt = (
        metrics.negative_log_likelihood(method().fit(logits, labels).predict_proba(logits), labels)
        for method in (Beta, Platt)
    )
    assert beta <= platt + 1e-7


def test_one_curve_for_each_class(world):
    logits, labels = world(800, 4, 1.6)
    calibrator = Beta().fit(logits, labels)
    temperature = Temperature().fit(logits, labels).temperature_
    for k in range(4):
        scores = logits[:, k] - special.logsumexp(np.delete(logits, k, axis=1), axis=1)

        def shrunk(theta, scores=scores, hits=labels == k):
            away = theta - [1 / temperature, 1 / temperature, 0]
            return objective(theta, scores, hits) + 2.5 / 800 * away @ away

        least = optimize.minimize(shrunk, [1.0, 1.0, 0.0], options={"gtol": 1e-9}).fun
        assert shrunk(calibrator.coefficients_[k]) <= least + 1e-7


@pytest.mark.parametrize(("rows", "classes"), [(50, 10), (50, 3), (500, 100)])
def test_few_labels_per_class_do_little_harm(rows, classes, world):
    excess = []
    for seed in range(10):
        logits, labels = world(rows + 2000, classes, 1.3, seed, spread=3.0)
        found = [
            metrics.negative_log_likelihood(method().fit(logits[:rows], labels[:rows]).predict_proba(logits[rows:]), y)
            for method in (Beta, Identity)
            for y in (labels[rows:],)
        ]
        excess.append(found[0] - found[1])
    # Curves of their own cost 1.1 nats with 50 rows of 10 classes.
    assert np.mean(excess) < 0.02


def test_separable_and_missing_classes_stay_finite(world):
    logits, _ = world(300, 2)
    for labels in (logits.argmax(axis=1), np.zeros(300, np.int64), np.ones(300, np.int64)):
        calibrator = Beta().fit(logits, labels)
        assert np.isfinite(calibrator.coefficients_).all()
        assert metrics.accuracy(calibrator.predict_proba(logits), labels) == 1


def test_small_probabilities_are_exact():
    calibrator = Beta().fit(*bent(1000, 1.0, 1.0, 0.0))
    probabilities = calibrator.predict_proba([[0.0, 200.0], [0.0, -200.0]])
    assert 0 < probabilities[0, 0] < 1e-60
    assert 0 < probabilities[1, 1] < 1e-60


def test_a_negative_coefficient_is_refused(world):
    document = Beta().fit(*world(100, 2)).to_dict()
    with pytest.raises(CalibrationDataError, match="negative"):
        Beta.from_dict({**document, "coefficients": [[-0.1, 1.0, 0.0]]})


@pytest.mark.parametrize(
    "truth", [(1.0, 1.0, 0.0), (0.4, 1.8, 0.5), (2.0, 0.0, 1.0), (-0.6, 1.5, 0.0), (1.5, -0.6, 0.0)]
)
def test_agrees_with_betacal(truth):
    logits, labels = bent(30_000, *truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it changes the filters for the whole process
        theirs = BetaCalibration(parameters="abm").fit(special.expit(logits[:, 1]), labels).calibrator_
    expected = [*theirs.map_[:2], theirs.lr_.intercept_[0]]
    ours = Beta().fit(logits, labels).coefficients_[0]
    np.testing.assert_allclose(ours, expected, atol=0.01)  # its optimiser stops early
    least = objective(expected, logits[:, 1], labels)
    assert objective(ours, logits[:, 1], labels) <= least + 1e-9


def test_rows_that_are_all_nearly_certain_do_not_make_the_other_end_steep():
    rng = np.random.default_rng(0)
    scores = rng.uniform(-60, -45, 400)
    logits = np.stack([np.zeros(400), scores], axis=1)
    found = Beta().fit(logits, np.zeros(400, np.int64))
    assert (found.predict_proba([[0.0, 1.0]]) < 1).all()
