"""Sets of categories: thousands of them load, and more than memory should hold are refused."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from importing.converters.category_sets import CategorySet, look_up
from importing.converters.xgboost import convert
from importing.errors import UnsupportedModelError
from tests.importing.answers import answer, matrix


def test_thousands_of_categories() -> None:
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.integers(0, 3000, 20_000), rng.normal(size=20_000)]).astype(np.float64)
    target = (np.sin(rows[:, 0]) + rows[:, 1] + rng.normal(size=len(rows)) / 2 > 0).astype(int)
    data = xgboost.DMatrix(rows, target, feature_types=["c", "float"], enable_categorical=True)
    options = {"objective": "binary:logistic", "max_depth": 8, "max_cat_threshold": 3000, "nthread": 1}
    converted = convert(xgboost.train(options, data, 10))
    tried = np.vstack([rows[:1000], np.column_stack([np.arange(2990, 3010), np.zeros(20)]), [[np.nan, 0.0]]])
    feeds = matrix(converted, tried)
    assert np.allclose(answer(converted, feeds), converted.native(feeds), atol=5e-6)


def test_sets_of_several_features_and_an_empty_one() -> None:
    sets = [
        CategorySet(4, (1,), missing=True),
        CategorySet(0, (0, 3), missing=False),
        CategorySet(4, (), missing=False),
    ]
    found = look_up(sets)
    assert found.features.tolist() == [4, 0]
    assert found.ends.tolist() == [2, 4]
    assert found.offsets.tolist() == [0, 4]
    assert found.table.tolist() == [[0, 0], [1, 0], [0, 0], [1, 0], [1, 0], [0, 0], [0, 0], [1, 0], [0, 0], [0, 0]]
    assert [found.places[each] for each in sets] == [0, 2, 1]


def test_a_table_too_large_is_refused() -> None:
    sets = [CategorySet(0, (2**31 - 1, number), missing=False) for number in range(3)]
    with pytest.raises(UnsupportedModelError, match="too many categories"):
        look_up(sets)
