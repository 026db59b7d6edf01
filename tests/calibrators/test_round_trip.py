"""Documents restore what was fitted, to the last bit; damaged ones are refused."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from calibrators import CALIBRATORS, CalibrationDataError, CalibrationFitError, from_dict

EVERY = pytest.mark.parametrize("name", CALIBRATORS)


def fitted(name, logits, labels, weight=None):
    return CALIBRATORS[name]().fit(logits, labels, weight)


@EVERY
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_json_round_trip_is_exact(name, classes, dtype, world):
    logits, labels = world(500, classes, 1.5, dtype=dtype)
    calibrator = fitted(name, logits, labels)
    document = calibrator.to_dict()
    assert document["method"] == name
    assert document["version"] == 1
    restored = from_dict(json.loads(json.dumps(document, allow_nan=False)))
    assert type(restored) is type(calibrator)
    assert restored.to_dict() == document
    fresh = world(200, classes, seed=9, dtype=dtype)[0]
    np.testing.assert_array_equal(restored.predict_proba(fresh), calibrator.predict_proba(fresh))
    labels_before, confidence_before = calibrator.top_label(fresh, calibrator.predict_proba(fresh))
    labels_after, confidence_after = restored.top_label(fresh, restored.predict_proba(fresh))
    np.testing.assert_array_equal(labels_before, labels_after)
    np.testing.assert_array_equal(confidence_before, confidence_after)


@EVERY
def test_a_damaged_document_is_refused(name, world):
    document = fitted(name, *world(300, 3)).to_dict()
    damaged = [None, [], "temperature", {}, {**document, "version": 2}, {**document, "version": True}]
    damaged += [{**document, "version": other} for other in (1.0, "1", 10**400, 10**5000)]
    damaged += [{**document, "method": "magic"}, {**document, "method": None}, {**document, "surplus": 1}]
    for field, value in document.items():
        if field != "weight_kind":
            damaged.append({key: kept for key, kept in document.items() if key != field})
        if field != "found_off_diagonal":  # where null stands for temperature scaling
            damaged.append({**document, field: None})
        damaged += [{**document, field: bad} for bad in ("x", {}, float("nan"), float("inf"), -1, [[None]], [])]
        if isinstance(value, int | float):
            damaged += [{**document, field: bad} for bad in (10**400, 10**5000, -(10**400))]
        if isinstance(value, list):
            damaged += [{**document, field: bad} for bad in (value[:-1], [*value, value[-1]], [*value[:-1], "x"])]
            damaged += [{**document, field: [*value[:-1], bad]} for bad in (10**400, [10**400])]
    for content in damaged:
        with pytest.raises(CalibrationDataError) as caught:
            from_dict(content)
        assert caught.value.found
        assert caught.value.expected


@EVERY
def test_fingerprint_is_the_digest_of_the_document(name, world):
    logits, labels = world(300, 3)
    calibrator = fitted(name, logits, labels)
    document = json.loads(json.dumps(calibrator.to_dict()))
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert calibrator.fingerprint() == hashlib.sha256(text.encode()).hexdigest()
    assert from_dict(document).fingerprint() == calibrator.fingerprint()
    if name != "identity":
        other = fitted(name, logits[:150], labels[:150])
        assert other.fingerprint() != calibrator.fingerprint()
        with pytest.raises(CalibrationFitError, match="not fitted"):
            CALIBRATORS[name]().fingerprint()


@EVERY
def test_a_document_of_another_method_is_refused(name, world):
    document = fitted(name, *world(300, 3)).to_dict()
    other = next(cls for key, cls in CALIBRATORS.items() if key != name)
    with pytest.raises(CalibrationDataError, match="method"):
        other.from_dict(document)
