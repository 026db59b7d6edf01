import math

import numpy as np
from numpy.typing import NDArray

from service.decisions.decide import order_keys
from service.decisions.grid import GRID_POINTS, at_or_above, cells_of, make_grid, pairs
from service.decisions.rows import ScoredRows


def rows(n: int, seed: int = 0) -> ScoredRows:
    score = np.random.default_rng(seed).random(n).astype(np.float32)
    return ScoredRows(probability=score, score=score, positive=np.ones(n, dtype=bool))


def test_the_grid_is_small_and_made_of_fit_rows() -> None:
    fit = rows(5000, seed=1)
    grid = make_grid(fit, rows(0))
    probability, score = pairs(grid.keys)
    assert 100 < len(grid.keys) <= GRID_POINTS
    assert np.isin(probability[:-1], fit.probability).all()
    assert np.isin(score[:-1], fit.score).all()
    assert np.all(np.diff(probability) < 0)


def test_the_last_candidate_takes_every_row() -> None:
    grid = make_grid(rows(500), rows(0))
    last = grid.threshold(len(grid.keys) - 1)
    assert last.pair == (0.0, -math.inf)
    assert grid.volume[-1] == 1.0
    assert np.all(cells_of(grid.keys, order_keys(np.zeros(1), np.full(1, -1e30))) < len(grid.keys))


def test_without_fit_rows_there_are_no_candidates() -> None:
    assert len(make_grid(rows(0), rows(9)).keys) == 0


def test_counts_are_those_of_a_loop() -> None:
    data: NDArray[np.uint64] = np.array([9, 7, 7, 3, 1], dtype=np.uint64)
    candidates = np.array([8, 7, 2], dtype=np.uint64)
    assert at_or_above(cells_of(candidates, data), 3).tolist() == [1, 3, 4]
