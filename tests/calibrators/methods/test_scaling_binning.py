from __future__ import annotations

import numpy as np
import pytest

from calibrators import CalibrationDataError, ScalingBinning, Temperature, metrics, softmax
from calibrators.binning import bin_edges


@pytest.mark.parametrize("weighted", [False, True])
def test_by_brute_force(weighted, world):
    logits, labels = world(600, 4, 1.8)
    weight = np.random.default_rng(0).uniform(0.1, 2, 600) if weighted else None
    calibrator = ScalingBinning(bins=8).fit(logits, labels, weight)
    scaling = Temperature().fit(logits, labels, weight)
    assert calibrator.temperature_ == scaling.temperature_
    scaled = softmax((logits - logits.max(axis=1, keepdims=True)) / scaling.temperature_)
    confidence, top = scaled.max(axis=1), scaled.argmax(axis=1)
    np.testing.assert_allclose(calibrator.edges_, bin_edges(confidence, 8, "mass", weight), atol=1e-5)
    result = calibrator.predict_proba(logits)
    for i in range(600):
        b = next(j for j in range(8) if confidence[i] <= calibrator.edges_[j + 1])
        inside = (confidence <= calibrator.edges_[b + 1] + 1e-12) & (confidence > calibrator.edges_[b] + 1e-12)
        value = np.average(confidence[inside], weights=None if weight is None else weight[inside])
        rest = np.delete(scaled[i], top[i])
        assert result[i, top[i]] == pytest.approx(value, abs=1e-12)
        np.testing.assert_allclose(np.delete(result[i], top[i]), (1 - value) * rest / rest.sum(), atol=1e-12)


def test_few_values_and_the_raw_label(world):
    logits, labels = world(3000, 3, 4.0)
    calibrator = ScalingBinning(bins=5).fit(logits, labels)
    top, confidence = calibrator.top_label(logits, calibrator.predict_proba(logits))
    np.testing.assert_array_equal(top, logits.argmax(axis=1))
    assert set(confidence) == set(calibrator.values_)
    assert metrics.expected_calibration_error(calibrator.predict_proba(logits), labels, predicted=top) < 0.05


def test_contradictory_documents_are_refused(world):
    document = ScalingBinning(bins=4).fit(*world(300, 3)).to_dict()
    for change in (
        {"edges": document["edges"][::-1]},
        {"edges": document["edges"][:-1]},
        {"values": document["values"][:-1]},
        {"bins": 3},
        {"temperature": 30.0},
    ):
        with pytest.raises(CalibrationDataError):
            ScalingBinning.from_dict({**document, **change})
    with pytest.raises(CalibrationDataError, match="bins"):
        ScalingBinning(bins=0)
