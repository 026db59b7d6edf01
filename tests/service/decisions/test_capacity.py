"""A daily capacity: who gets its slots, and that labels of what it selects are unbiased when weighted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.decisions.capacity import HOURS_OF_DAY, Hour, bins_of, plan

CAPACITY, HOURLY = 240, 100
DAYLIGHT = [0.2] * 7 + [1.5] * 12 + [0.7] * 5  # volume by hour of the day, relative to `HOURLY`


@dataclass
class Selected:
    """What a stream of rows came to: arrays of shape (N,), and rows by day."""

    day: np.ndarray
    score: np.ndarray
    propensity: np.ndarray
    why: np.ndarray

    @property
    def sought(self) -> np.ndarray:
        return self.why != None  # noqa: E711 — an array


def stream(
    seed: int, *, random_share: float, days: int = 3, surge: float = 1.0, scores: Sequence[float] | None = None
) -> Selected:
    """Select from days of rows; on the last one there are `surge` times as many."""
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    hours: list[Hour] = []
    parts = []
    for number in range(days * HOURS_OF_DAY):
        day = number // HOURS_OF_DAY
        count = rng.poisson(HOURLY * DAYLIGHT[number % HOURS_OF_DAY] * (surge if day == days - 1 else 1.0))
        score = rng.beta(1, 4, count) if scores is None else rng.choice(scores, count)
        hour = plan(hours, number, ranked_slots=round(CAPACITY * (1 - random_share)))
        propensity, why = hour.select(bins_of(score / (1 - score)), random_slots=CAPACITY * random_share, draw=draw)
        hours.append(hour)
        parts.append((np.full(count, day), score, np.array(propensity), np.array(why, dtype=object)))
    return Selected(*map(np.concatenate, zip(*parts, strict=True)))


def labelled(rows: Selected, seed: int) -> np.ndarray:
    """Return labels after a drift: half of the positives are where the model sees next to nothing."""
    rate = np.where(rows.score < 0.1, 0.15, 0.6 * rows.score)
    return (np.random.default_rng(seed + 10_000).random(len(rate)) < rate).astype(float)


def errors(random_share: float, worlds: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return the error of the weighted mean of the sought labels in each world, and its estimated standard error."""
    found = []
    for seed in range(worlds):
        rows = stream(seed, random_share=random_share, surge=2.0)
        y, sought, p = labelled(rows, seed), rows.sought, rows.propensity
        terms = np.where(sought, y / np.where(sought, p, 1.0), 0.0)
        spread = np.where(sought, (1 - p) * y**2 / np.where(sought, p, 1.0) ** 2, 0.0)
        found.append((terms.mean() - y.mean(), np.sqrt(spread.sum()) / len(y)))
    error, deviation = np.array(found).T
    return error, deviation


def test_weighted_labels_are_unbiased_with_a_random_share() -> None:
    error, deviation = errors(0.2)
    assert abs(error.mean()) < 3.3 * error.std() / np.sqrt(len(error))  # level 0.1 %
    scaled = error / deviation
    assert 0.85 < scaled.std() < 1.15


def test_they_are_biased_without_one() -> None:
    error, _ = errors(0.0, worlds=30)
    assert error.mean() < -0.03  # most positives are never seen
    assert error.mean() < -20 * error.std() / np.sqrt(len(error))


def test_the_plain_mean_of_what_is_labelled_is_biased_either_way() -> None:
    gaps = []
    for seed in range(20):
        rows = stream(seed, random_share=0.2)
        y = labelled(rows, seed)
        gaps.append(y[rows.sought].mean() - y.mean())
    assert np.mean(gaps) > 0.05


@pytest.mark.parametrize("surge", [0.3, 1.0, 5.0])
def test_the_ranked_part_is_never_exceeded_and_the_whole_is_used(surge: float) -> None:
    rows = stream(3, random_share=0.2, days=4, surge=surge)
    ranked = np.bincount(rows.day[rows.why == "ranked"], minlength=4)
    drawn = np.bincount(rows.day[rows.why == "random"], minlength=4)
    assert (ranked <= 192).all()
    assert ranked[1:].min() > 0.65 * 192
    assert drawn[1] == pytest.approx(48, abs=25)  # within 3.5 standard deviations
    assert drawn[3] < 48 * (1 + np.log(max(surge, 1.0))) + 35
    assert (rows.propensity > 0).all()


def test_the_highest_are_taken_and_low_ones_at_random_only() -> None:
    rows = stream(5, random_share=0.2, days=4)
    late = rows.day > 0
    ranked = rows.score[late & (rows.why == "ranked")]
    of_all = np.quantile(rows.score[late], 1 - 192 / (rows.day == 1).sum())
    assert np.quantile(ranked, 0.1) > 0.8 * of_all
    assert rows.score[late & (rows.why == "random")].mean() < np.quantile(rows.score, 0.75)


def test_ties_share_the_slots_by_chance() -> None:
    rows = stream(7, random_share=0.1, days=3, scores=[0.3])
    late = rows.day == 2
    assert np.bincount(rows.day[rows.why == "ranked"], minlength=3)[2] > 0.8 * 216
    middle = np.median(rows.propensity[late])
    assert 0.05 < middle < 0.3
    first, second = np.array_split(rows.sought[late], 2)
    assert first.mean() == pytest.approx(second.mean(), abs=0.05)


def test_the_first_hour_takes_an_equal_part_at_most() -> None:
    hour = plan([], 0, ranked_slots=240)
    _, why = hour.select([1] * 5_000, random_slots=0.0, draw=random.Random(0))
    assert why.count("ranked") == 10


def ranked(hour: Hour, bins: list[int], room: float = math.inf) -> int:
    """Return how many of these rows are selected by rank."""
    return hour.select(bins, random_slots=0.0, draw=random.Random(0), room=room)[1].count("ranked")


def worked(day: int) -> list[Hour]:
    """Return the hours of a day with 100 rows each, ten of them of a high priority."""
    counts = {1: 90, 5: 10}
    return [Hour(day * HOURS_OF_DAY + hour, 9, 0, 1.0, 0, 0, rows=100, counts=counts) for hour in range(9, 17)]


@pytest.mark.parametrize("known", [[1], [0, 1]])
def test_after_quiet_days_the_latest_day_with_rows_is_the_forecast(known: list[int]) -> None:
    earlier = [hour for day in known for hour in worked(day)]
    monday = plan(earlier, 4 * HOURS_OF_DAY + 9, ranked_slots=80)
    assert (monday.cut, monday.tie) == (1, 0.0)  # all of the high ones fill the day
    assert ranked(monday, [1] * 500) == 0
    assert ranked(monday, [5] * 10) == 10


def test_a_day_with_fewer_rows_than_slots_does_not_give_them_all_to_the_next_rows() -> None:
    sunday = [Hour(HOURS_OF_DAY + 9, 9, 0, 1.0, 0, 0, rows=3, counts={1: 3})]
    hour = plan([*worked(0), *sunday], 2 * HOURS_OF_DAY + 9, ranked_slots=78)
    assert ranked(hour, [1] * 500) == 3 + 75 // 15
    assert ranked(plan(worked(0), 9 * HOURS_OF_DAY + 20, ranked_slots=80), [1] * 500) == 20  # nothing is expected


def test_hours_share_the_slots_of_their_day_in_any_order() -> None:
    early, late = (Hour(hour, 10, -1, 1.0, 0, 0) for hour in (3, 9))
    taken = ranked(late, [1] * 8, room=10)
    assert ranked(early, [1] * 8, room=10 - taken) == 2
    assert ranked(early, [1] * 8, room=0) == 0


@given(st.lists(st.floats(0, 1e38), min_size=2, max_size=30))
def test_bins_sort_as_priorities_do(values: list[float]) -> None:
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(bins_of(np.array(values)))[order]) >= 0).all()


def test_odd_priorities_have_bins() -> None:
    assert bins_of(np.array([np.nan, -1.0, 0.0, np.inf])) == [0, 0, 0, bins_of(np.array([1e30]))[0]]
