"""Every calibrator at the edges of what it accepts: distributions without a warning, promises kept, or a clear refusal.

Warnings are errors in these tests, so an overflow or a division by zero anywhere fails them.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrators import CALIBRATORS, CalibrationDataError, from_dict, logits_from_probabilities

MAKERS = {
    **CALIBRATORS,
    "platt on the margin": lambda: CALIBRATORS["platt"](on="margin"),
    "histogram of equal width": lambda: CALIBRATORS["histogram"](scheme="width"),
    "histogram per class": lambda: CALIBRATORS["histogram"](on="per_class"),
    "prior_shift of platt": lambda: CALIBRATORS["prior_shift"]("platt"),
}
EVERY = pytest.mark.parametrize("name", MAKERS)
KEEPS_ARG_MAX = {"identity", "temperature", "ensemble_temperature", "isotonic_multiclass"}
ROWS = 120


def impossible_others(logits, labels):
    """A class that is not the label is impossible, in every seventh row."""
    values = logits.copy()
    values[np.arange(0, len(values), 7), (labels[::7] + 1) % values.shape[1]] = -np.inf
    return values


def certain_rows(logits, labels):
    """In every seventh row all classes but the label are impossible."""
    values = logits.copy()
    values[::7] = -np.inf
    values[np.arange(0, len(values), 7), labels[::7]] = 0
    return values


def one_hot(logits, labels):
    """Probabilities of exactly 0 and 1, right in every row."""
    return logits_from_probabilities(np.eye(logits.shape[1])[labels], floor=0)


def never_predicted(logits, labels):
    """A class that no logits ever allow, nor a label is; the other labels stay possible."""
    return np.where(np.arange(logits.shape[1]) == logits.shape[1] - 1, -np.inf, logits)


def three_rows_far_apart(classes):
    """Two margins of some 1e5 and one of one: squares of ten digits, of which a difference decides."""
    values = np.zeros((3, classes))
    values[[0, 0, 1, 2], [0, 1, 0, 1]] = [1e5, 1, 1, -1e5]
    return values, np.zeros(3, np.int64)


CASES = {
    "as they are": lambda z, y: (z, y),
    "times 1e5": lambda z, y: (z * 1e5, y),
    "times 1e5 in float32": lambda z, y: ((z * 1e5).astype(np.float32), y),
    "times 5e3 in float16": lambda z, y: ((z * 5e3).astype(np.float16), y),
    "times 1e300": lambda z, y: (z * 1e300, y),
    "tiny": lambda z, y: (z * 1e-300, y),
    "tiny in float16": lambda z, y: ((z * 1e-6).astype(np.float16), y),
    "far from zero": lambda z, y: (z + 1e9, y),
    "constant": lambda z, y: (np.full_like(z, 3.0), y),
    "ties": lambda z, y: (np.round(z), y),
    "two values": lambda z, y: (np.where(z > 0, 1.0, 0.0), y),
    "-inf": lambda z, y: (impossible_others(z, y), y),
    "-inf in float32": lambda z, y: (impossible_others(z, y).astype(np.float32), y),
    "-inf in float16": lambda z, y: (impossible_others(z, y).astype(np.float16), y),
    "certain rows": lambda z, y: (certain_rows(z, y), y),
    "probabilities of 0 and 1": lambda z, y: (one_hot(z, y), y),
    "a class that is impossible": lambda z, y: (never_predicted(z, y), np.minimum(y, z.shape[1] - 2)),
    "one row": lambda z, y: (z[:1], y[:1]),
    "one certain row": lambda z, y: (one_hot(z, y)[:1], y[:1]),
    "two rows": lambda z, y: (z[:2], y[:2]),
    "two rows of one label": lambda z, y: (z[:2], np.zeros(2, np.int64)),
    "two equal rows": lambda z, y: (z[[0, 0]], np.array([0, 1])),
    "three rows far apart": lambda z, y: three_rows_far_apart(z.shape[1]),
    "one label": lambda z, y: (z, np.zeros(len(z), np.int64)),
    "a class missing": lambda z, y: (z, np.where(y == z.shape[1] - 1, 0, y)),
    "separable": lambda z, y: (z, z.argmax(axis=1)),
    "all wrong": lambda z, y: (z, z.argmin(axis=1)),
    "labels at random": lambda z, y: (z, np.random.default_rng(5).integers(0, z.shape[1], len(z))),
}

WEIGHTS = {
    "1e100": lambda n: np.full(n, 1e100),
    "1e-100": lambda n: np.full(n, 1e-100),
    "from 1e-100 to 1e100": lambda n: np.random.default_rng(3).permutation(np.logspace(-100, 100, n)),
    "one row alone": lambda n: np.eye(1, n, 3)[0],
    "one row outweighs all": lambda n: np.where(np.arange(n) == 3, 1e15, 1.0),
    "float16": lambda n: np.linspace(0.1, 1, n).astype(np.float16),
    "integers": lambda n: np.arange(n),
    "booleans": lambda n: np.arange(n) % 2 == 0,
}


def check(calibrator, *inputs):
    """What holds for any input: distributions, what the method promises to keep, and an exact round trip."""
    restored = from_dict(json.loads(json.dumps(calibrator.to_dict(), allow_nan=False)))
    for logits in inputs:
        check_one(calibrator, restored, logits)


def check_one(calibrator, restored, logits):
    probabilities = calibrator.predict_proba(logits)
    assert probabilities.dtype == (np.float64 if logits.dtype == np.float64 else np.float32)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    close = 1e-12 if probabilities.dtype == np.float64 else 1e-6
    assert np.abs(probabilities.sum(axis=1, dtype=np.float64) - 1).max() <= close
    impossible = logits == -np.inf
    if calibrator.top_label_only:
        # Where one class alone is possible, what is taken from it has to go somewhere.
        impossible &= impossible.sum(axis=1, keepdims=True) < logits.shape[1] - 1
    if getattr(calibrator, "on", "") != "per_class":
        assert (probabilities[impossible] == 0).all()
    top, confidence = calibrator.top_label(logits, probabilities)
    if calibrator.name in KEEPS_ARG_MAX:
        largest = probabilities.max(axis=1)
        assert np.array_equal(probabilities[np.arange(len(logits)), logits.argmax(axis=1)], largest)
    if calibrator.top_label_only:
        assert np.array_equal(top, logits.argmax(axis=1))
    assert np.array_equal(confidence, probabilities[np.arange(len(top)), top])
    if calibrator.preserves_order and logits.shape[1] == 2:
        with np.errstate(over="ignore"):
            margins = logits[:, 1].astype(np.float64) - logits[:, 0].astype(np.float64)
        # Two units in the last place: rows of one margin at different heights round differently.
        assert (np.diff(probabilities[np.argsort(margins, kind="stable"), 1]) >= -2 * np.finfo(logits.dtype).eps).all()
    assert np.array_equal(restored.predict_proba(logits), probabilities)


@EVERY
@pytest.mark.parametrize("case", CASES)
def test_extreme_rows(name, case, world):
    for classes in (2, 5):
        logits, labels = world(ROWS, classes, 1.5)
        values, truth = CASES[case](logits, labels)
        calibrator = MAKERS[name]().fit(values, truth)
        if name == "prior_shift of platt":
            calibrator.adapt_to(np.arange(1, classes + 1) / (classes * (classes + 1) / 2))
        check(
            calibrator,
            values,
            logits,
            logits * 1e5,
            impossible_others(logits, labels),
            certain_rows(logits, labels),
        )


@EVERY
@pytest.mark.parametrize("classes", [2, 4])
def test_a_label_that_its_own_logits_rule_out(name, classes, world):
    logits, labels = world(ROWS, classes, 1.5)
    logits[5, labels[5]] = -np.inf
    calibrator = MAKERS[name]()
    if name in {"identity", "histogram", "histogram of equal width", "histogram per class", "spline"}:
        # They learn nothing, or from right and wrong alone.
        check(calibrator.fit(logits, labels), logits)
    elif name == "auto":
        check(calibrator.fit(logits, labels), world(ROWS, classes, 1.5, seed=1)[0])
        assert calibrator.floor_ > 0
        assert all(one.error is None for one in calibrator.report_)
    else:
        with pytest.raises(CalibrationDataError, match=rf"Impossible label: logits\[5, {labels[5]}\]"):
            calibrator.fit(logits, labels)


@EVERY
@pytest.mark.parametrize("case", WEIGHTS)
def test_extreme_weights(name, case, world):
    for classes in (2, 3):
        logits, labels = world(ROWS, classes, 1.5)
        check(MAKERS[name]().fit(logits, labels, WEIGHTS[case](ROWS)), logits)


@EVERY
def test_a_thousand_classes(name, world):
    # Fewer where there is a parameter for each pair of classes, and where each class's curve tries dozens of binnings.
    classes = {"matrix": 60, "dirichlet": 60, "structured_matrix": 300, "bbq": 300, "auto": 520}.get(name, 1000)
    logits, labels = world(40, classes, 1.5, dtype=np.float32)
    calibrator = MAKERS[name]().fit(logits, labels)
    check(calibrator, logits, impossible_others(logits, labels))
