from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from calibrators import CalibrationDataError, CalibrationFitError, Histogram, Identity, PriorShift, from_dict, metrics
from calibrators.effective_rows import MOST_OFTEN


def labels_shifted(rows, priors, seed):
    """Logits whose softmax is the true posterior at equal priors, and labels, drawn with the given priors."""
    rng = np.random.default_rng(seed)
    classes = len(priors)
    labels = rng.choice(classes, rows, p=priors)
    features = rng.normal(size=(rows, classes)) + 1.2 * np.eye(classes)[labels]
    return 1.2 * features, labels


def saerens(probabilities, source, weight):
    priors = source
    for _ in range(5000):
        posterior = probabilities * (priors / source)
        posterior /= posterior.sum(axis=1, keepdims=True)
        priors = np.average(posterior, axis=0, weights=weight)
    return priors


@pytest.mark.parametrize("weighted", [False, True])
def test_is_the_fixed_point_of_expectation_maximisation(weighted):
    source, target = labels_shifted(2000, [0.3, 0.3, 0.4], 0), labels_shifted(800, [0.7, 0.2, 0.1], 1)
    weight = np.random.default_rng(2).uniform(0.1, 2, 800) if weighted else None
    calibrator = PriorShift().fit(*source)
    plain = calibrator.predict_proba(target[0])
    expected = saerens(plain, calibrator.source_priors_, weight)
    calibrator.adapt(target[0], weight)
    np.testing.assert_allclose(calibrator.target_priors_, expected, atol=1e-4)
    shifted = plain * (calibrator.target_priors_ / calibrator.source_priors_)
    np.testing.assert_allclose(
        calibrator.predict_proba(target[0]), shifted / shifted.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_before_it_is_adapted_it_is_the_calibrator_inside_and_the_source_teaches_nothing(world):
    logits, labels = world(500, 4, 1.7)
    for inside in ("temperature", "histogram", "identity", "isotonic", "vector"):
        calibrator = PriorShift(inside).fit(logits, labels)
        other = from_dict(calibrator.calibrator_.to_dict())
        before = calibrator.predict_proba(logits)
        np.testing.assert_array_equal(before, other.predict_proba(logits))
        np.testing.assert_array_equal(calibrator.top_label(logits, before)[0], other.top_label(logits, before)[0])
        calibrator.adapt(logits)
        np.testing.assert_allclose(calibrator.target_priors_, calibrator.source_priors_, atol=1e-3)


def test_mends_a_shift_of_priors():
    source, target = labels_shifted(4000, [0.5, 0.5], 0), labels_shifted(4000, [0.05, 0.95], 1)
    calibrator = PriorShift().fit(*source)
    before = metrics.negative_log_likelihood(calibrator.predict_proba(target[0]), target[1])
    after = metrics.negative_log_likelihood(calibrator.adapt(target[0]).predict_proba(target[0]), target[1])
    told = metrics.negative_log_likelihood(calibrator.adapt_to([0.05, 0.95]).predict_proba(target[0]), target[1])
    assert after < before - 0.1
    assert after == pytest.approx(told, abs=0.01)


@pytest.mark.parametrize("priors", [(0.2, 0.8), (0.6, 0.3, 0.1)])
def test_intervals_cover(priors):
    classes = len(priors)
    calibrator = PriorShift(Identity()).fit(np.repeat(np.eye(classes), 2, axis=0), np.repeat(np.arange(classes), 2))
    np.testing.assert_allclose(calibrator.source_priors_, 1 / classes)
    covered = np.zeros(classes)
    for seed in range(300):
        calibrator.adapt(labels_shifted(400, priors, seed)[0])
        covered += (calibrator.lower_priors_ <= priors) & (priors <= calibrator.upper_priors_)
    assert (np.abs(covered / 300 - 0.95) < 0.035).all()


def test_intervals_of_rows_that_belong_together_cover():
    calibrator = PriorShift(Identity()).fit(np.repeat(np.eye(2), 2, axis=0), np.repeat(np.arange(2), 2))
    covered, group = {"grouped": 0, "alone": 0}, np.repeat(np.arange(100), 8)
    for seed in range(120):
        target = labels_shifted(100, (0.2, 0.8), seed)[0][group]
        for name, groups in (("grouped", group), ("alone", None)):
            calibrator.adapt(target, groups=groups)
            covered[name] += calibrator.lower_priors_[0] <= 0.2 <= calibrator.upper_priors_[0]
    assert covered["grouped"] >= binom.ppf(0.001, 120, 0.93)
    assert covered["alone"] < 80
    target = labels_shifted(100, (0.2, 0.8), 1)[0]
    alone = calibrator.adapt(target).upper_priors_
    np.testing.assert_allclose(calibrator.adapt(target, groups=np.arange(100)).upper_priors_, alone, atol=1e-9)


def test_frequencies_are_repeated_rows_and_importance_is_scale_free():
    source, (target, _) = labels_shifted(500, [0.5, 0.5], 0), labels_shifted(300, [0.2, 0.8], 1)
    counts = np.random.default_rng(3).integers(0, 4, 300)

    def interval(kind, logits, weight=None):
        found = PriorShift(weight_kind=kind).fit(*source).adapt(logits, weight)
        return found.lower_priors_, found.target_priors_, found.upper_priors_

    repeated = np.repeat(target, counts, axis=0)
    np.testing.assert_allclose(interval("frequency", target, counts), interval("importance", repeated), atol=1e-6)
    np.testing.assert_allclose(
        interval("importance", target, counts), interval("importance", target, counts * 1000), atol=1e-6
    )
    kept = counts > 0
    np.testing.assert_allclose(
        interval("importance", target, counts), interval("importance", target[kept], counts[kept]), atol=1e-6
    )


def test_top_label_follows_the_new_priors(world):
    logits, labels = world(400, 3, 1.5)
    calibrator = PriorShift(Histogram()).fit(logits, labels)
    assert calibrator.top_label_only
    calibrator.adapt_to([0.98, 0.01, 0.01])
    probabilities = calibrator.predict_proba(logits)
    assert (calibrator.top_label(logits, probabilities)[0] == probabilities.argmax(axis=1)).all()


def test_an_adapted_one_round_trips_and_a_fit_undoes_it(world):
    logits, labels = world(400, 3, 1.5)
    calibrator = PriorShift("structured_vector").fit(logits, labels).adapt(logits[labels > 0])
    restored = from_dict(calibrator.to_dict())
    assert restored.to_dict() == calibrator.to_dict()
    np.testing.assert_array_equal(restored.predict_proba(logits), calibrator.predict_proba(logits))
    assert not restored.fit(logits, labels).adapted_
    assert calibrator.adapted_


def test_a_prior_of_zero_and_a_row_that_only_it_could_be(world):
    calibrator = PriorShift().fit(*world(300, 3)).adapt_to([0, 0.5, 0.5])
    found = calibrator.predict_proba([[0.0, 0.0, 0.0], [0.0, -np.inf, -np.inf], [5000.0, 0.0, -1.0]])
    np.testing.assert_allclose(found[:, 0], [0, 1, 1])
    assert np.isfinite(found).all()


def test_bad_input_is_refused(world):
    with pytest.raises(CalibrationDataError, match="calibrator"):
        PriorShift("magic")
    with pytest.raises(CalibrationDataError, match="calibrator"):
        PriorShift(PriorShift())
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        PriorShift(weight_kind="x")
    with pytest.raises(CalibrationFitError, match="not fitted"):
        PriorShift().adapt(np.zeros((3, 2)))
    logits, labels = world(100, 3)
    calibrator = PriorShift().fit(logits, labels)
    for priors in (
        *([0.5, 0.5], [-1, 1, 1], [0, 0, 0], [np.nan, 0.5, 0.5], [np.inf, 0, 1], [0.5, 0.3, 0.1], [0.4, 0.4, 0.200002]),
        *("abc", ["a", "b", "c"], [True, False, False], [[0.5], [0.25, 0.25]], None, [1j, 0, 0], [10**400, 0, 0]),
    ):
        with pytest.raises(CalibrationDataError, match="priors"):
            calibrator.adapt_to(priors)
    assert not calibrator.adapted_
    single = calibrator.adapt_to(np.full(3, 1 / 3, np.float32)).target_priors_
    assert single.sum() == pytest.approx(1, abs=1e-15)
    calibrator.fit(logits, labels)
    with pytest.raises(CalibrationDataError, match="2"):
        calibrator.adapt(logits[:1])
    with pytest.raises(CalibrationDataError, match="columns"):
        calibrator.adapt(logits[:, :2])
    document = calibrator.to_dict()
    for change in (
        {"source_priors": [0.0, 0.5, 0.5]},
        {"upper_priors": [0.0, 0.0, 0.0]},
        {"target_priors": [0.5, 0.25, 0.25], "lower_priors": [0.0] * 3, "upper_priors": [1.0] * 3},
        {"upper_priors": [1.0] * 3},
        {"calibrator": document},
        {"calibrator": PriorShift().fit(*world(50, 2)).to_dict()["calibrator"]},
    ):
        with pytest.raises(CalibrationDataError):
            from_dict({**document, **change})


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e300])
@pytest.mark.parametrize("kind", ["importance", "frequency"])
@pytest.mark.parametrize("seed", range(4))
def test_weights_however_unlike_give_priors_and_intervals(seed, kind, scale, classes, world):
    logits, labels = world(300, classes, 1.5, seed=seed)
    target = world(400, classes, seed=seed + 10)[0] + np.arange(classes)
    for weight in (
        10.0 ** np.random.default_rng(seed).uniform(-100, 100, 400),
        np.append(1e100, np.full(399, 1e-100)),
        np.full(400, 1e100),
        np.full(400, 1e-100),
    ):
        if kind == "frequency":
            weight = np.ceil(np.minimum(weight, MOST_OFTEN))
        one = PriorShift(weight_kind=kind).fit(logits * scale, labels, weight[:300])
        one.adapt(target * scale, weight)
        assert one.target_priors_.sum() == pytest.approx(1)
        assert (one.lower_priors_ <= one.target_priors_).all()
        assert (one.target_priors_ <= one.upper_priors_).all()


def test_frequencies_count_in_the_half_row_of_an_impossible_class(world):
    logits, labels = world(50, 2)
    logits = np.column_stack([logits, np.full(50, -np.inf)])
    seen = PriorShift(weight_kind="frequency").fit(logits, labels, np.full(50, 3))
    repeated = PriorShift().fit(np.repeat(logits, 3, axis=0), np.repeat(labels, 3))
    np.testing.assert_allclose(seen.source_priors_, repeated.source_priors_, rtol=1e-12)
    assert seen.source_priors_[2] == pytest.approx(0.5 / 151.5)


def test_frequencies_are_rows_seen_again_in_the_calibrator_inside_too(world):
    logits, labels = world(150, 2, 1.5)
    counts = np.random.default_rng(2).integers(0, 5, 150)
    rows = np.repeat(np.arange(150), counts)
    seen = PriorShift("platt", weight_kind="frequency").fit(logits, labels, counts)
    repeated = PriorShift("platt").fit(logits[rows], labels[rows])
    np.testing.assert_allclose(seen.predict_proba(logits), repeated.predict_proba(logits), rtol=1e-9)
    np.testing.assert_allclose(seen.source_priors_, repeated.source_priors_, rtol=1e-9)
    assert seen.calibrator_.weight_kind == "frequency"
    importance = PriorShift("platt").fit(logits, labels, counts).predict_proba(logits)
    assert np.abs(importance - repeated.predict_proba(logits)).max() > 1e-5
    with pytest.raises(CalibrationDataError, match="whole number"):
        seen.adapt(logits, counts + 0.5)
