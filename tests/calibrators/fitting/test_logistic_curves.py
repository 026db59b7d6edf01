"""Platt, beta and quadratic where rows are many or strange: fitted by passes over chunks, after samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from calibrators import Beta, CalibrationDataError, CalibrationFitError, Platt, Quadratic
from calibrators.fitting.log_odds import log_odds_against_rest, probabilities_against_rest, row_totals
from calibrators.fitting.logistic import Expansions, minimum
from calibrators.validation import LabelledRows
from tests.memory import most_traced

METHODS = pytest.mark.parametrize("method", [Platt, Beta, Quadratic])


def features(method, scores):
    ones = np.ones_like(scores)
    if method is Beta:
        return np.stack([special.log_expit(scores), -special.log_expit(-scores), ones], axis=1)
    return np.stack([scores, ones] if method is Platt else [scores**2, scores, ones], axis=1)


def parameters(calibrator, curve=0):
    """Of the features above."""
    if isinstance(calibrator, Beta):
        return calibrator.coefficients_[curve]
    if isinstance(calibrator, Platt):
        return np.array([calibrator.slopes_[curve], calibrator.intercepts_[curve]])
    (a, b, c), m, d = calibrator.coefficients_[curve], calibrator.centres_[curve], calibrator.scales_[curve]
    return np.array([a / d**2, b / d - 2 * a * m / d**2, a * (m / d) ** 2 - b * m / d + c])


def targets_of(method, hits, weight):
    if method is not Platt:
        return hits.astype(np.float64)
    rows = weight.sum() ** 2 / (weight @ weight)
    positives = rows * (weight @ hits) / weight.sum()
    return np.where(hits, (positives + 1) / (positives + 2), 1 / (rows - positives + 2))


def optimum(columns, targets, weight):
    """By scikit-learn's Newton method in float64, each row once as a hit and once as a miss; and its mean log loss."""
    scale = np.abs(columns[:, :-1]).mean(axis=0)
    fit = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-13, max_iter=500).fit(
        np.concatenate([columns[:, :-1] / scale] * 2),
        np.repeat([1, 0], len(targets)),
        np.concatenate([weight * targets, weight * (1 - targets)]),
    )
    found = np.append(fit.coef_[0] / scale, fit.intercept_)
    return found, loss(found, columns, targets, weight)


def loss(theta, columns, targets, weight):
    scores = columns @ theta
    return np.average(np.logaddexp(0, scores) - targets * scores, weights=weight)


def rare(rows, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(-3, 2.5, rows).astype(np.float32)
    height = rng.normal(0, 1, rows).astype(np.float32)
    labels = (rng.random(rows) < special.expit(0.7 * scores + 0.3)).astype(int)
    return np.stack([height, height + scores], axis=1), labels


@METHODS
@pytest.mark.parametrize("weighted", [False, True])
def test_many_rows_reach_the_optimum_of_scikit_learn(method, weighted):
    logits, labels = rare(140_000)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(labels)) if weighted else None
    mass = np.ones(len(labels)) if weight is None else weight
    calibrator = method().fit(logits, labels, weight)
    columns = features(method, logits[:, 1].astype(np.float64) - logits[:, 0])
    targets = targets_of(method, labels == 1, mass)
    expected, least = optimum(columns, targets, mass)
    found = parameters(calibrator)
    assert loss(found, columns, targets, mass) <= least + 1e-10
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@METHODS
def test_a_sample_that_misleads_does_no_harm(method):
    logits, labels = rare(80_000)
    labels[::8] = logits[::8, 1] > logits[::8, 0]  # every row that samples see is right
    calibrator = method().fit(logits, labels)
    columns, mass = features(method, logits[:, 1].astype(np.float64) - logits[:, 0]), np.ones(len(labels))
    targets = targets_of(method, labels == 1, mass)
    assert loss(parameters(calibrator), columns, targets, mass) <= optimum(columns, targets, mass)[1] + 1e-9


@METHODS
def test_each_of_many_curves_over_many_rows_reaches_its_optimum(method, world):
    logits, labels = world(70_000, 4, 1.6, dtype=np.float32)
    labels[labels == 3] = 2  # a class that never happens
    calibrator = method().fit(logits, labels)
    mass = np.ones(len(labels))
    for k in range(3):
        others = special.logsumexp(np.delete(logits, k, axis=1).astype(np.float64), axis=1)
        columns = features(method, logits[:, k] - others)
        targets = targets_of(method, labels == k, mass)
        # Curves of beta calibration are shrunk: test_beta.py has their exact optimum.
        slack = 1e-5 if method is Beta else 1e-8
        assert loss(parameters(calibrator, k), columns, targets, mass) <= optimum(columns, targets, mass)[1] + slack
    assert calibrator.predict_proba(logits)[:, 3].mean() < 1e-3


@METHODS
@pytest.mark.parametrize("rows", [300, 40_000])
def test_integer_weights_equal_repeated_rows(method, rows):
    logits, labels = rare(rows, seed=3)
    counts = np.random.default_rng(2).integers(0, 4, rows)
    options = {"weight_kind": "frequency"} if method is Platt else {}
    weighted = method(**options).fit(logits, labels, counts)
    repeated = method(**options).fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(parameters(weighted), parameters(repeated), rtol=1e-5, atol=1e-6)


@METHODS
def test_a_few_far_rows_do_not_spoil_the_others(method):
    logits, labels = rare(400, seed=1)
    logits = logits.astype(np.float64)
    logits[:2] = [[0, 1e5], [0, -3e4]]
    labels[:2] = [1, 0]
    columns = features(method, logits[:, 1] - logits[:, 0])
    mass = np.ones(len(labels))
    targets = targets_of(method, labels == 1, mass)
    found = loss(parameters(method().fit(logits, labels)), columns, targets, mass)
    start = parameters(method().fit(logits[2:], labels[2:]))
    scale = np.maximum(np.median(np.abs(columns), axis=0), 1e-3)
    least = optimize.minimize(
        lambda theta: loss(theta / scale, columns, targets, mass),
        start * scale,
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    ).fun
    assert found <= least + 1e-7


@METHODS
@pytest.mark.parametrize("classes", [2, 3])
def test_impossible_classes_teach_nothing(method, classes, world):
    logits, labels = world(600, classes, 1.5)
    without = logits.copy()
    gone = np.arange(0, 600, 3)
    without[gone] = -np.inf
    without[gone, labels[gone]] = 1.0
    kept = np.setdiff1d(np.arange(600), gone)
    np.testing.assert_allclose(
        method().fit(without, labels).predict_proba(logits),
        method().fit(logits[kept], labels[kept]).predict_proba(logits),
        atol=1e-7,
    )


@pytest.mark.parametrize(
    "calibrator", [Platt(), Platt(on="margin"), Beta(), Quadratic()], ids=["platt", "margin", "beta", "quadratic"]
)
def test_where_no_row_differs_scores_keep_their_slope(calibrator):
    calibrator.fit(np.tile([0.0, 2.0], (8, 1)), [1, 1, 1, 1, 1, 1, 0, 0])
    share = (6 * 7 / 8 + 2 * 1 / 4) / 8 if isinstance(calibrator, Platt) else 6 / 8
    chances = calibrator.predict_proba([[0.0, 2.0], [0.0, 2.5]])[:, 1]
    assert chances[0] == pytest.approx(share, abs=1e-7)
    assert special.logit(chances[1]) - special.logit(chances[0]) == pytest.approx(0.5, abs=1e-9)


@METHODS
def test_a_memory_map_adds_a_few_megabytes(method, tmp_path):
    logits, labels = rare(400_000)
    np.save(tmp_path / "logits.npy", logits)
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    assert most_traced(lambda: method().fit(mapped, labels)) < 16e6
    assert method().fit(mapped, labels).to_dict() == method().fit(logits, labels).to_dict()


@METHODS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_cannot_be_used_is_named_wherever_it_stands(method, bad):
    logits, labels = rare(100_000)
    logits[99_999, 0] = bad
    with pytest.raises(CalibrationDataError, match=r"logits\[99999, 0\]"):
        method().fit(logits, labels)
    logits[99_999] = [0, -np.inf]
    labels[99_999] = 1
    with pytest.raises(CalibrationDataError, match=r"logits\[99999, 1\]"):
        method().fit(logits, labels)


def test_log_odds_against_the_rest_are_exact():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 5, (200, 5))
    logits[0] = [1e4, 0, -5, 3, -np.inf]
    logits[1] = [-np.inf, -np.inf, 7, -np.inf, -np.inf]
    logits[2] = 4
    logits[3] = [800, 40, 40, 0, 0]
    expected = np.empty_like(logits)
    with np.errstate(invalid="ignore"):
        for k in range(5):
            expected[:, k] = logits[:, k] - special.logsumexp(np.delete(logits, k, axis=1), axis=1)
    expected[1] = [-np.inf, -np.inf, np.inf, -np.inf, -np.inf]
    found = log_odds_against_rest(logits.copy(), logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    totals = row_totals(LabelledRows(logits, logits.argmax(axis=1), None))
    for k in range(5):  # read class by class, they are the same to the last bit
        np.testing.assert_array_equal(totals.log_odds(logits[50:, k], k, slice(50, 200)), found[50:, k])
        np.testing.assert_array_equal(totals.log_odds(logits[:50, k], k, slice(0, 50)), found[:50, k])
    chances = probabilities_against_rest(logits.copy(), logits.max(axis=1, keepdims=True))
    marked = np.where(np.isinf(expected), expected, special.expit(expected))
    np.testing.assert_allclose(chances, marked, rtol=1e-13, atol=1e-300)
    for k in range(5):
        np.testing.assert_array_equal(totals.probabilities(logits[50:, k], k, slice(50, 200)), chances[50:, k])
        np.testing.assert_array_equal(totals.probabilities(logits[:50, k], k, slice(0, 50)), chances[:50, k])


@METHODS
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e307, 1e154, 1e-200, 1e-310])
def test_numbers_near_the_ends_of_their_range(method, classes, scale, world):
    logits, labels = world(300, classes, 1.5)
    plain = method().fit(logits, labels)
    scaled = method().fit(logits * scale, labels)
    assert np.isfinite(scaled.predict_proba(logits * scale)).all()
    if method is Platt and classes == 2 and scale > 1e-300:
        np.testing.assert_allclose(scaled.predict_proba(logits * scale), plain.predict_proba(logits), atol=1e-9)


@METHODS
def test_it_takes_as_long_as_it_must_where_classes_are_separable(method):
    scores = np.concatenate([np.linspace(-9, -1, 20_000), np.linspace(1, 9, 20_000)])
    labels = (scores > 0).astype(int)
    calibrator = method().fit(np.stack([np.zeros(40_000), scores], axis=1), labels)
    probabilities = calibrator.predict_proba(np.stack([np.zeros(40_000), scores], axis=1))
    assert (probabilities.argmax(axis=1) == labels).all()
    assert np.log(probabilities[np.arange(40_000), labels]).mean() > -1e-3


def test_a_class_whose_rows_weigh_next_to_nothing():
    # The squares of such weights, relative to the largest, vanish.
    logits = np.array([[1.0, 0.0, -np.inf], [0.0, 1.0, 0.5], [0.0, 0.2, 0.5]])
    weight = np.array([1e100, 1e-99, 1e-99])
    calibrator = Platt().fit(logits, np.array([0, 1, 2]), weight)
    assert 0 < calibrator.slopes_[2] < Platt().fit(logits[1:], np.array([1, 2])).slopes_[2]


def test_an_objective_that_is_not_a_number_is_a_failure_and_no_endless_search():
    def expand(theta, curves):
        at = Expansions(theta)
        at.value[:], at.gradient[:], at.hessian[:] = np.nan, np.nan, np.eye(2)
        return at

    with pytest.raises(CalibrationFitError, match="nan"):
        minimum(expand, np.zeros((1, 2)))
