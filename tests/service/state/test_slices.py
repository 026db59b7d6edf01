"""Samples of the log along time: whole where a span is small, bounded where it is large, on both databases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.decisions.rows import NO_LABEL
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.slices import load_sample, load_sought_sample
from service.state.window import Window

from .conftest import DIGEST, LABELS, prediction_id

WINDOW = Window("pets", DIGEST)
SPANS = [(0, 1_000), (1_000, 2_000), (2_000, 3_000)]


@pytest.fixture
def spread_out(logged: Callable[..., list[str]], database: Database) -> list[str]:
    """A prediction at every tenth microsecond of two spans, none in the third; every other label is sought."""
    ids = [prediction_id(number) for number in range(200)]
    for number, id_ in enumerate(ids):
        sought = number % 2 == 0
        fields = {"sought": [sought], "propensities": [0.5], "revision": "r1" if number < 100 else "r2"}
        logged([id_], created_at=10 * number, references=[f"tx-{number}" if number < 4 else None], **fields)
    labels = [FeedbackItem(ids[number], None, "dog", "reviewer") for number in range(4, 200, 4)]
    labels += [FeedbackItem(None, "tx-0", "eel", "client"), FeedbackItem(None, "tx-1", "cat", "client")]
    FeedbackStore(database).add("pets", labels, by="till")
    return ids


def test_small_spans_are_read_whole(database: Database, spread_out: list[str]) -> None:
    with database.connect() as connection:
        found = load_sample(connection, WINDOW, SPANS, classes=3, at_most=6_000)
    assert not found.cut
    assert np.bincount(found.span, minlength=3).tolist() == [100, 100, 0]
    assert (found.revision == np.where(found.span == 0, "r1", "r2")).all()
    assert (found.rows.predicted_at // 1_000 == found.span).all()


def test_large_spans_are_read_at_four_instants_of_each(database: Database, spread_out: list[str]) -> None:
    with database.connect() as connection:
        found = load_sample(connection, WINDOW, SPANS, classes=3, at_most=2 * 2 * 20)
    assert found.cut
    assert np.bincount(found.span, minlength=3).tolist() == [20, 20, 0]
    for place in range(8):  # a quarter of a span each
        quarter = (found.rows.predicted_at >= 250 * place) & (found.rows.predicted_at < 250 * (place + 1))
        assert int(quarter.sum()) == 5


def test_a_burst_is_read_whole_if_other_spans_leave_it_their_rows(
    database: Database, logged: Callable[..., list[str]]
) -> None:
    logged([prediction_id(number) for number in range(300)], created_at=1_500)
    with database.connect() as connection:
        found = load_sample(connection, WINDOW, SPANS, classes=3, at_most=400)
    assert not found.cut
    assert np.bincount(found.span, minlength=3).tolist() == [0, 300, 0]


def test_no_revision_is_read_beyond_a_time_that_another_was_cut_at(
    database: Database, logged: Callable[..., list[str]]
) -> None:
    often = [prediction_id(number) for number in range(1_000)]
    seldom = [prediction_id(5_000 + number) for number in range(10)]
    for number, id_ in enumerate(often):
        logged([id_], created_at=number)
        if number % 100 == 0:
            logged([seldom[number // 100]], created_at=number, revision="r2")
    with database.connect() as connection:
        found = load_sample(connection, WINDOW, [(0, 1_000)], classes=3, at_most=400)
    shares = [float((found.revision == name).mean()) for name in ("r1", "r2")]
    assert shares[1] / shares[0] == pytest.approx(0.01, abs=0.02)
    assert len(found.rows) <= 400


def test_sought_rows_come_with_their_labels(database: Database, spread_out: list[str]) -> None:
    with database.connect() as connection:
        found = load_sought_sample(connection, WINDOW, SPANS, label_names=LABELS, at_most=6_000)
    assert [id_.decode() for id_ in found.rows.id] == spread_out[::2]
    labels = dict(zip([id_.decode() for id_ in found.rows.id], found.rows.label.tolist(), strict=True))
    assert labels[spread_out[0]] == LABELS.index("eel")
    assert [labels[id_] for id_ in spread_out[4::4]] == [LABELS.index("dog")] * 49
    assert [labels[id_] for id_ in spread_out[2::4]] == [NO_LABEL] * 50
    assert int(found.rows.known().sum()) == 50
    assert (found.rows.labelled_at > 0).sum() == 50


def test_an_empty_log_has_empty_samples(database: Database) -> None:
    with database.connect() as connection:
        assert len(load_sample(connection, WINDOW, SPANS, classes=3, at_most=100).rows) == 0
        assert len(load_sought_sample(connection, WINDOW, SPANS, label_names=LABELS, at_most=100).rows) == 0
