from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from calibrators import softmax
from calibrators.metrics import total_variation_calibration_error


def brute_force(probabilities, labels, bins, weight):
    cells = defaultdict(list)
    edges = np.arange(bins + 1) / bins
    for row, p in enumerate(probabilities):
        cells[tuple(sum(value > edge for edge in edges[1:-1]) for value in p)].append(row)
    error = 0.0
    for rows in cells.values():
        w = weight[rows]
        frequencies = np.bincount(labels[rows], w, probabilities.shape[1]) / w.sum()
        error += w.sum() / weight.sum() * np.abs(frequencies - w @ probabilities[rows] / w.sum()).sum() / 2
    return error


@pytest.mark.parametrize(
    ("rows", "classes", "bins"), [(300, 2, 10), (300, 3, 4), (200, 5, 10), (60, 40, 10), (9, 3, 1)]
)
@pytest.mark.parametrize("decimals", [1, 12])
def test_by_brute_force_over_cells(rows, classes, bins, decimals, world):
    logits, labels = world(rows, classes, 2.0)
    probabilities = softmax(logits)
    if classes == 2:
        first = np.round(probabilities[:, 0], decimals)  # points on edges
        probabilities = np.stack([first, 1 - first], axis=1)
    weight = np.random.default_rng(0).integers(1, 4, rows).astype(float)
    expected = brute_force(probabilities, labels, bins, np.ones(rows))
    assert total_variation_calibration_error(probabilities, labels, bins) == pytest.approx(expected, abs=1e-12)
    expected = brute_force(probabilities, labels, bins, weight)
    found = total_variation_calibration_error(probabilities, labels, bins, weight / 7)
    assert found == pytest.approx(expected, abs=1e-12)


def test_one_cell_a_row_is_the_mean_distance_to_the_label():
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7]])
    assert total_variation_calibration_error(probabilities, [0, 0]) == pytest.approx((0.1 + 0.7) / 2)


def test_one_bin_is_one_cell_also_where_rounding_leaves_more_than_one():
    probabilities = np.array([[0, 1.00001, 0], [0.3, 0.3, 0.4], [0, 0, 1]])
    found = total_variation_calibration_error(probabilities, [1, 0, 2], bins=1)
    assert found == pytest.approx(np.abs(probabilities.mean(axis=0) - 1 / 3).sum() / 2, abs=1e-12)
