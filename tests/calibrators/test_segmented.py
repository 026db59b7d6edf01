"""A calibrator for each segment is the method fitted on that segment's rows alone."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from calibrators import CALIBRATORS, CalibrationDataError, CalibrationFitError, SegmentedCalibrator, from_dict
from calibrators.documents import document_digest


@pytest.fixture(scope="module")
def rows(world):
    """Three segments of 400 rows with temperatures 1, 2 and 4, in mixed order, and one of 30."""
    parts = [world(400, 3, temperature, seed) for seed, temperature in enumerate((1.0, 2.0, 4.0))] + [world(30, 3, 2.0)]
    names = np.repeat(["a", "b", "c", "few"], [400, 400, 400, 30])
    order = np.random.default_rng(0).permutation(len(names))
    logits, labels = (np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True))
    return logits, labels, names[order]


@pytest.mark.parametrize("method", ["temperature", "vector", "isotonic", "histogram", "prior_shift", "auto"])
def test_each_segment_is_an_independent_fit(rows, method):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator(method).fit(logits, labels, segments)
    probabilities = segmented.predict_proba(logits, segments)
    assert list(segmented.calibrators_) == ["a", "b", "c"]
    for name in ("a", "b", "c"):
        here = segments == name
        alone = CALIBRATORS[method]().fit(logits[here], labels[here])
        assert segmented.calibrators_[name].to_dict() == alone.to_dict()
        np.testing.assert_array_equal(probabilities[here], alone.predict_proba(logits[here]))
    few = segments == "few"
    everything = CALIBRATORS[method]().fit(logits, labels)
    np.testing.assert_array_equal(probabilities[few], everything.predict_proba(logits[few]))


def test_segments_that_differ_gain(rows, world):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator().fit(logits, labels, segments)
    for seed, (name, temperature) in enumerate((("a", 1.0), ("b", 2.0), ("c", 4.0))):
        assert segmented.calibrators_[name].temperature_ == pytest.approx(temperature, rel=0.15)
        fresh, truth = world(2000, 3, temperature, seed + 50)
        own = segmented.predict_proba(fresh, [name] * 2000)[np.arange(2000), truth]
        pooled = segmented.fallback_.predict_proba(fresh)[np.arange(2000), truth]
        if name != "b":
            assert -np.log(own).mean() < -np.log(pooled).mean() - 0.01


def test_why_a_segment_fell_back_is_said(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator(min_rows=31).fit(logits, labels, segments)
    assert segmented.fell_back_ == {"few": "30 rows of at least 31"}
    right = np.where(segments == "a", logits.argmax(axis=1), labels)
    segmented.fit(logits, right, segments)
    assert segmented.fell_back_ == {"a": "0 errors of at least 25", "few": "30 rows of at least 31"}
    assert segmented.calibrators_.keys() == {"b", "c"}


def test_a_segment_whose_fit_is_refused_falls_back_and_says_so(rows):
    logits, labels, segments = rows
    values = logits.copy()
    row = int(np.flatnonzero(segments == "b")[0])
    values[row, labels[row]] = -np.inf
    # The largest logit's confidence can be calibrated where the label was thought impossible; all log-odds cannot.
    segmented = SegmentedCalibrator("platt", fallback="histogram").fit(values, labels, segments)
    assert segmented.calibrators_.keys() == {"a", "c"}
    assert "Impossible label" in segmented.fell_back_["b"]
    with pytest.raises(CalibrationDataError, match="Impossible label"):
        SegmentedCalibrator("platt").fit(values, labels, segments)


def test_segments_never_seen_get_the_fallback(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator("temperature", fallback="vector").fit(logits, labels, segments)
    expected = CALIBRATORS["vector"]().fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(segmented.predict_proba(logits, ["nowhere"] * len(logits)), expected)


def test_an_integer_is_not_its_name(rows):
    logits, labels, segments = rows
    mixed = [{"a": 1, "b": "1"}.get(name, name) for name in segments.tolist()]
    segmented = SegmentedCalibrator().fit(logits, labels, mixed)
    plain = SegmentedCalibrator().fit(logits, labels, segments)
    assert list(segmented.calibrators_) == [1, "1", "c"]
    assert segmented.calibrators_[1].to_dict() == plain.calibrators_["a"].to_dict()
    assert segmented.calibrators_["1"].to_dict() == plain.calibrators_["b"].to_dict()
    restored = SegmentedCalibrator.from_dict(json.loads(json.dumps(segmented.to_dict())))
    np.testing.assert_array_equal(restored.predict_proba(logits, mixed), plain.predict_proba(logits, segments))


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda s: np.array(s, dtype=object)])
def test_what_holds_the_segments_does_not_matter(rows, kind):
    logits, labels, segments = rows
    numbers = (segments == "a") + 2 * (segments == "b")
    for values in (segments.tolist(), numbers.tolist()):
        segmented = SegmentedCalibrator().fit(logits, labels, kind(values))
        assert segmented.fingerprint() == SegmentedCalibrator().fit(logits, labels, np.array(values)).fingerprint()


def test_the_order_of_rows_changes_no_prediction_of_the_others(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator().fit(logits, labels, segments)
    together = segmented.predict_proba(logits, segments)
    for row in range(0, len(logits), 97):
        np.testing.assert_array_equal(
            segmented.predict_proba(logits[row : row + 1], segments[row : row + 1]), together[row : row + 1]
        )


def test_weights_are_passed_on_and_a_weight_of_zero_is_an_absent_row(rows):
    logits, labels, segments = rows
    weight = np.where(np.arange(len(labels)) % 5 == 0, 0.0, np.random.default_rng(1).uniform(0.5, 1, len(labels)))
    weight[segments == "few"] = 0
    kept = weight > 0
    segmented = SegmentedCalibrator().fit(logits, labels, segments, weight)
    absent = SegmentedCalibrator().fit(logits[kept], labels[kept], segments[kept], weight[kept])
    assert segmented.fell_back_ == {"few": "no row with a weight above 0"}
    assert not absent.fell_back_
    assert {**segmented.to_dict(), "fell_back": []} == absent.to_dict()
    assert SegmentedCalibrator.from_dict(segmented.to_dict()).to_dict() == segmented.to_dict()
    here = segments == "a"
    assert segmented.calibrators_["a"].to_dict() == (
        CALIBRATORS["temperature"]().fit(logits[here], labels[here], weight[here]).to_dict()
    )


def test_rows_are_counted_by_what_their_weights_are_worth(rows):
    logits, labels, segments = rows
    weight = np.ones(len(labels))
    weight[np.flatnonzero(segments == "a")[0]] = 1e9
    segmented = SegmentedCalibrator().fit(logits, labels, segments, weight)
    assert segmented.fell_back_["a"].startswith("1 row of")
    often = SegmentedCalibrator(weight_kind="frequency", min_rows=90, min_errors=30)
    assert not often.fit(logits, labels, segments, np.full(len(labels), 4.0)).fell_back_
    assert "few" in often.fit(logits, labels, segments).fell_back_


def test_the_top_label_is_that_of_the_segments_calibrator(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator("histogram", fallback="vector").fit(logits, labels, segments)
    probabilities = segmented.predict_proba(logits, segments)
    top, confidence = segmented.top_label(logits, probabilities, segments)
    few = segments == "few"
    np.testing.assert_array_equal(top, np.where(few, probabilities.argmax(axis=1), logits.argmax(axis=1)))
    np.testing.assert_array_equal(confidence, probabilities[np.arange(len(top)), top])


def test_out_may_be_the_input_and_no_rows_are_fine(rows):
    logits, labels, segments = rows
    single = logits.astype(np.float32)
    segmented = SegmentedCalibrator().fit(single, labels, segments)
    expected = segmented.predict_proba(single, segments)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(segmented.predict_proba(single, segments, out=single), expected)
    assert segmented.predict_proba(np.empty((0, 3)), []).shape == (0, 3)
    with pytest.raises(CalibrationDataError, match="out"):
        segmented.predict_proba(logits, segments, out=single)
    with pytest.raises(CalibrationDataError, match="another view of the memory"):
        segmented.predict_proba(logits, segments, out=logits[::-1])


def test_the_round_trip_is_exact(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator("isotonic", fallback="temperature").fit(logits, labels, segments)
    document = json.loads(json.dumps(segmented.to_dict(), allow_nan=False))
    restored = SegmentedCalibrator.from_dict(document)
    assert restored.to_dict() == document
    assert restored.fingerprint() == segmented.fingerprint() == document_digest(document)
    assert restored.fell_back_ == segmented.fell_back_
    np.testing.assert_array_equal(restored.predict_proba(logits, segments), segmented.predict_proba(logits, segments))


def test_a_damaged_document_is_refused(rows):
    document = SegmentedCalibrator().fit(*rows).to_dict()
    first, fell = document["calibrators"][0], document["fell_back"][0]
    damaged = [None, {}, {**document, "method": "temperature"}, {**document, "version": 2}, {**document, "more": 1}]
    for field in document:
        if field != "weight_kind":
            damaged.append({key: value for key, value in document.items() if key != field})
        damaged += [{**document, field: bad} for bad in (None, "x", {}, -1, [None], [{}])]
    for bad in ({**first, "segment": 1.5}, {**first, "segment": True}, {**first, "more": 1}, {"segment": "z"}):
        damaged.append({**document, "calibrators": [bad]})
    damaged.append({**document, "calibrators": [first, first]})
    damaged.append({**document, "calibrators": [{**first, "calibrator": {**first["calibrator"], "classes": 4}}]})
    damaged.append({**document, "fell_back": [{**fell, "segment": first["segment"]}]})
    damaged.append({**document, "fell_back": [fell, fell]})
    for content in damaged:
        with pytest.raises(CalibrationDataError):
            SegmentedCalibrator.from_dict(content)


def test_the_restorer_of_all_methods_names_the_one_of_segments(rows):
    document = SegmentedCalibrator().fit(*rows).to_dict()
    with pytest.raises(CalibrationDataError, match=r"SegmentedCalibrator\.from_dict"):
        from_dict(document)
    wrapped = {**CALIBRATORS["prior_shift"]().fit(*rows[:2]).to_dict(), "calibrator": document}
    with pytest.raises(CalibrationDataError, match="method"):
        from_dict(wrapped)


def test_options_are_shown_and_fixed(rows):
    segmented = SegmentedCalibrator("histogram", min_rows=50).fit(*rows)
    assert repr(segmented) == (
        "SegmentedCalibrator(calibrator=Histogram(not fitted), fallback=Histogram(not fitted), min_rows=50, "
        "fitted for 3 classes)"
    )
    with pytest.raises(CalibrationDataError, match="Options are fixed: min_rows of Segmented"):
        segmented.min_rows = 0


def test_top_labels_of_what_is_no_matrix_are_refused(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator().fit(logits, labels, segments)
    probabilities = segmented.predict_proba(logits, segments)
    for found, expected in zip(
        segmented.top_label(logits, probabilities.tolist(), segments),
        segmented.top_label(logits, probabilities, segments),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    for wrong in (None, "x", probabilities[:-1]):
        with pytest.raises(CalibrationDataError, match="probabilities"):
            segmented.top_label(logits, wrong, segments)


def test_bad_segments_and_options_are_refused(rows):
    logits, labels, segments = rows
    segmented = SegmentedCalibrator()
    with pytest.raises(CalibrationFitError, match="not fitted"):
        segmented.predict_proba(logits, segments)
    with pytest.raises(CalibrationFitError, match="not fitted"):
        segmented.fingerprint()
    count = len(logits)
    for bad in (segments[:-1], 3, None, np.full(count, 1.5), [True] * count, [None] * count, [[1]] * count):
        with pytest.raises(CalibrationDataError, match="segments"):
            segmented.fit(logits, labels, bad)
    segmented.fit(logits, labels, segments)
    before = segmented.to_dict()
    broken = logits.copy()
    broken[7, 1] = np.nan
    with pytest.raises(CalibrationDataError, match=r"logits\[7, 1\]"):
        segmented.fit(broken, labels, segments)
    assert segmented.to_dict() == before
    with pytest.raises(CalibrationDataError, match="3 columns"):
        segmented.predict_proba(logits[:, :2], segments)
    for options in ({"min_rows": 0}, {"min_errors": -1}, {"calibrator": "magic"}, {"weight_kind": "other"}):
        with pytest.raises(CalibrationDataError):
            SegmentedCalibrator(**options)


def test_segments_without_end_stay_fast_and_quiet(rows):
    logits, labels, _ = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        segmented = SegmentedCalibrator().fit(logits, labels, np.arange(len(labels)))
    assert len(segmented.fell_back_) == len(labels)
    assert not segmented.calibrators_
