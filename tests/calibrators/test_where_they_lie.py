"""Where calibrators could lie: what each says of itself is held to, in worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from calibrators import CALIBRATORS, from_dict, metrics, softmax
from calibrators.methods.auto import MULTICLASS

TOP_LABEL = ["histogram", "scaling_binning", "spline"]
ONE_VS_REST = ["isotonic", "centred_isotonic", "enir"]


@pytest.mark.parametrize("name", TOP_LABEL)
@pytest.mark.parametrize("classes", [3, 10])
def test_the_rest_keeps_its_proportions(name, classes, world):
    logits, labels = world(500, classes, 2.0)
    calibrator = CALIBRATORS[name]().fit(logits, labels)
    probabilities = calibrator.predict_proba(logits)
    others = np.arange(classes) != logits.argmax(axis=1)[:, None]
    scale = getattr(calibrator, "temperature_", 1.0)
    raw = softmax(logits / scale)[others].reshape(500, -1)
    rest = probabilities[others].reshape(500, -1)
    np.testing.assert_allclose(rest / rest.sum(1, keepdims=True), raw / raw.sum(1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("name", TOP_LABEL)
def test_label_and_confidence_are_those_that_were_calibrated(name, world):
    """A fifth of all rows right: the calibrated confidence is below other entries, and still belongs to the label."""
    logits, _ = world(4000, 4, 1.0)
    rng = np.random.default_rng(0)
    top = logits.argmax(axis=1)
    labels = np.where(rng.random(4000) < 0.2, top, (top + rng.integers(1, 4, 4000)) % 4)
    calibrator = CALIBRATORS[name]().fit(logits, labels)
    probabilities = calibrator.predict_proba(logits)
    label, confidence = calibrator.top_label(logits, probabilities)
    np.testing.assert_array_equal(label, top)
    assert (probabilities.max(axis=1) > confidence).any()
    # A temperature cannot make the largest of four smaller than a quarter; the others can, and another class leads.
    if name != "scaling_binning":
        assert (probabilities.max(axis=1) > confidence).mean() > 0.5
        assert confidence.mean() == pytest.approx(0.2, abs=0.01)
        assert metrics.calibration_test(probabilities, labels, predicted=label).error < 0.05


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("on", ["top_label", "per_class"])
def test_a_bin_of_a_histogram_is_never_certain(scheme, on, world):
    logits, _ = world(200, 3)
    calibrator = CALIBRATORS["histogram"](scheme=scheme, on=on).fit(logits, logits.argmax(axis=1))
    if on == "top_label" and scheme == "mass":
        rows = np.array([(right + 0.5) / (right + 1) for right in range(10, 20)])
        assert np.isin(calibrator.values_[0].round(12), rows.round(12)).all()
    assert all(((values > 0) & (values < 1)).all() for values in calibrator.values_)


@pytest.mark.parametrize("name", ONE_VS_REST)
def test_a_row_of_nothing_but_zeros_is_its_softmax(name, world):
    logits, labels = world(300, 4)
    document = CALIBRATORS[name]().fit(logits, labels).to_dict()
    document["outputs"] = [[0.0] * len(curve) for curve in document["outputs"]]
    np.testing.assert_allclose(from_dict(document).predict_proba(logits), softmax(logits), rtol=1e-12)


@pytest.mark.parametrize("slope", [0.5, 1.0, 3.0])
def test_one_of_the_two_of_venn_abers_is_calibrated_for_any_number_of_rows(slope):
    """The theorem, for 30 rows: of (p0, p1) the one that the row's own label picks is calibrated."""
    rng = np.random.default_rng(int(slope * 10))
    picked, came = [], []
    for _ in range(600):
        margin = rng.normal(-0.5, 2, 40)
        label = (rng.random(40) < 1 / (1 + np.exp(-slope * margin))).astype(int)
        logits = np.stack([0 * margin, margin], axis=1)
        calibrator = CALIBRATORS["venn_abers"]().fit(logits[:30], label[:30])
        low, high = calibrator.bounds(logits[30:])[:, :, 1]
        picked.append(np.where(label[30:] == 1, high, low))
        came.append(label[30:])
    chance, outcome = np.concatenate(picked), np.concatenate(came)
    for lower, upper in ((0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1)):
        inside = (chance >= lower) & (chance <= upper)
        error = 4 * np.sqrt(0.25 / (inside.sum() / 10))
        assert abs(outcome[inside].mean() - chance[inside].mean()) < min(error, 0.08)


def test_the_bounds_of_venn_abers_bracket_its_probability(world):
    logits, labels = world(200, 2, 1.5)
    calibrator = CALIBRATORS["venn_abers"]().fit(logits, labels)
    low, high = calibrator.bounds(logits)
    probabilities = calibrator.predict_proba(logits)
    assert ((low <= probabilities) & (probabilities <= high)).all()


def test_a_temperature_stays_in_its_range_and_says_when_it_stopped(world):
    logits, labels = world(400, 3, 1.0)
    for values, truth, bound in (
        (logits, logits.argmax(axis=1), 0.05),
        (logits * 1e3, labels, 20.0),
        (logits, logits.argmin(axis=1), 20.0),
    ):
        for name in ("temperature", "ensemble_temperature", "structured_vector", "scaling_binning"):
            calibrator = CALIBRATORS[name]().fit(values, truth)
            assert calibrator.temperature_ == bound
            assert calibrator.at_bound_
    assert not CALIBRATORS["temperature"]().fit(logits, labels).at_bound_


def test_a_prior_shift_is_told_apart_from_none():
    """Pure label shift, a calibrated source: the interval holds the truth, and does not hold the source's priors."""
    rng = np.random.default_rng(4)

    def draw(rows, share):
        label = (rng.random(rows) < share).astype(int)
        margin = rng.normal(2.0 * label - 1, 1.0) * 2
        return np.stack([0 * margin, margin], axis=1), label

    source, labels = draw(4000, 0.5)
    calibrator = CALIBRATORS["prior_shift"]("platt").fit(source, labels)
    target, truth = draw(4000, 0.1)
    calibrator.adapt(target)
    assert calibrator.lower_priors_[1] < 0.1 < calibrator.upper_priors_[1] < calibrator.source_priors_[1]
    adapted = metrics.negative_log_likelihood(calibrator.predict_proba(target), truth)
    assert adapted < metrics.negative_log_likelihood(calibrator.calibrator_.predict_proba(target), truth)


def test_auto_does_not_keep_identity_where_a_temperature_is_needed():
    """At T = 1.3 and 1,000 rows the error of either loss would keep identity nearly always; that of their difference
    does not."""
    rng = np.random.default_rng(7)
    kept = marginal = 0
    for _ in range(40):
        logits = rng.normal(0, 2, (1000, 10))
        labels = np.argmax(logits / 1.3 + rng.gumbel(size=logits.shape), axis=1)
        auto = CALIBRATORS["auto"](["identity", "temperature"]).fit(logits, labels)
        identity, temperature = auto.report_
        kept += auto.calibrator_.name == "identity"
        own = metrics.log_losses(softmax(logits), labels)
        marginal += identity.loss - temperature.loss <= own.std() / np.sqrt(len(own))
    assert kept <= 4
    assert marginal >= 30


def test_auto_takes_the_simplest_of_equals_and_reports_every_candidate(world):
    kept = 0
    for seed in range(20):
        auto = CALIBRATORS["auto"]().fit(*world(300, 4, 1.0, seed))
        kept += auto.calibrator_.name == "identity"
        assert [one.name for one in auto.report_] == list(MULTICLASS)
        assert all(one.loss is not None and one.standard_error is not None for one in auto.report_)
        assert min(one.difference for one in auto.report_) == pytest.approx(0, abs=1e-12)
    assert kept >= 14
