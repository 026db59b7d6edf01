"""What every calibrator promises, whatever its method."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import calibrators
from calibrators import CALIBRATORS, CalibrationDataError, CalibrationFitError, Identity

EVERY = pytest.mark.parametrize("name", CALIBRATORS)


def fitted(name, logits, labels, weight=None):
    return CALIBRATORS[name]().fit(logits, labels, weight)


@EVERY
def test_every_method_is_exported(name):
    assert CALIBRATORS[name].__name__ in calibrators.__all__
    assert getattr(calibrators, CALIBRATORS[name].__name__) is CALIBRATORS[name]


@EVERY
@pytest.mark.parametrize(
    ("classes", "dtype"),
    [
        (2, np.float16),
        (2, np.float32),
        (2, np.float64),
        (3, np.float16),
        (3, np.float64),
        (10, np.float32),
    ],
)
def test_rows_are_distributions_of_the_promised_type(name, classes, dtype, world):
    expected = np.float64 if dtype == np.float64 else np.float32
    logits, labels = world(400, classes, 1.5, dtype=dtype)
    probabilities = fitted(name, logits, labels).predict_proba(logits)
    assert probabilities.shape == logits.shape
    assert probabilities.dtype == expected
    assert probabilities.min() >= 0
    np.testing.assert_allclose(
        probabilities.sum(axis=1, dtype=np.float64), 1, atol=1e-6 if expected == np.float32 else 1e-12
    )


@EVERY
def test_learned_names_end_in_an_underscore_and_fit_returns_self(name, world):
    calibrator = CALIBRATORS[name]()
    before = set(vars(calibrator))
    assert calibrator.fit(*world(200, 3)) is calibrator
    assert all(attribute.endswith("_") for attribute in set(vars(calibrator)) - before)
    assert calibrator.name == name


@EVERY
@pytest.mark.parametrize("classes", [2, 5])
def test_a_rows_result_does_not_depend_on_the_rows_beside_it(name, classes, world):
    logits, labels = world(150, classes, 2.0, dtype=np.float32)
    calibrator = fitted(name, logits, labels)
    together = calibrator.predict_proba(logits)
    alone = np.concatenate([calibrator.predict_proba(logits[i : i + 1]) for i in range(len(logits))])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(calibrator.predict_proba(np.tile(logits, (140, 1)))[-150:], together)


@EVERY
def test_out_is_written_to_and_may_be_the_input(name, world):
    logits, labels = world(300, 4, dtype=np.float32)
    calibrator = fitted(name, logits, labels)
    expected = calibrator.predict_proba(logits)
    out = np.empty_like(logits)
    assert calibrator.predict_proba(logits, out=out) is out
    np.testing.assert_array_equal(out, expected)
    same = logits.copy()
    np.testing.assert_array_equal(calibrator.predict_proba(same, out=same), expected)
    for overlapping in (same[::-1], same[:, ::-1]):
        with pytest.raises(CalibrationDataError, match="out"):
            calibrator.predict_proba(same, out=overlapping)
    for wrong in (np.empty((300, 4)), np.empty((299, 4), np.float32), [[0.0]]):
        with pytest.raises(CalibrationDataError, match="out"):
            calibrator.predict_proba(logits, out=wrong)


@EVERY
@pytest.mark.parametrize("classes", [2, 4])
def test_layout_and_storage_of_the_input_do_not_matter(name, classes, world, tmp_path):
    logits, labels = world(500, classes, 1.7, dtype=np.float32)
    plain = fitted(name, logits, labels)
    np.save(tmp_path / "logits.npy", logits)
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    backwards = logits[::-1].copy()[::-1]
    for other in (mapped, np.asfortranarray(logits), backwards, np.repeat(logits, 2, axis=1)[:, ::2]):
        assert fitted(name, other, labels).to_dict() == plain.to_dict()
        np.testing.assert_array_equal(plain.predict_proba(other), plain.predict_proba(logits))
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), logits)


@EVERY
def test_the_input_is_never_changed(name, world):
    logits, labels = world(300, 3)
    weight = np.linspace(0.5, 1, 300)
    for array in (logits, labels, weight):
        array.setflags(write=False)
    fitted(name, logits, labels, weight).predict_proba(logits)


@EVERY
@pytest.mark.parametrize("classes", [2, 4])
def test_a_row_of_weight_zero_equals_an_absent_row(name, classes, world):
    logits, labels = world(400, classes, 1.5)
    weight = np.where(np.arange(400) % 3 == 0, 0.0, np.random.default_rng(1).uniform(0.5, 1, 400))
    kept = weight > 0
    absent = fitted(name, logits[kept], labels[kept], weight[kept])
    assert fitted(name, logits, labels, weight).to_dict() == absent.to_dict()
    weighted = fitted(name, logits, labels, kept).predict_proba(logits)
    np.testing.assert_allclose(weighted, fitted(name, logits[kept], labels[kept]).predict_proba(logits), atol=1e-6)


@EVERY
@pytest.mark.parametrize("classes", [2, 4])
def test_only_the_ratios_of_weights_matter(name, classes, world):
    logits, labels = world(400, classes, 1.5)
    weight = np.random.default_rng(1).uniform(0.1, 1, 400)
    one = fitted(name, logits, labels, weight).predict_proba(logits)
    np.testing.assert_allclose(one, fitted(name, logits, labels, weight * 1000).predict_proba(logits), atol=1e-6)


@EVERY
def test_no_rows_to_predict_is_fine(name, world):
    calibrator = fitted(name, *world(100, 3))
    assert calibrator.predict_proba(np.empty((0, 3))).shape == (0, 3)
    labels, confidence = calibrator.top_label(np.empty((0, 3)), np.empty((0, 3)))
    assert labels.shape == confidence.shape == (0,)


@EVERY
def test_unfitted_or_with_other_classes_is_refused(name, world):
    logits, labels = world(100, 3)
    calibrator = CALIBRATORS[name]()
    if name == "identity":
        np.testing.assert_array_equal(
            calibrator.predict_proba(logits), calibrator.fit(logits, labels).predict_proba(logits)
        )
        return
    with pytest.raises(CalibrationFitError, match="not fitted"):
        calibrator.predict_proba(logits)
    with pytest.raises(CalibrationFitError, match="not fitted"):
        calibrator.to_dict()
    calibrator.fit(logits, labels)
    with pytest.raises(CalibrationDataError, match="3 columns"):
        calibrator.predict_proba(logits[:, :2])


@EVERY
def test_a_refused_fit_leaves_the_calibrator_as_it_was(name, world):
    logits, labels = world(200, 3)
    calibrator = fitted(name, logits, labels)
    before = calibrator.to_dict()
    broken = logits.copy()
    broken[150, 1] = np.nan
    with pytest.raises(CalibrationDataError):
        calibrator.fit(broken, labels)
    assert calibrator.to_dict() == before


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_logits_are_named(name, bad, world):
    for classes in (2, 3):
        logits, labels = world(200, classes)
        calibrator = fitted(name, logits, labels)
        logits[123, 1] = bad
        with pytest.raises(CalibrationDataError, match=r"logits\[123, 1\]"):
            calibrator.predict_proba(logits)
        with pytest.raises(CalibrationDataError, match=r"logits\[123, 1\]"):
            calibrator.fit(logits, labels)
        logits[123] = -np.inf
        with pytest.raises(CalibrationDataError, match=r"logits\[123\]"):
            calibrator.predict_proba(logits)


@EVERY
def test_two_classes_keep_their_order_where_promised(name, world):
    calibrator_type = CALIBRATORS[name]
    for seed in range(5):
        logits, labels = world(300, 2, seed=seed)
        if seed == 4:
            labels = 1 - labels
        calibrator = calibrator_type().fit(logits, labels)
        margins = np.linspace(-30, 30, 2001)
        positive = calibrator.predict_proba(np.stack([np.zeros_like(margins), margins], axis=1))[:, 1]
        if calibrator.preserves_order:
            assert (np.diff(positive) >= -1e-15).all()


@EVERY
def test_top_label_is_the_arg_max_it_says(name, world):
    logits, labels = world(2000, 5, 2.0)
    calibrator = fitted(name, logits, labels)
    probabilities = calibrator.predict_proba(logits)
    top, confidence = calibrator.top_label(logits, probabilities)
    expected = (logits if calibrator.top_label_only else probabilities).argmax(axis=1)
    assert top.dtype == np.int64
    np.testing.assert_array_equal(top, expected)
    np.testing.assert_array_equal(confidence, probabilities[np.arange(2000), expected])
    np.testing.assert_array_equal(calibrator.top_label(logits, probabilities.tolist())[1], confidence)
    with pytest.raises(CalibrationDataError, match="shape"):
        calibrator.top_label(logits, probabilities[:-1])
    for wrong in (None, "x", [[0.5, 0.5], [1.0]]):
        with pytest.raises(CalibrationDataError, match="probabilities"):
            calibrator.top_label(logits, wrong)
    if name != "identity":
        with pytest.raises(CalibrationDataError, match="5 columns"):
            calibrator.top_label(logits[:, :4], probabilities[:, :4])
        with pytest.raises(CalibrationFitError, match="not fitted"):
            CALIBRATORS[name]().top_label(logits, probabilities)


@EVERY
def test_options_are_fixed_and_shown(name, world):
    kind = CALIBRATORS[name]
    others = {
        "bins": 7,
        "knots": 4,
        "strength": 0.5,
        "folds": 3,
        "on": "per_class" if name == "histogram" else "margin",
    }
    taken = inspect.signature(kind).parameters
    options = {key: value for key, value in others.items() if key in taken}
    calibrator = kind(**options)
    shown = "".join(f"{key}={value!r}, " for key, value in options.items())
    state = "not fitted" if name != "identity" else ""
    wrapped = "calibrator=Temperature(not fitted), " if name == "prior_shift" else ""
    assert repr(calibrator) == f"{kind.__name__}({wrapped}{shown}{state})"
    calibrator.fit(*world(300, 3))
    assert repr(calibrator) == f"{kind.__name__}({wrapped}{shown}{'fitted for 3 classes' if state else ''})"
    before = calibrator.to_dict()
    for option in taken:
        with pytest.raises(CalibrationDataError, match=f"Options are fixed: {option} of {kind.__name__}"):
            setattr(calibrator, option, 0)
    assert calibrator.to_dict() == before
    for other in (copy.deepcopy(calibrator), pickle.loads(pickle.dumps(calibrator))):
        assert other.to_dict() == before
        assert repr(other) == repr(calibrator)


@settings(max_examples=60, deadline=None)
@given(
    logits=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
        elements=st.floats(-1e6, 1e6, allow_nan=False),
    ),
    shift=st.floats(-100, 100),
)
def test_identity_is_a_softmax(logits, shift):
    probabilities = Identity().predict_proba(logits)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(Identity().predict_proba(logits + shift), probabilities, atol=1e-8)
    assert (probabilities[np.arange(len(logits)), logits.argmax(axis=1)] == probabilities.max(axis=1)).all()
