from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from calibrators import (
    CalibrationDataError,
    Dirichlet,
    Matrix,
    Temperature,
    from_dict,
    logits_from_probabilities,
    metrics,
    softmax,
)

BOTH = pytest.mark.parametrize("method", [Matrix, Dirichlet])


def confused(world, rows, classes, seed=0):
    """Logits that mix the classes, so that a matrix has something to undo."""
    logits, labels = world(rows, classes, 1.3, seed=seed)
    return logits @ (np.eye(classes) + 0.3 * np.eye(classes, k=1)) + np.linspace(0, 1, classes), labels


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
@BOTH
def test_without_penalties_it_is_logistic_regression(method, classes, weighted, world):
    logits, labels = confused(world, 1500, classes)
    weight = np.random.default_rng(0).uniform(0.2, 2, 1500) if weighted else None
    inputs = logits if method is Matrix else np.log(softmax(logits))
    oracle = LogisticRegression(C=1e8, tol=1e-10, max_iter=5000).fit(inputs, labels, weight)
    least = metrics.negative_log_likelihood(oracle.predict_proba(inputs), labels, weight)
    found = method(0.0, 0.0).fit(logits, labels, weight).predict_proba(logits)
    assert metrics.negative_log_likelihood(found, labels, weight) <= least + 1e-7


@BOTH
def test_reaches_the_optimum_of_its_penalised_objective(method, world):
    logits, labels = confused(world, 400, 3)
    inputs = logits if method is Matrix else np.log(softmax(logits))
    centre = inputs.mean(axis=0)
    scale = np.sqrt(np.mean((inputs - centre) ** 2))
    standard = (inputs - centre) / scale
    off, identity = 1 - np.eye(3), np.eye(3)

    def objective(theta):
        weights, intercepts = theta[:9].reshape(3, 3), theta[9:]
        scores = standard @ weights.T + intercepts
        nll = np.mean(special.logsumexp(scores, axis=1) - scores[np.arange(400), labels])
        ridge = 0.5e-6 * (((weights - identity) ** 2).sum() + (intercepts**2).sum())
        return nll + 0.3 * (off * weights**2).sum() / 6 + 0.2 * (intercepts**2).mean() + ridge

    least = optimize.minimize(objective, np.concatenate([identity.ravel(), np.zeros(3)]), options={"gtol": 1e-7}).fun
    calibrator = method(0.3, 0.2).fit(logits, labels)
    weights = calibrator.weights_ * scale
    found = objective(np.concatenate([weights.ravel(), calibrator.intercepts_ + calibrator.weights_ @ centre]))
    assert found == pytest.approx(least, abs=1e-7)


@BOTH
def test_penalties_draw_to_a_diagonal(method, world):
    logits, labels = confused(world, 800, 4)
    strong = method(1e4, 1e4).fit(logits, labels)
    off = ~np.eye(4, dtype=bool)
    assert np.abs(strong.weights_[off]).max() < 1e-3
    assert np.abs(method(0.0, 0.0).fit(logits, labels).weights_[off]).max() > 0.1


@BOTH
def test_better_than_the_softmax_on_fresh_rows(method, world):
    logits, labels = confused(world, 4000, 4)
    fresh, truth = confused(world, 4000, 4, seed=1)
    calibrated = method().fit(logits, labels).predict_proba(fresh)
    assert (
        metrics.negative_log_likelihood(calibrated, truth)
        < metrics.negative_log_likelihood(softmax(fresh), truth) - 0.02
    )


@BOTH
def test_weights_equal_repeated_rows(method, world):
    logits, labels = confused(world, 400, 3)
    counts = np.random.default_rng(0).integers(0, 4, 400)
    weighted = method(1e-2).fit(logits, labels, counts)
    repeated = method(1e-2).fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-5)


def test_dirichlet_sees_probabilities_only(world):
    logits, labels = confused(world, 500, 3)
    heights = np.random.default_rng(0).normal(0, 5, (500, 1))
    calibrator = Dirichlet().fit(logits, labels)
    expected = calibrator.predict_proba(logits)
    np.testing.assert_allclose(calibrator.predict_proba(logits + heights), expected, atol=1e-12)
    np.testing.assert_allclose(
        calibrator.predict_proba(logits_from_probabilities(softmax(logits), 0)), expected, atol=1e-12
    )


@BOTH
def test_impossible_classes_stay_so(method, world):
    logits, labels = confused(world, 300, 3)
    logits[np.arange(300), (labels + 1) % 3] = -np.inf
    probabilities = method().fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(probabilities == 0, np.isneginf(logits))


@BOTH
def test_bad_options_and_documents_are_refused(method, world):
    for penalty in (-1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(CalibrationDataError, match="off_diagonal"):
            method(off_diagonal=penalty)
    document = method().fit(*confused(world, 200, 3)).to_dict()
    for change in ({"weights": document["weights"][:2]}, {"weights": [[1.0]]}, {"intercepts": [0.0, 0.0]}):
        with pytest.raises(CalibrationDataError):
            method.from_dict({**document, **change})


@BOTH
def test_the_penalty_is_chosen_by_folds_that_keep_groups_together(method, world):
    logits, labels = world(1500, 60, 2.0)
    # Confused classes: hardly any penalty. Ten copies of each of few rows teach nothing new, if groups say so.
    assert method().fit(*confused(world, 3000, 4)).off_diagonal_ <= 12 * 0.01
    few, known = confused(world, 60, 4, seed=3)
    copies = np.repeat(few, 10, axis=0), np.repeat(known, 10)
    grouped = method().fit_grouped(*copies, np.repeat(np.arange(60), 10))
    assert (grouped.off_diagonal_ or np.inf) > method().fit(*copies).off_diagonal_
    assert method().fit_grouped(logits, labels, np.zeros(1500, int)).off_diagonal_ is None  # no folds


@BOTH
def test_a_shift_of_the_classes_is_learnt_from_few_labels(method, world):
    logits, labels = world(200, 3, 1.0)
    shifted, plain = method().fit(logits - [1.5, 0, 0], labels), Temperature().fit(logits - [1.5, 0, 0], labels)
    fresh, truth = world(3000, 3, 1.0, seed=1)
    losses = [
        metrics.negative_log_likelihood(one.predict_proba(fresh - [1.5, 0, 0]), truth) for one in (shifted, plain)
    ]
    assert losses[0] < losses[1] - 0.02


@BOTH
@pytest.mark.parametrize(("rows", "classes"), [(6, 3), (30, 3), (20, 10), (300, 10), (1500, 60)])
def test_where_no_class_is_confused_it_is_temperature_scaling(method, rows, classes, world):
    """A given small penalty learns noise instead."""
    logits, labels = world(rows, classes, 2.0)
    fresh, truth = world(3000, classes, 2.0, seed=1)
    chosen, plain = method().fit(logits, labels), Temperature().fit(logits, labels)
    assert chosen.off_diagonal_ is None
    confused_classes = confused(world, 4 * classes, classes)
    assert method().fit(*confused_classes).off_diagonal_ is None, "too few rows to tell"
    np.testing.assert_allclose(chosen.predict_proba(fresh), plain.predict_proba(fresh), atol=2e-6)
    restored = from_dict(chosen.to_dict())
    assert restored.to_dict() == chosen.to_dict()
    np.testing.assert_array_equal(restored.predict_proba(fresh), chosen.predict_proba(fresh))
    noisy = method(1e-2).fit(logits, labels)
    losses = [metrics.negative_log_likelihood(one.predict_proba(fresh), truth) for one in (chosen, noisy)]
    assert losses[0] < losses[1]


@BOTH
def test_a_restored_calibrator_searches_again_unless_its_penalty_was_given(method, world):
    logits, labels = confused(world, 200, 3)
    first = method().fit(logits, labels)
    assert from_dict(first.to_dict()).fit(logits, labels).to_dict() == first.to_dict()
    with pytest.raises(CalibrationDataError, match="Too large"):
        from_dict(first.to_dict()).fit(np.zeros((6001, 100)), np.zeros(6001, int))
    # The field of documents with a given penalty, and of all older ones.
    given = method(12.0).fit(logits, labels).to_dict()
    assert given["off_diagonal"] == 12.0
    assert from_dict(given).fit(*confused(world, 3000, 4)).off_diagonal_ == 12.0


@BOTH
def test_too_much_work_is_refused_with_what_to_use(method):
    with pytest.raises(CalibrationDataError, match=r"at most 6000 rows .* structured_vector or temperature"):
        method().fit(np.zeros((6001, 100)), np.zeros(6001, int))
