from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

from calibrators import CALIBRATORS, Auto, CalibrationDataError, from_dict, inverse, margin_thresholds, metrics
from calibrators.fitting.pool_weights import pool_weights
from calibrators.methods.pool import Pool


def stepped(rows, classes, seed):
    """Logits whose true probabilities are half a softmax at temperature 3, and half one at 0.7: no single method's."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2.5, (rows, classes))
    shares = 0.5 * special.softmax(logits / 3, axis=1) + 0.5 * special.softmax(logits / 0.7, axis=1)
    return logits, (shares.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(0, classes - 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("prior", [0.0, 0.01, 10.0])
def test_weights_satisfy_the_conditions_of_the_optimum(seed, prior):
    rng = np.random.default_rng(seed)
    own, share = rng.beta(2, 1, (500, 6)), rng.dirichlet(np.ones(500))
    own[:, 5] = own[:, 0]  # equal members share their weight in any way
    weights = pool_weights(own, share, prior)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    # Karush-Kuhn-Tucker: the slope of a member is 1 + prior if it has weight, and at most that if not.
    slopes = (share / (own @ weights)) @ own + prior / 6 / np.maximum(weights, 1e-9)
    assert slopes[weights > 1e-6].max() <= 1 + prior + 1e-2 * prior + 1e-5
    np.testing.assert_allclose(slopes[weights > 1e-3], 1 + prior, rtol=1e-3)
    if prior == 10.0:
        np.testing.assert_allclose(weights, 1 / 6, atol=0.02)


def test_weights_of_two_members_in_closed_form():
    # A share q of rows has label probabilities (a, b), the others (b, a): the mixture's are q and 1 − q, if inside.
    a, b, q = 0.9, 0.2, 0.55
    own = np.array([[a, b], [b, a]])
    weight = pool_weights(own, np.array([q, 1 - q]))[0]
    assert weight == pytest.approx((q * (a + b) - b) / (a - b), abs=1e-5)
    np.testing.assert_allclose(pool_weights(own, np.array([1.0, 0.0])), [1, 0], atol=1e-8)


def test_a_pool_is_the_mean_of_its_members_and_never_behind_their_mean_loss(world):
    logits, labels = world(400, 4, 1.6)
    members = [CALIBRATORS[name]().fit(logits, labels) for name in ("identity", "temperature", "isotonic_multiclass")]
    weights = np.array([0.2, 0.5, 0.3])
    pool = Pool(members, weights)
    expected = sum(w * one.predict_proba(logits) for w, one in zip(weights, members, strict=True))
    probabilities = pool.predict_proba(logits)
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)
    losses = [metrics.negative_log_likelihood(one.predict_proba(logits), labels) for one in members]
    assert metrics.negative_log_likelihood(probabilities, labels) <= weights @ losses
    again = Pool.from_dict(json.loads(json.dumps(pool.to_dict())))
    np.testing.assert_array_equal(again.predict_proba(logits), probabilities)
    np.testing.assert_array_equal(pool.fit(logits, labels).predict_proba(logits), probabilities)
    for members_of, weights_of in (([], []), (members, [0.5, 0.5]), (members, [0.5, 0.6, -0.1]), (members, [1, 1, 1])):
        with pytest.raises(CalibrationDataError, match="weights"):
            Pool(members_of, weights_of)
    document = pool.to_dict()
    for change in (
        {"weights": [0.2, 0.5]},
        {"weights": [0.2, 0.5, 0.4]},
        {"members": []},
        {"classes": 3},
        {"members": [*document["members"][:2], {"method": "auto"}]},
    ):
        with pytest.raises(CalibrationDataError):
            Pool.from_dict({**document, **change})


@pytest.mark.parametrize("classes", [2, 5])
def test_auto_mixes_where_no_method_fits(classes):
    logits, labels = stepped(3000, classes, 0)
    fresh, truth = stepped(20_000, classes, 1)
    auto = Auto().fit(logits, labels)
    assert auto.calibrator_.name == "pool"
    report = {one.name: one for one in auto.report_}
    assert report["pool"].loss <= min(one.loss for one in auto.report_) + 1e-3
    probabilities = auto.predict_proba(fresh)
    single = CALIBRATORS["temperature"]().fit(logits, labels).predict_proba(fresh)
    losses = [metrics.negative_log_likelihood(one, truth) for one in (probabilities, single)]
    assert losses[0] < losses[1] - 0.002
    assert (
        dict(zip([one.name for one in auto.calibrator_.members], auto.calibrator_.weights, strict=True))["temperature"]
        >= 0.0099
    )
    document = json.loads(json.dumps(auto.to_dict()))
    np.testing.assert_array_equal(from_dict(document).predict_proba(fresh), probabilities)
    assert from_dict(document).to_dict() == auto.to_dict()
    with pytest.raises(CalibrationDataError, match="pool"):
        inverse(auto, probabilities[:1])


def test_a_pool_of_two_classes_keeps_the_order():
    logits, labels = stepped(2000, 2, 0)
    auto = Auto().fit(logits, labels)
    assert auto.calibrator_.name == "pool"
    margins = np.linspace(-8, 8, 4001)
    chances = auto.predict_proba(np.stack([np.zeros(4001), margins], axis=1))[:, 1]
    assert (np.diff(chances) >= -1e-15).all()
    cut = margin_thresholds(auto, 0.8)
    assert ((chances >= 0.8) == (margins >= cut)).all()


def test_a_pool_never_replaces_what_is_calibrated_at_a_loss(world):
    fresh, truth = world(20_000, 4, 1.0, seed=99)
    plain = metrics.negative_log_likelihood(CALIBRATORS["identity"]().predict_proba(fresh), truth)
    excess = [
        metrics.negative_log_likelihood(Auto().fit(*world(500, 4, 1.0, seed)).predict_proba(fresh), truth) - plain
        for seed in range(10)
    ]
    assert np.mean(excess) < 0.003
    assert max(excess) < 0.02


def test_groups_of_copies_count_once():
    logits, labels = stepped(300, 3, 2)
    repeated = np.repeat(logits, 5, axis=0), np.repeat(labels, 5)
    grouped = Auto().fit_grouped(*repeated, np.repeat(np.arange(300), 5))
    naive = Auto().fit(*repeated)
    pools = [next(one for one in auto.report_ if one.name == "pool") for auto in (grouped, naive)]
    assert pools[0].loss > pools[1].loss
