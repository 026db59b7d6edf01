from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

from calibrators import (
    CALIBRATORS,
    Auto,
    CalibrationDataError,
    PriorShift,
    calibration_warning,
    from_dict,
    inverse,
    metrics,
)
from calibrators.chunks import raise_to_floor
from calibrators.methods import auto
from calibrators.methods.auto import BINARY, MULTICLASS, ONLY_MIXED_IN
from calibrators.softmax import PROBABILITY_FLOOR


def sharp(rows, gap, seed, classes=10):
    """Calibrated logits, one class of each row ahead by some ``gap``, and their labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (rows, classes))
    logits[np.arange(rows), rng.integers(0, classes, rows)] += gap
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def rare(rows, mean, seed):
    """Calibrated logits of two classes whose log-odds have a mean, and their labels."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(mean, 1, rows)
    return np.stack([np.zeros(rows), scores], axis=1), (rng.random(rows) < special.expit(scores)).astype(int)


def test_report_by_hand(world):
    logits, labels = world(300, 3, 1.6)
    names = ("identity", "temperature", "vector")
    weight = np.random.default_rng(1).uniform(0.1, 2, 300)
    calibrator = Auto(names, folds=4, seed=7).fit(logits, labels, weight)
    fold = np.random.default_rng(7).permutation(300) % 4
    losses = {}
    for name in names:
        losses[name] = np.empty(300)
        for part in range(4):
            test, fit = fold == part, fold != part
            fitted = CALIBRATORS[name]().fit(logits[fit], labels[fit], weight[fit])
            own = fitted.predict_proba(logits[test])[np.arange(test.sum()), labels[test]]
            losses[name][test] = -np.log((1 - 1e-4) * own + 1e-4 / 3)
    means = {name: np.average(one, weights=weight) for name, one in losses.items()}
    best = min(means, key=means.get)
    for one in calibrator.report_:
        excess = losses[one.name] - losses[best]
        mean = np.average(excess, weights=weight)
        error = np.sqrt((weight**2 * (excess - mean) ** 2).sum() * 300 / 299) / weight.sum()
        assert one.loss == pytest.approx(means[one.name])
        assert one.difference == pytest.approx(mean, abs=1e-12)
        assert one.standard_error == pytest.approx(error, abs=1e-12)
        assert one.error is None
    chosen = next(one.name for one in calibrator.report_ if one.difference <= one.standard_error)
    assert calibrator.calibrator_.name == chosen
    np.testing.assert_array_equal(
        calibrator.predict_proba(logits), CALIBRATORS[chosen]().fit(logits, labels, weight).predict_proba(logits)
    )


def test_does_no_harm_and_finds_the_temperature(world):
    # The standard error of the loss itself would keep identity at T = 1.3 nearly always; the paired one does not.
    harmless = sum(Auto().fit(*world(1000, 5, 1.0, seed=i)).calibrator_.name == "identity" for i in range(10))
    found = sum(Auto().fit(*world(1000, 5, 1.3, seed=i)).calibrator_.name == "temperature" for i in range(10))
    assert harmless >= 6
    assert found >= 6


@pytest.mark.parametrize(
    ("world_of", "setting", "accuracy", "most_rows"),
    # Of 200 rows with an accuracy of 95 %, each fold has enough wrong ones for anything.
    [(sharp, 6, 0.95, 100), (sharp, 7, 0.98, 200), (sharp, 8, 0.99, 200), (rare, -5, 0.99, 200)],
)
def test_does_no_harm_where_nearly_all_rows_are_right(world_of, setting, accuracy, most_rows):
    fresh, truth = world_of(5_000, setting, 12345)
    plain = metrics.negative_log_likelihood(CALIBRATORS["identity"]().predict_proba(fresh), truth)
    assert np.mean(fresh.argmax(axis=1) == truth) == pytest.approx(accuracy, abs=0.006)
    for rows in (n for n in (20, 50, 100, 200) if n <= most_rows):
        excess = []
        for seed in range(12):
            calibrator = Auto().fit(*world_of(rows, setting, seed))
            assert getattr(calibrator.calibrator_, "temperature_", 1) > 0.05
            excess.append(metrics.negative_log_likelihood(calibrator.predict_proba(fresh), truth) - plain)
        # A temperature at its bound costs 0.8 nats at the highest accuracy.
        assert np.mean(excess) < 0.005


@pytest.mark.parametrize("events", [0, 1, 4])
def test_fewer_wrong_labels_than_folds_are_not_compared(events):
    scores = np.random.default_rng(0).normal(-4, 1, 400)
    labels = (np.arange(400) < events).astype(int)
    logits = np.stack([np.zeros(400), np.minimum(scores, -0.1)], axis=1)
    calibrator = Auto().fit(logits, labels)
    assert calibrator.calibrator_.name == "identity"
    assert calibrator.report_[0].error is None
    for one in calibrator.report_[1:]:
        assert one.loss is None
        assert one.error == f"Not compared: {events} rows with a wrong top label, fewer than 5"
    assert from_dict(calibrator.to_dict()).to_dict() == calibrator.to_dict()
    # Rows of weight zero are absent, and rows of one group are one.
    more = (np.arange(400) < 5).astype(int)
    assert Auto().fit(logits, more).report_[1].error is None
    assert "4 rows" in Auto().fit(logits, more, np.arange(400) > 0).report_[1].error
    assert "3 groups" in Auto().fit_grouped(logits, more, np.arange(400) // 2).report_[1].error


def test_a_temperature_at_its_lower_bound_is_out():
    # Wrong by a hair and else right beyond doubt: the sharper the better, down to the bound.
    logits = np.random.default_rng(0).normal(0, 1, (300, 3))
    top = logits.argmax(axis=1)
    labels = top.copy()
    logits[np.arange(300), top] += 0.3
    near = np.arange(0, 300, 30)
    logits[near] = [0.001, 0.0, -9.0]
    labels[near] = 1
    assert CALIBRATORS["temperature"]().fit(logits, labels).at_bound_
    methods = ("identity", "temperature", "ensemble_temperature", "structured_vector", "scaling_binning", "prior_shift")
    calibrator = Auto(methods).fit(logits, labels)
    assert calibrator.calibrator_.name == "identity"
    for one in calibrator.report_[1:]:
        assert "lower bound" in one.error
        assert one.loss is None
    assert from_dict(calibrator.to_dict()).report_ == calibrator.report_
    assert PriorShift("auto").fit(logits, labels).calibrator_.calibrator_.name != "temperature"


def test_a_choice_that_only_fails_on_all_rows_is_replaced(monkeypatch, world):
    # No rows are known with which a real method converges in every fold, and not on all.
    logits, labels = world(600, 3, 2.0)
    fit = CALIBRATORS["temperature"]._fit

    def refuse_all(self, rows):
        if len(rows.labels) == 600:
            raise CalibrationDataError("Too many rows", where="logits", found="600 rows", expected="fewer")
        fit(self, rows)

    monkeypatch.setattr(CALIBRATORS["temperature"], "_fit", refuse_all)
    calibrator = Auto(("identity", "temperature", "platt")).fit(logits, labels)
    assert calibrator.calibrator_.name == "platt"
    assert "Too many rows" in calibrator.report_[1].error
    assert calibrator.report_[1].loss is None
    assert calibrator.report_[2].difference == 0


def test_noise_is_softened_up_to_the_upper_bound():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 3, (500, 4)), rng.integers(0, 4, 500)
    calibrator = Auto(("identity", "temperature")).fit(logits, labels)
    assert calibrator.calibrator_.name == "temperature"
    assert calibrator.calibrator_.at_bound_


@pytest.mark.parametrize("kind", ["steps", "sharp", "temperature"])
def test_no_default_candidate_gives_zero_or_one(kind, world):
    rng = np.random.default_rng(0)
    if kind == "steps":
        scores = rng.normal(0, 2, 1000)
        logits, labels = np.stack([0 * scores, scores], axis=1), (rng.random(1000) < 0.5 + 0.45 * np.sign(scores))
    else:
        logits, labels = sharp(1000, 5, 0) if kind == "sharp" else world(1000, 5, 1.5)
    for name in BINARY if kind == "steps" else MULTICLASS:
        if name in {"pool", *ONLY_MIXED_IN}:
            continue
        probabilities = CALIBRATORS[name]().fit(logits, labels.astype(int)).predict_proba(logits)
        assert probabilities.min() > 1e-7
        assert probabilities.max() < 1
    assert Auto().fit(logits, labels.astype(int)).predict_proba(4 * logits).min() > 0


def test_takes_more_where_more_is_needed():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 2, 4000)
    logits = np.stack([np.zeros(4000), scores], axis=1)
    assert Auto().fit(logits, (rng.random(4000) < special.expit(scores - 2)).astype(int)).calibrator_.name == "platt"
    steps = (rng.random(4000) < 0.5 + 0.45 * np.sign(scores)).astype(int)
    assert Auto().fit(logits, steps).calibrator_.name == "venn_abers"


def test_reproducible_from_its_seed(world):
    logits, labels = world(400, 3, 1.4)
    assert Auto(seed=3).fit(logits, labels).to_dict() == Auto(seed=3).fit(logits, labels).to_dict()
    assert Auto(seed=3).fit(logits, labels).report_ != Auto(seed=4).fit(logits, labels).report_


def test_groups_stay_together_and_widen_the_error(world):
    logits, labels = world(200, 3, 1.3)
    repeated = np.repeat(logits, 10, axis=0), np.repeat(labels, 10)
    methods = ("identity", "temperature", "vector")
    alone = Auto(methods).fit(logits, labels)
    grouped = Auto(methods).fit_grouped(*repeated, np.repeat(np.arange(200), 10))
    naive = Auto(methods).fit(*repeated)
    for one, other in zip(alone.report_, grouped.report_, strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-4)
        assert other.standard_error == pytest.approx(one.standard_error, abs=1e-4)
    pairs = [(a.standard_error, b.standard_error) for a, b in zip(grouped.report_, naive.report_, strict=True)]
    assert max(a for a, _ in pairs) > 2 * max(b for _, b in pairs)
    weight = np.arange(200) % 3
    kept = weight > 0
    names = np.array([f"card {i // 2}" for i in range(200)])
    first = Auto().fit_grouped(logits, labels, names, weight)
    assert first.report_ == Auto().fit_grouped(logits[kept], labels[kept], names[kept], weight[kept]).report_


def test_frequencies_count_as_rows(world):
    logits, labels = world(300, 3, 1.3)
    names, weight = ("identity", "temperature"), np.full(300, 4)
    importance, frequency = (
        max(one.standard_error for one in Auto(names, weight_kind=kind).fit(logits, labels, weight).report_)
        for kind in ("importance", "frequency")
    )
    assert frequency == pytest.approx(importance / 2, rel=0.01)


def test_frequencies_are_rows_seen_again_in_the_candidates_too(world):
    logits, labels = world(200, 2, 3.0)
    counts = np.random.default_rng(2).integers(0, 5, 200)
    options = {"candidates": ("identity", "platt"), "weight_kind": "frequency"}
    weighted = Auto(**options).fit(logits, labels, counts)
    rows = np.repeat(np.arange(200), counts)
    repeated = Auto(("identity", "platt")).fit_grouped(logits[rows], labels[rows], rows)
    for one, other in zip(weighted.report_, repeated.report_, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-9)
    assert weighted.calibrator_.name == repeated.calibrator_.name == "platt"
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), rtol=1e-9)
    with pytest.raises(CalibrationDataError, match="whole number"):
        Auto(**options).fit_grouped(logits, labels, np.arange(200), counts + 0.5)


def test_frequencies_are_rows_seen_again_in_the_prior_of_a_pool(monkeypatch, world):
    logits, labels = world(60, 2, 3.0)
    fold = np.arange(60) % 3
    rows = np.repeat(np.arange(60), 200)
    names = ("identity", "beta", "platt", "pool")
    found = []
    for data, weight, own_fold in ((np.arange(60), np.full(60, 200), fold), (rows, None, fold[rows])):
        monkeypatch.setattr(auto, "folds_of", lambda *_, own_fold=own_fold: own_fold)
        found.append(Auto(names, weight_kind="frequency").fit(logits[data], labels[data], weight))
    for one, other in zip(found[0].report_, found[1].report_, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-6)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)
    np.testing.assert_allclose(*(one.predict_proba(logits) for one in found), rtol=1e-5)


def test_a_method_that_cannot_be_fitted_is_reported_and_left_out(monkeypatch, world):
    def refuse(self, rows):
        raise CalibrationDataError("Bad rows", where="logits", found="these", expected="others")

    monkeypatch.setattr(CALIBRATORS["temperature"], "_fit", refuse)
    calibrator = Auto(("identity", "temperature")).fit(*world(60, 3))
    assert calibrator.calibrator_.name == "identity"
    assert "Bad rows" in calibrator.report_[1].error
    assert from_dict(json.loads(json.dumps(calibrator.to_dict()))).report_ == calibrator.report_


@pytest.mark.parametrize(("classes", "dtype"), [(2, np.float64), (5, np.float32)])
def test_an_impossible_label_raises_all_probabilities_to_the_floor(classes, dtype, world):
    logits, labels = world(500, classes, 2.0, dtype=dtype)
    fresh, truth = world(5000, classes, 2.0, seed=1)
    plain = Auto().fit(logits, labels)
    assert plain.floor_ == 0
    assert plain.warnings_ == []
    logits[7, labels[7]] = -np.inf
    kept = logits.copy()
    calibrator = Auto().fit(logits, labels)
    np.testing.assert_array_equal(logits, kept)
    assert calibrator.calibrator_.name != "identity"
    assert calibrator.floor_ == PROBABILITY_FLOOR / classes
    assert calibrator.warnings_[0].startswith("1 of 500 rows")
    probabilities = calibrator.predict_proba(logits)
    assert np.isfinite(metrics.negative_log_likelihood(probabilities, labels))
    raised = raise_to_floor(logits.astype(np.float64), logits.max(axis=1, keepdims=True), calibrator.floor_)
    expected = CALIBRATORS[calibrator.calibrator_.name]().fit(raised, labels).predict_proba(raised)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    losses = [metrics.negative_log_likelihood(one.predict_proba(fresh), truth) for one in (plain, calibrator)]
    assert losses[1] < losses[0] + 0.02
    again = from_dict(json.loads(json.dumps(calibrator.to_dict())))
    np.testing.assert_array_equal(again.predict_proba(logits), probabilities)
    assert again.warnings_ == calibrator.warnings_
    old = {key: value for key, value in plain.to_dict().items() if key not in ("floor", "warnings")}
    np.testing.assert_array_equal(from_dict(old).predict_proba(fresh), plain.predict_proba(fresh))
    with pytest.raises(CalibrationDataError, match="floor"):
        inverse(calibrator, np.full((1, classes), 1 / classes))


def test_a_fit_that_leaves_an_error_above_its_null_says_so():
    # A hump that no candidate can follow: half of the rows near 0 and near 1 are right, those between are certain.
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 3, 4000)
    labels = (rng.random(4000) < np.where(np.abs(scores) > 3, 0.5, (scores > 0))).astype(int)
    logits = np.stack([np.zeros(4000), scores], axis=1)
    (warning,) = Auto(("identity", "temperature")).fit(logits, labels).warnings_
    assert warning.startswith("Not calibrated: the ECE is")
    assert Auto(("identity", "isotonic")).fit(logits, labels).warnings_ == []
    # Copies of a row are one row, if groups say so: a calibrated model is not accused for them.
    few, truth = rare(100, -1, 3)
    repeated = np.repeat(few, 40, axis=0), np.repeat(truth, 40)
    assert Auto(("identity",)).fit(*repeated).warnings_ != []
    assert Auto(("identity",)).fit_grouped(*repeated, np.repeat(np.arange(100), 40)).warnings_ == []


def test_any_calibrator_can_be_asked_whether_its_error_is_above_its_null(world):
    logits, labels = world(3000, 4, 3.0)
    fit, test = slice(0, 1500), slice(1500, 3000)
    fitted = CALIBRATORS["temperature"]().fit(logits[fit], labels[fit])
    assert calibration_warning(fitted, logits[test], labels[test]) is None
    assert calibration_warning(CALIBRATORS["identity"](), logits[test], labels[test]).startswith("Not calibrated")
    # Copies of a row are one row, if groups say so; rows of weight zero are none.
    few, truth = rare(100, -1, 3)
    repeated, groups = (np.repeat(few, 40, axis=0), np.repeat(truth, 40)), np.repeat(np.arange(100), 40)
    assert calibration_warning(CALIBRATORS["identity"](), *repeated) is not None
    assert calibration_warning(CALIBRATORS["identity"](), *repeated, groups) is None
    assert calibration_warning(CALIBRATORS["identity"](), *repeated, None, np.arange(4000) % 40 == 0) is None


def test_calibrated_models_are_warned_of_one_time_in_twenty():
    warned = sum(bool(Auto(("identity",)).fit(*rare(300, 0, seed)).warnings_) for seed in range(300))
    assert 3 <= warned <= 30


def test_a_single_row_or_group_leaves_the_simplest(world):
    logits, labels = world(50, 3)
    for calibrator in (Auto().fit(logits[:1], labels[:1]), Auto().fit_grouped(logits, labels, np.zeros(50, int))):
        assert calibrator.calibrator_.name == "identity"
        assert calibrator.report_[0].loss is None
        assert "fewer than 2" in calibrator.report_[1].error


def test_takes_over_what_the_chosen_method_keeps(world):
    logits, labels = world(300, 3, 8.0)
    calibrator = Auto(("histogram", "identity")).fit(logits, labels)
    assert calibrator.calibrator_.name == "histogram"
    assert calibrator.top_label_only
    assert from_dict(calibrator.to_dict()).top_label_only


def test_the_lists_are_ordered_and_known():
    for names in (BINARY, MULTICLASS):
        assert names[0] == "identity"
        assert names[-1] == "pool"
        assert set(names[:-1]) < set(CALIBRATORS)


def test_bad_options_and_documents_are_refused(world):
    for options in (
        {"candidates": ["magic", "identity"]},
        {"candidates": ["temperature"]},
        {"candidates": ["identity", "identity"]},
        {"candidates": ["identity", "auto"]},
        {"candidates": []},
        {"candidates": ["pool"]},
        {"candidates": {"identity", "temperature"}},
        {"candidates": {"identity": 1, "temperature": 2}},
        {"candidates": "identity"},
        {"candidates": 3},
        {"folds": 1},
        {"seed": -1},
        {"weight_kind": "x"},
    ):
        with pytest.raises(CalibrationDataError, match=next(iter(options))):
            Auto(**options)
    document = Auto(["identity", "temperature"]).fit(*world(100, 3)).to_dict()
    report = document["report"]
    for change in (
        {"report": report[::-1]},
        {"report": [{**report[0], "loss": "x"}, report[1]]},
        {"report": [{**report[0], "surplus": 1}, report[1]]},
        {"report": [{**report[0], "error": "It failed"}, report[1]]},
        {"report": [{**one, "loss": None, "difference": None, "standard_error": None, "error": "x"} for one in report]},
        {"report": [{**report[0], "loss": None}, report[1]]},
        {"report": [report[0], {**report[1], "standard_error": None}]},
        {"report": [report[0], {**report[1], "standard_error": -0.1}]},
        {"report": [{**report[0], "loss": -0.1}, report[1]]},
        {"candidates": ["identity", "vector"]},
        {"calibrator": document},
        {"floor": 0.5},
        {"warnings": [1]},
        {"calibrator": {"method": "platt"}},
    ):
        with pytest.raises(CalibrationDataError):
            from_dict({**document, **change})
