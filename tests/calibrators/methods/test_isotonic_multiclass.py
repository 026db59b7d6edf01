from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from calibrators import CalibrationDataError, Isotonic, IsotonicMulticlass, metrics, softmax


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_is_one_isotonic_regression_over_all_entries(classes, weighted, world):
    logits, labels = world(500, classes, 1.7)
    weight = np.random.default_rng(1).uniform(0.1, 2, 500) if weighted else None
    fresh = world(300, classes, seed=5)[0]
    oracle = IsotonicRegression(out_of_bounds="clip").fit(
        softmax(logits).ravel(),
        np.eye(classes)[labels].ravel(),
        None if weight is None else np.repeat(weight, classes),
    )
    raw = softmax(fresh)
    expected = oracle.predict(raw.ravel()).reshape(raw.shape) + 1e-9 * raw
    expected /= expected.sum(axis=1, keepdims=True)
    found = IsotonicMulticlass().fit(logits, labels, weight).predict_proba(fresh)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_arg_max_even_on_plateaus(classes, dtype, world):
    logits, labels = world(200, classes, 3.0, dtype=dtype)
    fresh = world(5000, classes, seed=3, dtype=dtype, spread=0.2)[0]
    calibrator = IsotonicMulticlass().fit(logits, labels)
    for values in (logits, fresh, np.round(fresh, 1), fresh * 1e-4):
        np.testing.assert_array_equal(calibrator.predict_proba(values).argmax(axis=1), values.argmax(axis=1))


def test_needs_fewer_labels_than_one_curve_for_each_class(world):
    logits, labels = world(4300, 10, 2.0)
    fit, test = slice(0, 300), slice(300, 4300)
    one, many = (
        metrics.brier_score(method().fit(logits[fit], labels[fit]).predict_proba(logits[test]), labels[test])
        for method in (IsotonicMulticlass, Isotonic)
    )
    assert one < many


def test_impossible_classes_teach_nothing_and_stay_impossible(world):
    logits, labels = world(400, 3, 1.5)
    blocked = np.concatenate([logits, np.full((400, 1), -np.inf)], axis=1)
    found = IsotonicMulticlass().fit(blocked, labels).predict_proba(blocked)
    np.testing.assert_array_equal(found[:, 3], 0)
    np.testing.assert_allclose(found[:, :3], IsotonicMulticlass().fit(logits, labels).predict_proba(logits), atol=1e-12)


def test_contradictory_documents_are_refused(world):
    document = IsotonicMulticlass().fit(*world(200, 3)).to_dict()
    inputs, outputs = document["inputs"], document["outputs"]
    for change in (
        {"inputs": inputs[::-1]},
        {"outputs": outputs[::-1]},
        {"outputs": outputs[:-1]},
        {"inputs": [], "outputs": []},
        {"classes": 1},
    ):
        with pytest.raises(CalibrationDataError):
            IsotonicMulticlass.from_dict({**document, **change})


def test_inputs_almost_nothing_apart_still_join():
    calibrator = IsotonicMulticlass()
    calibrator.classes_, calibrator.inputs_ = 2, np.array([0.0, 1e-320, 1.0])
    calibrator.outputs_ = np.array([0.0, 0.5, 1.0])
    found = calibrator.predict_proba([[0.0, np.log(5e-321)], [0.0, -np.inf], [0.0, 0.0]])
    np.testing.assert_allclose(found, [[0.8, 0.2], [1.0, 0.0], [0.5, 0.5]], atol=1e-3)
