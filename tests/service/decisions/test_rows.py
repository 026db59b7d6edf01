from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.decisions.rows import ScoredRows
from service.errors import InputValueError

P = np.zeros(3, dtype=np.float32)
RIGHT = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("score", {"score": P[:2]}),
        ("probability", {"probability": np.array([0, np.nan, 1], dtype=np.float32)}),
        ("weight", {"weight": np.array([1.0, -1.0, 1.0])}),
        ("weight", {"weight": np.array([1.0, 0.0, 1.0])}),
        ("weight", {"weight": np.array([1.0, np.inf, 1.0])}),
        ("weight", {"weight": np.array([1.0, np.nan, 1.0])}),
        ("propensity", {"propensity": np.array([1.0, 1.5, np.nan])}),
        ("propensity", {"propensity": np.array([1.0, -0.5, np.nan])}),
        ("propensity", {"propensity": np.array([1.0, 0.0, np.nan])}),
        ("propensity", {"propensity": np.array([1.0, 0.0, 0.5]), "labelled": np.array([True, True, False])}),
        ("group", {"group": np.zeros(4, dtype=np.int64)}),
        ("segment", {"segment": np.array(["DE"])}),
    ],
)
def test_bad_columns_name_themselves(where: str, columns: dict[str, NDArray[Any]]) -> None:
    with pytest.raises(InputValueError) as refusal:
        ScoredRows(**({"probability": P, "score": P, "positive": RIGHT} | columns))
    assert refusal.value.where == where
    assert refusal.value.expected is not None
    assert refusal.value.remedy or where in ("score", "group", "segment")


def test_a_row_without_label_may_have_propensity_zero() -> None:
    ScoredRows(
        probability=P,
        score=P,
        positive=RIGHT,
        propensity=np.array([1.0, 0.0, np.nan]),
        labelled=np.array([True, False, False]),
    )


def test_one_row_of_a_group_is_drawn_evenly() -> None:
    score = np.sort(np.random.default_rng(0).random(600)).astype(np.float32)
    rows = ScoredRows(
        probability=score, score=score, positive=np.ones(600, dtype=bool), group=np.repeat(np.arange(100), 6)
    )
    chosen = [rows.take(rows.sample(seed, known_propensity=True)) for seed in range(200)]
    assert all(np.array_equal(np.sort(one.group), np.arange(100)) for one in chosen)  # type: ignore[arg-type]
    hits = np.bincount(np.concatenate([np.searchsorted(score, one.score) % 6 for one in chosen]), minlength=6)
    assert np.all(np.abs(hits / hits.sum() - 1 / 6) < 0.01)


def test_a_segment_is_its_rows() -> None:
    rows = ScoredRows(
        probability=P, score=P, positive=np.array([True, False, True]), segment=np.array(["DE", "FR", "DE"])
    )
    assert rows.of_segment("DE").positive.tolist() == [True, True]
    assert len(rows.of_segment("IT")) == 0
    assert len(ScoredRows(probability=P, score=P, positive=RIGHT).of_segment("DE")) == 0


def test_rows_of_unknown_propensity_test_nothing_that_needs_labels() -> None:
    unknown = np.array([1.0, np.nan, 0.5])
    rows = ScoredRows(probability=P, score=P, positive=RIGHT, propensity=unknown, group=np.array([1, 1, 2]))
    assert np.array_equal(np.sort(rows.sample(0, known_propensity=True)), [0, 2])  # type: ignore[arg-type]
    assert len(rows.take(rows.sample(0, known_propensity=False))) == 2
