from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calibrators.binning import bin_counts, bin_edges, bin_index


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 100])
def test_points_on_edges_belong_to_the_bin_below(dtype, bins):
    edges = bin_edges(np.empty(0, dtype), bins, "width")
    assert edges.dtype == dtype
    points = (np.arange(bins + 1) / bins).astype(dtype)
    np.testing.assert_array_equal(bin_index(points, edges), np.maximum(np.arange(bins + 1) - 1, 0))
    above = np.nextafter(points[:-1], dtype(2), dtype=dtype)
    np.testing.assert_array_equal(bin_index(above, edges), np.arange(bins))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 49, 100, 1000, 4096, 5000])
def test_many_scores_are_binned_as_a_search_would(dtype, bins):
    edges = bin_edges(np.empty(0, dtype), bins, "width")
    random = np.random.default_rng(bins).random(2000).astype(dtype)
    above, below = (np.clip(np.nextafter(edges, dtype(end), dtype=dtype), 0, 1) for end in (2, -1))
    scores = np.concatenate([edges, above, below, random, dtype([0, 1])])
    expected = [max(np.count_nonzero(edges[1:-1] < score), 0) for score in scores]
    np.testing.assert_array_equal(bin_index(scores, edges), expected)


def test_decimal_edges_are_what_one_writes():
    edges = bin_edges(np.empty(0), 10, "width")
    assert edges[3] == 0.3
    assert bin_index(np.array([0.3, 0.7]), edges).tolist() == [2, 6]


@settings(max_examples=80, deadline=None)
@given(
    scores=hnp.arrays(
        np.float64,
        st.integers(1, 60),
        elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]) | st.floats(0, 1),
    ),
    bins=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_equal_mass_edges_by_brute_force(scores, bins, seed):
    counts = np.random.default_rng(seed).integers(1, 5, len(scores))
    for weight in (None, np.ones(len(scores)), counts.astype(float)):
        edges = bin_edges(scores, bins, "mass", weight)
        repeated = np.sort(scores if weight is None else np.repeat(scores, weight.astype(int)))
        wanted = {repeated[-(-b * len(repeated) // bins) - 1] for b in range(1, bins)} - {repeated[-1]}
        assert edges.tolist() == [0.0, *sorted(wanted), 1.0]
        index = bin_index(scores, edges)
        for score, b in zip(scores, index, strict=True):
            assert edges[b] < score <= edges[b + 1] or (b == 0 and score == 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 32, 33, 100])
@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_counts_are_those_of_the_bins_numbered(dtype, bins, scheme):
    random = np.random.default_rng(bins).random(500).astype(dtype)
    edges = bin_edges(random, bins, scheme)
    above, below = (np.clip(np.nextafter(edges, dtype(end), dtype=dtype), 0, 1) for end in (2, -1))
    scores = np.concatenate([edges, above, below, random, np.repeat(edges, 3)])
    expected = np.bincount(bin_index(scores, edges), minlength=len(edges) - 1)
    np.testing.assert_array_equal(bin_counts(scores, edges), expected)
    np.testing.assert_array_equal(bin_counts(scores[:0], edges), 0)
