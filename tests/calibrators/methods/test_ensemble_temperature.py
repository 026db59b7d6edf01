from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from calibrators import CalibrationDataError, EnsembleTemperature, Temperature, metrics, softmax
from calibrators.fitting.mixture import mixture_weights


def likelihood(weights, chances, share):
    return share @ np.log(chances @ weights)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), components=st.integers(1, 6), rows=st.integers(1, 60))
def test_mixture_weights_agree_with_expectation_maximisation(seed, components, rows):
    rng = np.random.default_rng(seed)
    chances, share = rng.gamma(0.5, size=(rows, components)) + 1e-9, rng.dirichlet(np.ones(rows))
    slow = np.full(components, 1 / components)
    for _ in range(2000):
        slow = slow * (share @ (chances / (chances @ slow)[:, None]))
    found = mixture_weights(lambda: [(chances, share)], components)
    assert likelihood(found, chances, share) >= likelihood(slow, chances, share) - 1e-9
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_the_optimum_given_the_temperature(weighted, world):
    logits, labels = world(900, 5, 1.8)
    labels = np.where(np.arange(900) % 9 == 0, np.arange(900) % 5, labels)
    weight = np.random.default_rng(1).uniform(0.1, 2, 900) if weighted else None
    calibrator = EnsembleTemperature().fit(logits, labels, weight)
    assert calibrator.temperature_ == Temperature().fit(logits, labels, weight).temperature_
    rows = np.arange(900)
    chances = np.stack(
        [softmax(logits / calibrator.temperature_)[rows, labels], softmax(logits)[rows, labels], np.full(900, 0.2)],
        axis=1,
    )
    share = np.full(900, 1 / 900) if weight is None else weight / weight.sum()
    best = optimize.minimize(
        lambda w: -likelihood(w, chances, share),
        [0.4, 0.3, 0.3],
        bounds=[(1e-9, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert likelihood(calibrator.weights_, chances, share) >= -best.fun - 1e-7


def test_never_behind_temperature_on_its_own_rows_and_ahead_on_wrong_labels():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 5, (4000, 4))
    labels = np.where(rng.random(4000) < 0.15, rng.integers(0, 4, 4000), np.argmax(logits, axis=1))
    ensemble, single = (
        metrics.negative_log_likelihood(method().fit(logits, labels).predict_proba(logits), labels)
        for method in (EnsembleTemperature, Temperature)
    )
    assert ensemble < single - 0.01
    assert EnsembleTemperature().fit(logits, labels).weights_[2] > 0.05


@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_arg_max(classes, dtype, world):
    logits, labels = world(1000, classes, 2.5, dtype=dtype)
    probabilities = EnsembleTemperature().fit(logits, labels).predict_proba(logits)
    assert (probabilities[np.arange(1000), logits.argmax(axis=1)] == probabilities.max(axis=1)).all()


def test_the_formula_and_impossible_classes(world):
    logits, labels = world(500, 4, 1.5)
    labels[::5] = 0
    calibrator = EnsembleTemperature().fit(logits, labels)
    w, temperature = calibrator.weights_, calibrator.temperature_
    expected = w[0] * softmax(logits / temperature) + w[1] * softmax(logits) + w[2] / 4
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected, atol=1e-12)
    found = calibrator.predict_proba([[0.0, -np.inf, 1.0, -np.inf]])[0]
    assert found[1] == found[3] == 0
    inner = w[0] * softmax([[0.0, 1.0 / temperature]]) + w[1] * softmax([[0.0, 1.0]])
    np.testing.assert_allclose(found[[0, 2]], inner[0] + w[2] / 2, atol=1e-12)


def test_weights_that_do_not_add_up_are_refused(world):
    document = EnsembleTemperature().fit(*world(100, 3)).to_dict()
    with pytest.raises(CalibrationDataError, match="a sum of 1"):
        EnsembleTemperature.from_dict({**document, "weights": [0.5, 0.2, 0.1]})


@pytest.mark.parametrize("share", [[0.5, 0.5], [1 - 1e-9, 1e-9], [1e-12, 1 - 1e-12]])
@pytest.mark.parametrize("tiny", [1e-3, 1e-150, 0.0])
def test_mixture_weights_of_rows_that_only_one_component_explains(share, tiny):
    chances, share = np.array([[1.0, tiny], [tiny, 1.0]]), np.array(share)
    found = mixture_weights(lambda: [(chances, share)], 2)
    expected = np.clip((share - tiny * share[::-1]) / (1 - tiny), 0, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e300])
@pytest.mark.parametrize("seed", range(4))
def test_weights_however_unlike_give_an_optimum(seed, scale, classes, world):
    logits, labels = world(300, classes, 1.5, seed=seed)
    for weight in (
        10.0 ** np.random.default_rng(seed).uniform(-100, 100, 300),
        np.append(1e100, np.full(299, 1e-100)),
        np.full(300, 1e100),
        np.full(300, 1e-100),
    ):
        calibrator = EnsembleTemperature().fit(logits * scale, labels, weight)
        share = weight / weight.max()
        losses = [
            share @ -np.log(np.maximum(one.predict_proba(logits * scale)[np.arange(300), labels], 1e-300))
            for one in (calibrator, Temperature().fit(logits * scale, labels, weight))
        ]
        assert losses[0] <= losses[1] + 1e-7 * share.sum()
