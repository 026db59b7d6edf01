from typing import Any

import numpy as np
import pytest

from service.decisions.calibrated import Calibrated
from service.decisions.rows import Rows, came
from service.monitoring.estimates import MOST_LABELS, from_labels, mean, share, without_labels

NAMES = ("cat", "dog", "eel")


def observed(labels: list[int], names: tuple[str, ...] = NAMES, **changes: Any) -> Calibrated:
    n = len(labels)
    columns: dict[str, Any] = {"label": np.array(labels, dtype=np.int64), "sought": np.ones(n, np.bool_)} | changes
    labelled = came(columns["label"], columns["sought"], columns.get("propensity", np.ones(n)))
    rows = Rows(**columns, labelled=labelled, labelled_at=1_000_000 * np.arange(n))
    confidence = np.full(n, 0.8, np.float32)
    return Calibrated(rows, names, confidence[:, None], np.zeros(n, np.int64), confidence, {}, {})


def test_rows_that_are_sought_seldom_stand_for_more() -> None:
    rows = observed(
        [0, 0, 1, -1, 1, 0],
        propensity=np.array([1.0, 1.0, 0.25, 0.5, np.nan, 0.0]),
        sought=np.array([True, True, True, True, False, False]),
    )
    found = from_labels(rows)
    assert (found["rows"], found["sought"], found["labelled"]) == (6, 4, 3)
    assert found["labelled_share"] == 0.75
    assert found["seekable_share"] == pytest.approx(4 / 6)
    assert found["accuracy"]["value"] == pytest.approx(2 / 6)
    assert found["base_rate"]["dog"]["value"] == pytest.approx(4 / 6)
    assert found["mean_confidence"]["value"] == pytest.approx(0.8)
    assert found["overconfidence"]["value"] == pytest.approx(0.8 - 2 / 6)
    assert found["effective_rows"] == pytest.approx(36 / 18)
    assert found["delay_s"]["median"] == 1.0


def test_without_labels_there_is_nothing_to_say() -> None:
    found = from_labels(observed([-1, -1]))
    assert (found["labelled"], found["accuracy"], found["base_rate"], found["delay_s"]) == (0, None, {}, None)
    nobody = from_labels(observed([]))
    assert (nobody["rows"], nobody["labelled_share"], nobody["seekable_share"]) == (0, None, None)
    assert without_labels(observed([]))["estimated_accuracy"] is None


def test_of_many_labels_the_most_frequent_are_shown() -> None:
    names = tuple(f"n{number}" for number in range(50))
    labels = [number for number in range(50) for _ in range(number + 1)]
    found = from_labels(observed(labels, names))["base_rate"]
    assert list(found) == [f"n{number}" for number in range(49, 49 - MOST_LABELS, -1)]


def test_one_group_is_one_observation() -> None:
    values = np.array([True, True, True, False])
    assert share(values, np.ones(4), np.zeros(4, np.int64))["interval"] == [0.0, 1.0]
    assert mean(values.astype(np.float64), np.ones(4), np.zeros(4, np.int64))["interval"] is None
    alone = share(np.repeat(values, 50), np.ones(200), np.arange(200))["interval"]
    alike = share(np.repeat(values, 50), np.ones(200), np.repeat(np.arange(20), 10))["interval"]
    assert alike[1] - alike[0] > 2 * (alone[1] - alone[0])


@pytest.mark.parametrize(
    ("rows", "explored", "reviewed", "accuracy", "least"),
    [(400, 1.0, 0.3, (0.5, 0.95), 0.93), (500, 0.2, 0.2, (0.6, 0.9), 0.95), (2000, 0.05, 0.1, (0.5, 0.97), 0.95)],
)
def test_intervals_of_shares_cover(
    rows: int, explored: float, reviewed: float, accuracy: tuple[float, float], least: float
) -> None:
    """Reviewed rows are right less often, and their labels are sought always."""
    rng = np.random.default_rng(15)
    worlds, covered = 600, 0
    truth = reviewed * accuracy[0] + (1 - reviewed) * accuracy[1]
    for _ in range(worlds):
        review = rng.random(rows) < reviewed
        propensity = np.where(review, 1.0, explored)
        sought = rng.random(rows) < propensity
        right = rng.random(rows) < np.where(review, *accuracy)
        low, high = share(right[sought], 1 / propensity[sought], np.arange(sought.sum()))["interval"]
        covered += low <= truth <= high
    assert covered / worlds >= least - 0.015
    assert explored < 1 or covered / worlds <= 0.97
