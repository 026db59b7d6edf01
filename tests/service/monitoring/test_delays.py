"""Label delay by source: what is too young to be seen does not make labels look quick."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, lognorm

from service.monitoring.delays import arrived, by_source

DAY = 86_400.0


def test_without_truncation_it_is_the_empirical_distribution() -> None:
    delay = np.random.default_rng(1).exponential(5.0, 500)
    times, share = arrived(delay, np.full(500, 1e6))
    assert times.tolist() == np.sort(delay).tolist()
    assert share == pytest.approx(np.arange(1, 501) / 500)


def test_young_predictions_do_not_make_labels_look_quick() -> None:
    """Predictions arrive evenly over 90 days, their labels after an exponential time: mean 20 days."""
    rng = np.random.default_rng(2)
    errors, naive = [], []
    for _ in range(100):
        age, delay = rng.uniform(0, 90, 4000), rng.exponential(20, 4000)
        seen = delay <= age
        times, share = arrived(delay[seen], age[seen])
        truth = (1 - np.exp(-10 / 20)) / (1 - np.exp(-90 / 20))
        errors.append(share[np.searchsorted(times, 10.0, side="right") - 1] - truth)
        naive.append((delay[seen] <= 10).mean() - truth)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / 10 + 0.002
    assert np.mean(naive) > 0.07


def test_a_source_that_is_late_is_not_hidden_by_a_quick_one() -> None:
    rng = np.random.default_rng(3)
    now = int(200 * DAY * 1e6)
    age = rng.uniform(0, 150, 6000) * DAY
    slow = rng.uniform(20, 60, 6000) * DAY
    seen = slow <= age
    source = np.array(["reviewer"] * 6000 + ["chargeback"] * int(seen.sum()))
    made = now - np.concatenate([age, age[seen]]) * 1e6
    came = made + np.concatenate([np.minimum(rng.exponential(3600, 6000), age), slow[seen]]) * 1e6
    found = {one["source"]: one for one in by_source(source, made.astype(np.int64), came.astype(np.int64), now)}
    assert found["chargeback"]["median_s"] == pytest.approx(40 * DAY, rel=0.05)
    assert found["chargeback"]["mature_in"] == "60d"
    assert found["reviewer"]["mature_in"] in ("5h", "6h")
    assert found["chargeback"]["curve"][-1][1] == 1


def test_labels_that_still_come_at_the_largest_age_suggest_nothing() -> None:
    rng = np.random.default_rng(4)
    now = int(30 * DAY * 1e6)
    age, slow = rng.uniform(0, 30, 9000) * DAY, rng.uniform(0, 90, 9000) * DAY
    seen = slow <= age
    made = (now - age[seen] * 1e6).astype(np.int64)
    (found,) = by_source(np.full(int(seen.sum()), "bank"), made, made + (slow[seen] * 1e6).astype(np.int64), now)
    assert found["mature_in"] is None
    assert found["oldest_s"] == pytest.approx(30 * DAY, rel=0.01)


def test_a_suggestion_holds_with_confidence_and_one_old_prediction_decides_nothing() -> None:
    rng, now, short = np.random.default_rng(5), int(500 * DAY * 1e6), 0
    for _ in range(100):
        age, delay = rng.uniform(0, 90, 400) * DAY, rng.exponential(5, 400) * DAY
        seen = delay <= age
        age, delay = np.append(age[seen], 400 * DAY), np.append(delay[seen], 380 * DAY)
        made = (now - age * 1e6).astype(np.int64)
        (found,) = by_source(np.full(len(made), "bank"), made, made + (delay * 1e6).astype(np.int64), now)
        assert found["q95_s"] < 25 * DAY
        assert found["oldest_s"] <= 90 * DAY
        short += found["mature_in"] is not None and 1 - np.exp(-int(found["mature_in"][:-1]) / 5) < 0.99
    assert short <= 12  # of 100, at about 5 %


def test_a_suggestion_holds_where_traffic_grows() -> None:
    """By 5 % a day: old predictions are few, so a label that takes long is worth many quick ones."""
    rng, now, said, short = np.random.default_rng(6), int(500 * DAY * 1e6), 0, 0
    for _ in range(100):
        age = -np.log(1 - rng.random(10_000) * (1 - np.exp(-3))) / 0.05 * DAY
        delay = rng.lognormal(0, 1.2, 10_000) * DAY
        seen = delay <= age
        made = (now - age[seen] * 1e6).astype(np.int64)
        (found,) = by_source(np.full(len(made), "bank"), made, made + (delay[seen] * 1e6).astype(np.int64), now)
        if found["mature_in"] is not None:
            said += 1
            short += lognorm.cdf(int(found["mature_in"][:-1]), 1.2) < 0.99
    assert said > 90
    assert short <= binom.ppf(0.999, 100, 0.05)


def test_few_labels_say_nothing() -> None:
    few = np.full(19, 1, np.int64)
    assert by_source(np.full(19, "bank"), few, few + 5, 10) == []
