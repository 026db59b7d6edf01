from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from calibrators import CalibrationDataError, OnlinePlatt


def losses(stream, logits, labels):
    """Return the log losses of the forecasts (T,) and of every map (T, M); an adversary chooses a label of None."""
    own, maps = [], []
    for logit, given in zip(logits, labels, strict=True):
        forecast = stream.forecast(logit)
        label = int(forecast < 0.5) if given is None else int(given)
        own.append(-np.log(forecast if label else 1 - forecast))
        maps.append(-stream.log_likelihoods(logit, label))
        stream.update(logit, label)
    return np.array(own), np.array(maps)


@pytest.mark.parametrize("share", [0.0, 1e-3, 0.05])
def test_no_stream_costs_more_than_the_bound(share):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, 1500)
    # An adversary who always contradicts, and a world that turns around twice.
    own, maps = losses(OnlinePlatt(share), logits, [None] * 1500)
    assert own.sum() <= maps.sum(axis=0).min() + OnlinePlatt(share).regret_bound(1500)
    shift = np.repeat([0.0, 4.0, -4.0], 500)
    own, maps = losses(OnlinePlatt(share), logits, rng.random(1500) < special.expit(0.4 * logits + shift))
    turning = sum(maps[part : part + 500].sum(axis=0).min() for part in (0, 500, 1000))
    assert own.sum() <= turning + OnlinePlatt(share).regret_bound(1500, changes=2)
    if share == 1e-3:
        # It follows: far better than the best fixed map, and close to the three best.
        assert own.sum() < maps.sum(axis=0).min() - 100
        assert OnlinePlatt(share).regret_bound(1500, changes=2) < 40


def test_a_map_can_come_back_from_any_number_of_labels_against_it():
    # After 1,000 labels of 0 the map that is best of all 5,000 has a likelihood below e^-745 of the best one's, which
    # float64 cannot hold; the first row's label has a probability below e^-94 under every map.
    stream, own, maps = OnlinePlatt(share=0), 0.0, 0.0
    for logit, label in [(1000.0, 0), *[(0.0, 0)] * 1000, *[(0.0, 1)] * 4000]:
        own -= stream.log_forecast(logit, label)
        maps = maps - stream.log_likelihoods(logit, label)
        stream.update(logit, label)
    assert maps.min() > 2500
    assert own <= maps.min() + stream.regret_bound(5001) + 1e-6


def test_calibeating_removes_what_no_platt_map_can():
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1.5, 6000)
    labels = rng.random(6000) < 0.5 + 0.4 * np.tanh(3 * (np.abs(logits) - 1)) * np.sign(logits)
    stream, plain, beaten = OnlinePlatt(), [], []
    for logit, label in zip(logits, labels, strict=True):
        plain.append(stream.forecast(logit))
        beaten.append(stream.calibrated(logit))
        stream.update(logit, int(label))

    def error(forecasts):
        bins = (np.array(forecasts[1000:]) * 15).astype(int)
        gaps = np.bincount(bins, np.array(forecasts[1000:]) - labels[1000:])
        return np.abs(gaps).sum() / 5000

    assert error(beaten) < error(plain) / 2
    assert stream.labels_ == 6000


def test_bad_input_is_refused():
    for options in ({"share": 1.0}, {"share": True}, {"bins": 0}):
        with pytest.raises(CalibrationDataError, match=next(iter(options))):
            OnlinePlatt(**options)
    for logit, label in ((np.nan, 1), (np.inf, 1), ("1", 1), (1.0, 2), (1.0, True)):
        with pytest.raises(CalibrationDataError, match="Bad l"):
            OnlinePlatt().update(logit, label)
        with pytest.raises(CalibrationDataError, match="Bad l"):
            OnlinePlatt().log_forecast(logit, label)


def test_the_largest_logit_teaches_and_does_not_break():
    for share in (0.0, 1e-3):
        online = OnlinePlatt(share=share)
        for logit in (1.7e308, -1.7e308, 1e20):
            online.update(logit, int(logit < 0))
            assert sum(math.exp(online.log_forecast(0.5, label)) for label in (0, 1)) == pytest.approx(1)


def test_labels_and_changes_that_do_not_fit_are_refused():
    online = OnlinePlatt()
    for label in (np.array([1, 0]), "1", True, 2):
        with pytest.raises(CalibrationDataError, match="Bad label"):
            online.update(1.0, label)
    for labels, changes in ((0, 0), ("5", 0), (5, -1), (5, 5)):
        with pytest.raises(CalibrationDataError):
            online.regret_bound(labels, changes)
