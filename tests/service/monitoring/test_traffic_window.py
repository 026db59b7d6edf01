"""Windows join samples of different rates into one in which every row was equally likely."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.monitoring.traffic_window import MOST_ROWS, TrafficWindow


def test_all_rows_stay_while_they_are_few() -> None:
    window = TrafficWindow.empty(5, [2, 3]).joined(
        [np.array([0, 1, 1]), np.array([2, 2, 0])], 1.0, np.random.default_rng(0)
    )
    assert (window.rows, window.rate, [counts.tolist() for counts in window.counts]) == (3, 1.0, [[1, 2], [1, 0, 2]])
    again = TrafficWindow.from_dict(json.loads(json.dumps(window.to_dict())))
    assert again.to_dict() == window.to_dict()


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_a_busy_replica_counts_for_its_traffic(order: slice) -> None:
    """A replica with 20,000 rows of bin 0 shows 2,000 of them; another one has 1,000 rows, all of bin 1."""
    rng = np.random.default_rng(1)
    samples = [(np.zeros(2000, np.int64), 0.1), (np.ones(1000, np.int64), 1.0)][order]
    window = TrafficWindow.empty(0, [2, 2])
    for at, rate in samples:
        window = window.joined([at, at], rate, rng)
    assert window.rate == pytest.approx(0.1)
    for counts in window.counts:
        assert counts.sum() == window.rows
        assert counts[1] / counts.sum() == pytest.approx(1 / 21, abs=0.02)


def test_the_sample_stays_small() -> None:
    rng = np.random.default_rng(2)
    window = TrafficWindow.empty(0, [4])
    for _ in range(12):
        window = window.joined([rng.integers(0, 4, 2000)], 1.0, rng)
    assert MOST_ROWS / 4 < window.rows <= MOST_ROWS
    assert (abs(window.counts[0] / window.rows - 0.25) < 0.06).all()
