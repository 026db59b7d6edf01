from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from calibrators.fitting.sorted_scores import sort_scores

drawn = settings(max_examples=60, deadline=None)
rows_of = {
    "seed": st.integers(0, 10**6),
    "size": st.integers(1, 40),
    "levels": st.sampled_from([1, 3, 10, 10**6]),
    "share": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    "weighted": st.booleans(),
}


def draw(seed, size, levels, share, weighted):
    rng = np.random.default_rng(seed)
    weight = rng.choice([1e-9, 0.3, 1.0, 7.0], size) if weighted else None
    return rng.integers(0, levels, size) / levels, rng.random(size) < share, weight


@drawn
@given(**rows_of)
def test_totals_of_distinct_scores_by_brute_force(seed, size, levels, share, weighted):
    scores, hits, weight = draw(seed, size, levels, share, weighted)
    rows = sort_scores(scores, hits, weight)
    counted = np.ones(size) if weight is None else weight
    starts = rows.distinct()
    mass, right = rows.totals(starts)
    distinct = np.unique(scores)
    np.testing.assert_array_equal(rows.scores[starts], distinct)
    np.testing.assert_allclose(mass, [counted[scores == s].sum() for s in distinct], rtol=1e-12)
    np.testing.assert_allclose(right, [counted[(scores == s) & hits].sum() for s in distinct], rtol=1e-12)


@drawn
@given(**rows_of)
def test_pooling_leaves_the_isotonic_regression_as_it_is(seed, size, levels, share, weighted):
    scores, hits, weight = draw(seed, size, levels, share, weighted)
    rows = sort_scores(scores, hits, weight)

    def regression(starts):
        mass, right = rows.totals(starts)
        levels = optimize.isotonic_regression(right / mass, weights=mass).x
        return np.repeat(levels, np.diff(starts, append=size))

    np.testing.assert_allclose(regression(rows.pooled()), regression(rows.distinct()), atol=1e-12)


@pytest.mark.parametrize("weight", [None, np.array([2.0, 1.0, 1.0, 3.0])])
def test_groups_without_hits(weight):
    rows = sort_scores(np.array([0.4, 0.1, 0.3, 0.2]), np.array([False, True, False, False]), weight)
    mass, right = rows.totals(np.array([0, 1, 3]))
    np.testing.assert_array_equal(mass, [1, 2, 1] if weight is None else [1, 4, 2])
    np.testing.assert_array_equal(right, [1, 0, 0])
