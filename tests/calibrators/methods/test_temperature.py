from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from calibrators import CalibrationDataError, Temperature, metrics, softmax


def mean_nll(logits, labels, temperature, weight=None):
    scaled = logits.astype(np.float64) / temperature
    shifted = scaled - scaled.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return np.average(losses, weights=weight)


def oracle(logits, labels, weight=None):
    found = minimize_scalar(
        lambda theta: mean_nll(logits, labels, math.exp(theta), weight),
        bounds=(math.log(0.05), math.log(20)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(found.x), found.fun


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_reaches_the_optimum(classes, temperature, dtype, world):
    logits, labels = world(1500, classes, temperature, dtype=dtype)
    calibrator = Temperature().fit(logits, labels)
    expected, least = oracle(logits, labels)
    assert calibrator.temperature_ == pytest.approx(expected, rel=1e-5)
    assert mean_nll(logits, labels, calibrator.temperature_) <= least + 1e-10
    assert not calibrator.at_bound_


@pytest.mark.parametrize("classes", [2, 5])
def test_reaches_the_optimum_after_a_warm_start(classes, world):
    logits, labels = world(30_000, classes, 1.7, dtype=np.float32)
    calibrator = Temperature().fit(logits, labels)
    assert mean_nll(logits, labels, calibrator.temperature_) <= oracle(logits, labels)[1] + 1e-10


def test_a_warm_start_on_misleading_rows_does_no_harm(world):
    logits, labels = world(20_000, 5, 1.7)
    labels[::10] = logits[::10].argmax(axis=1)  # every row that the warm start sees is right
    calibrator = Temperature().fit(logits, labels)
    assert mean_nll(logits, labels, calibrator.temperature_) <= oracle(logits, labels)[1] + 1e-10


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_equal_repeated_rows(classes, dtype, world):
    logits, labels = world(900, classes, 1.8, dtype=dtype)
    counts = np.random.default_rng(1).integers(0, 4, 900)
    weighted = Temperature().fit(logits, labels, counts)
    repeated = Temperature().fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-6)
    assert weighted.temperature_ == pytest.approx(oracle(logits, labels, counts)[0], rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_closed_form_of_two_classes(dtype):
    # k of n rows right at margin m: σ(m / T) = k / n, so T = m / log(k / (n − k)).
    logits = np.tile(np.array([[3.0, 0.0]], dtype), (10, 1))
    labels = np.array([0] * 8 + [1] * 2)
    assert Temperature().fit(logits, labels).temperature_ == pytest.approx(3 / math.log(4), rel=1e-6)


def test_two_classes_and_two_of_three_agree(world):
    logits, labels = world(800, 2, 1.6)
    wide = np.column_stack([logits, np.full(800, -np.inf)])
    narrow = Temperature().fit(logits, labels)
    assert Temperature().fit(wide, labels).temperature_ == pytest.approx(narrow.temperature_, rel=1e-7)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e-3])
def test_a_separable_set_goes_to_the_lower_bound(classes, dtype, scale, world):
    logits, _ = world(500, classes, dtype=dtype)
    logits *= dtype(scale)
    calibrator = Temperature().fit(logits, logits.argmax(axis=1))
    assert calibrator.temperature_ == 0.05
    assert calibrator.at_bound_


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_goes_to_the_upper_bound(classes, dtype, world):
    logits, _ = world(500, classes, dtype=dtype)
    calibrator = Temperature().fit(logits, logits.argmin(axis=1))
    assert calibrator.temperature_ == 20.0
    assert calibrator.at_bound_
    huge, labels = world(500, classes, dtype=dtype)
    assert Temperature().fit(huge * dtype(1e5), labels).at_bound_


@pytest.mark.parametrize("classes", [2, 3])
def test_where_temperature_changes_nothing_it_is_one(classes):
    constant = np.full((50, classes), 7.0)
    certain = np.full((50, classes), -np.inf)
    certain[:, 0] = 1.0
    for logits in (constant, certain):
        calibrator = Temperature().fit(logits, np.zeros(50, np.int64))
        assert calibrator.temperature_ == 1.0
        assert not calibrator.at_bound_


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_impossible_classes_are_left_out(classes, dtype, world):
    logits, labels = world(600, classes, 2.0, dtype=dtype)
    other = (labels + 1) % classes
    logits[np.arange(0, 600, 3), other[::3]] = -np.inf
    calibrator = Temperature().fit(logits, labels)
    low = np.maximum(logits, -1e4)
    assert calibrator.temperature_ == pytest.approx(oracle(low, labels)[0], rel=1e-5)
    assert calibrator.predict_proba(logits)[0, other[0]] == 0


@pytest.mark.parametrize("classes", [2, 4])
def test_an_impossible_label_is_refused(classes, world):
    logits, labels = world(300, classes)
    logits[77, labels[77]] = -np.inf
    with pytest.raises(CalibrationDataError, match=rf"logits\[77, {labels[77]}\]"):
        Temperature().fit(logits, labels)


def test_bounds_hold_in_documents(world):
    document = Temperature().fit(*world(100, 3)).to_dict()
    assert set(document) == {"method", "version", "classes", "temperature", "at_bound"}
    for bad in (0.049, 20.1, True, "1", None):
        with pytest.raises(CalibrationDataError, match="temperature"):
            Temperature.from_dict({**document, "temperature": bad})
    extreme = Temperature.from_dict(
        json.loads('{"method": "temperature", "version": 1, "classes": 2, "temperature": 20, "at_bound": true}')
    )
    assert extreme.temperature_ == 20.0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 6), rows=st.integers(1, 60), scale=st.floats(1e-3, 1e3))
def test_never_worse_than_identity_and_keeps_the_arg_max(seed, classes, rows, scale):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (rows, classes))
    labels = rng.integers(0, classes, rows)
    calibrator = Temperature().fit(logits, labels)
    assert 0.05 <= calibrator.temperature_ <= 20
    probabilities = calibrator.predict_proba(logits)
    assert (probabilities[np.arange(rows), logits.argmax(axis=1)] == probabilities.max(axis=1)).all()
    assert mean_nll(logits, labels, calibrator.temperature_) <= mean_nll(logits, labels, 1.0) + 1e-12
    assert mean_nll(logits, labels, calibrator.temperature_) <= oracle(logits, labels)[1] + 1e-9


def test_finds_the_temperature_that_made_the_labels(world):
    logits, labels = world(50_000, 10, 1.83)
    calibrator = Temperature().fit(logits, labels)
    assert calibrator.temperature_ == pytest.approx(1.83, rel=0.02)
    test_logits, test_labels = world(4000, 10, 1.83, seed=5)
    assert metrics.calibration_test(calibrator.predict_proba(test_logits), test_labels).p_value > 0.01
    assert metrics.calibration_test(softmax(test_logits), test_labels).p_value < 0.01


@pytest.mark.parametrize("classes", [3, 10, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_kept_and_rows_read_anew_give_the_same(classes, dtype, world, monkeypatch):
    logits, labels = world(900, classes, 1.7, dtype=dtype)
    weight = np.random.default_rng(0).uniform(0.1, 2, 900)
    kept = Temperature().fit(logits, labels, weight).to_dict()
    monkeypatch.setattr("calibrators.fitting.best_temperature._ENTRIES_KEPT", 0)
    assert Temperature().fit(logits, labels, weight).to_dict() == kept


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e5, 1e37])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_single_precision_costs_what_is_said(scale, dtype, world):
    logits, labels = world(700, 200, 1.5)
    with np.errstate(over="ignore"):
        logits = np.clip(logits * scale, -6e4, 6e4) if dtype == np.float16 else logits * scale
    logits = logits.astype(dtype)
    logits[::7, 3] = np.where(labels[::7] == 3, logits[::7, 3], -np.inf)
    calibrator = Temperature().fit(logits, labels)
    exact = calibrator.predict_proba(logits.astype(np.float64))
    found = calibrator.predict_proba(logits)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 2e-7
    large = exact > 1e-30
    logarithms = np.log(exact[large])
    assert (np.abs(np.log(found[large].astype(np.float64)) - logarithms) <= 3e-7 * np.abs(logarithms) + 2e-7).all()
    alone = np.concatenate([calibrator.predict_proba(logits[i : i + 1]) for i in range(len(logits))])
    np.testing.assert_array_equal(found, alone)
    np.testing.assert_array_equal(np.tile(found, (3, 1)), calibrator.predict_proba(np.tile(logits, (3, 1))))
    assert (found.argmax(axis=1) == logits.argmax(axis=1)).all()


WEIGHTS = {
    "large": np.full(600, 1e8),
    "largest": np.full(600, 1e100),
    "smallest": np.full(600, 1e-100),
    "far apart": 10.0 ** np.random.default_rng(0).uniform(-100, 100, 600),
    "one row": np.append(1e100, np.full(599, 1e-100)),
}


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e300, 1e307, 1e-300])
@pytest.mark.parametrize("case", WEIGHTS)
def test_neither_large_logits_nor_unlike_weights_overflow(case, scale, classes, world):
    logits, labels = world(600, classes, 1.5)
    found = Temperature().fit(logits * scale, labels, WEIGHTS[case])
    # Where one unit of the logits is far beyond 1 / T, one row that is wrong decides, however little it weighs.
    if scale >= 1e300 and case != "one row":
        assert (found.temperature_, found.at_bound_) == (20.0, True)
    if scale == 1.0:
        share = WEIGHTS[case] / WEIGHTS[case].max()
        assert mean_nll(logits, labels, found.temperature_, share) <= oracle(logits, labels, share)[1] + 1e-9


class Logits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose inputs are its logits."""

    def __init__(self, classes=10):
        self.classes = classes
        self.classes_ = np.arange(classes)

    def fit(self, inputs, labels):
        return self

    def predict(self, inputs):
        return inputs.argmax(axis=1)

    def decision_function(self, inputs):
        return inputs


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.5])
def test_agrees_with_scikit_learn(temperature, world):
    logits, labels = world(2000, 10, temperature)
    theirs = CalibratedClassifierCV(FrozenEstimator(Logits()), method="temperature").fit(logits, labels)
    ours = Temperature().fit(logits, labels)
    inverse = theirs.calibrated_classifiers_[0].calibrators[0].beta_
    assert ours.temperature_ == pytest.approx(1 / inverse, rel=1e-4)
    np.testing.assert_allclose(ours.predict_proba(logits), theirs.predict_proba(logits), atol=1e-4)
    own = np.arange(len(labels)), labels
    assert -np.log(ours.predict_proba(logits)[own]).mean() <= -np.log(theirs.predict_proba(logits)[own]).mean() + 1e-12
