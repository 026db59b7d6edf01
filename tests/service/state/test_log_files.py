"""A recalibration that reads the files of the log sink gets exactly the rows that the state alone gives."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select, update

from service.errors import CandorError
from service.ids import ids_of
from service.state import log_files, log_sink, unlabelled
from service.state.database import Database, now_us
from service.state.deletion import delete_predictions
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.log_sink import HOUR_US, LogSink, file_name
from service.state.predictions import PredictionLog
from service.state.tables import origins, predictions
from service.state.window import Arising, Window
from service.state.window_rows import WindowRows, load_window_rows

from .conftest import DIGEST, LABELS, batch

pytest.importorskip("arro3.io", reason="the extra parquet is not installed")

HOUR = now_us() // HOUR_US * HOUR_US
ROWS = 120
"""In each of seven hours."""


def ago(hours: float) -> int:
    return HOUR - round(hours * HOUR_US)


@pytest.fixture
def sink(tmp_path: Path) -> str:
    return str(tmp_path / "sink")


@pytest.fixture
def filled(database: Database, sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Hours of several models, files and policies, with labels of every kind; the last two have no file."""
    monkeypatch.setattr(log_sink, "now_us", lambda: HOUR + HOUR_US // 2)
    monkeypatch.setattr(log_sink, "ROWS_PER_PAGE", 50)
    monkeypatch.setattr(log_files, "ROWS_PER_BATCH", 64)
    random = np.random.default_rng(8)
    log, store = PredictionLog(database), FeedbackStore(database)
    kinds: list[dict[str, Any]] = [
        {},
        {"policy": "other@2", "revision": "r2"},
        {"policy": None},
        {"model_digest": "ab12" * 16},
        {"model": "cars", "logits": random.normal(size=(ROWS // 6, 5)).astype(np.float32)},
        {},
    ]
    for hours in (30, 7, 6, 5, 3, 1, 0):
        for kind in kinds:
            count = ROWS // len(kinds)
            at = ago(hours) + int(random.integers(HOUR_US // 2))
            ids = ids_of(at // 1000, random.bytes(10 * count))
            propensities = random.choice(np.array([1.0, 0.25, None, 0.0]), count).tolist()
            known: dict[str, Any] = {
                "logits": random.normal(size=(count, 3)).astype(np.float32),
                "references": [f"tx-{row % 9}" if row % 3 == 0 else None for row in random.integers(40, size=count)],
                "groups": [f"card-{card}" for card in random.integers(90, size=count)],
                "propensities": propensities,
                "sought": [bool(chance) and random.random() < chance for chance in propensities],
                "actions": random.choice(np.array(["accept", "block", None]), count).tolist(),
                "segments": random.choice(np.array(["DE", "Überlingen", None]), count).tolist(),
                "amounts": random.choice(np.array([12.5, 0.1, None]), count).tolist(),
                "inputs": random.integers(256, size=(count, 4), dtype=np.uint8),
            }
            assert log.append(batch(ids, **{"created_at": at + int(random.integers(2_000_000))} | known | kind))
            names = [*LABELS, "hare"]  # which the model lacks
            model = kind.get("model", "pets")
            for source in ("till", "reviewer"):
                said = [
                    FeedbackItem(id_, None, names[random.integers(4)], source) for id_ in ids if random.random() < 0.3
                ]
                store.add(model, said, by="till")
    named = [FeedbackItem(None, f"tx-{row}", LABELS[row % 3], "till") for row in (1, 3, 4, 77)]
    store.add("pets", [*named, FeedbackItem("01J000NOBODY", None, "cat", "till")], by="till")
    assert log.flush()
    log.close()
    LogSink(database, sink, tmp_path / "uploads").run()
    assert len(list(Path(sink).iterdir())) == 5
    return database


def load(database: Database, window: Window, at_most: int = 10_000, sink: str | None = None) -> WindowRows:
    with database.connect() as connection:
        return load_window_rows(connection, window, label_names=LABELS, at_most=at_most, sink=sink)


def assert_same(found: WindowRows, expected: WindowRows) -> None:
    for field in fields(WindowRows):
        if field.name not in ("rows", "pairs", "log_files", "passed_over"):
            assert getattr(found, field.name) == getattr(expected, field.name), field.name
    assert found.pairs is not None
    assert expected.pairs is not None
    for name in ("current", "other", "group"):
        np.testing.assert_array_equal(getattr(found.pairs, name), getattr(expected.pairs, name), name)
    for name, column in expected.rows.columns().items():
        own = found.rows.columns()[name]
        if column is None:
            assert own is None, name
        else:
            assert own is not None, name
            assert own.dtype == column.dtype, name
            np.testing.assert_array_equal(own, column, name)


WINDOWS = [
    Window("pets", DIGEST),
    Window("pets", DIGEST, ago(6.2)),
    Window("pets", DIGEST, ago(6.2), ago(0.9)),
    Window("pets", DIGEST, None, ago(4)),
    Window("pets", DIGEST, ago(0.5)),
    Window("cats", DIGEST),
    Window("pets", "0" * 64),
]


def test_rows_are_those_of_the_state(filled: Database, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All labels and rows; the newest labels alone; samples of the groups."""
    for most_labels, most_rows in ((10_000, 10_000), (60, 10_000), (10_000, 60), (90, 7), (3, 3)):
        monkeypatch.setattr(unlabelled, "MOST_ROWS", most_rows)
        found = [load(filled, window, most_labels, sink) for window in WINDOWS]
        for window, rows in zip(WINDOWS, found, strict=True):
            assert_same(rows, load(filled, window, most_labels))
        if most_labels > 3:
            cut = (found[0].left_out_before is not None, found[0].bits > 0)
            assert cut == (most_labels < 10_000, most_rows < 10_000)


def test_labels_that_arise_by_themselves_are_the_same(filled: Database, sink: str) -> None:
    with filled.connect() as connection:
        number = connection.execute(select(origins.c.id).where(origins.c.revision == "r2")).scalar_one()
    for actions in (frozenset[str](), frozenset({"accept"})):
        window = Window("pets", DIGEST, arising=(Arising(number, HOUR_US, ago(2), 0, actions),))
        assert_same(load(filled, window, sink=sink), load(filled, window))


def test_the_hours_with_files_are_not_read_from_the_state(filled: Database, sink: str) -> None:
    """What their rows hold there but for their ids does not matter."""
    expected = load(filled, WINDOWS[0])
    with filled.begin() as connection:
        filed = predictions.c.id < log_files.first_id(ago(1))
        connection.execute(update(predictions).where(filed).values(propensity=0.125, cluster=7, amount=3.0))
    found = load(filled, WINDOWS[0], sink=sink)
    assert (found.log_files, found.passed_over) == (5, 0)
    assert_same(found, expected)


def ids_of_hour(database: Database, hours: float) -> list[str]:
    """Ids of an hour's predictions of the model file, with labels or without."""
    ids, origin = predictions.c.id, predictions.c.origin
    here = (origins.c.model == "pets", origins.c.model_digest == DIGEST)
    since, until = log_files.first_id(ago(hours)), log_files.first_id(ago(hours) + HOUR_US)
    with database.connect() as connection:
        query = select(ids).join(origins, origins.c.id == origin).where(*here, ids >= since, ids < until)
        return list(connection.scalars(query.order_by(ids)))


def test_erased_rows_do_not_come_back(filled: Database, sink: str) -> None:
    erase(filled, "pets", Subject("prediction_id", ids_of_hour(filled, 6)[3]), by="dpo")
    found = load(filled, WINDOWS[0], sink=sink)
    assert (found.log_files, found.passed_over) == (4, 1)
    assert_same(found, load(filled, WINDOWS[0]))
    Path(sink, file_name(ago(6))).unlink()
    assert load(filled, WINDOWS[0], sink=sink).passed_over == 0


def test_rows_that_came_too_late_for_their_file_are_not_lost(filled: Database, sink: str) -> None:
    """As many were erased: the number of rows alone would tell nothing."""
    late = ids_of(ago(5) // 1000 + 5, bytes(10))
    log = PredictionLog(filled)
    assert log.append(batch(late, created_at=ago(5) + 5000))
    assert log.flush()
    log.close()
    erase(filled, "pets", Subject("prediction_id", ids_of_hour(filled, 5)[-1]), by="dpo")
    found = load(filled, WINDOWS[0], sink=sink)
    assert (found.log_files, found.passed_over) == (4, 1)
    assert_same(found, load(filled, WINDOWS[0]))


def test_a_prune_under_way_leaves_no_row_without_its_label(filled: Database, sink: str) -> None:
    """It deletes the rows and labels of one origin after another: the other origins are as old as before."""
    with filled.begin() as connection:
        here = origins.c.id.in_(WINDOWS[0].origins(connection))
        first = connection.execute(select(func.min(origins.c.id)).where(here)).scalar_one()
        old = select(predictions.c.id, predictions.c.reference).where(predictions.c.origin == first)
        rows = connection.execute(old.where(predictions.c.id < log_files.first_id(ago(5)))).all()
        deleted = delete_predictions(connection, "pets", [(id_, name) for id_, name in rows], receipts=False)
    assert deleted.labels > 0
    found = load(filled, WINDOWS[0], sink=sink)
    assert (found.log_files, found.passed_over) == (2, 3)
    assert_same(found, load(filled, WINDOWS[0]))


def test_an_hour_without_its_file_is_read_from_the_state(filled: Database, sink: str) -> None:
    expected = load(filled, WINDOWS[0])
    for hours in (6, 30):
        Path(sink, file_name(ago(hours))).unlink()
        assert_same(load(filled, WINDOWS[0], sink=sink), expected)
    assert_same(load(filled, WINDOWS[0], sink=f"{sink}/nothing"), expected)
    assert_same(load(filled, WINDOWS[0], sink=f"file://{sink}"), expected)


def test_a_file_that_cannot_be_read_is_named(filled: Database, sink: str) -> None:
    name = file_name(ago(5))
    content = Path(sink, name).read_bytes()
    for damaged in (b"", content[: len(content) // 2]):
        Path(sink, name).write_bytes(damaged)
        for place in (sink, f"file://{sink}"):
            with pytest.raises(CandorError, match="log sink cannot be read") as refused:
                load(filled, WINDOWS[0], sink=place)
            assert name in str(refused.value.found)


def test_a_rewritten_file_is_read_by_its_columns(filled: Database, sink: str) -> None:
    """Spark writes times in nanoseconds; a file that lacks a column is named."""
    from arro3.core import DataType, Field
    from arro3.io import read_parquet, write_parquet

    name = file_name(ago(5))
    rows = read_parquet(str(Path(sink, name))).read_all()
    kind = DataType.timestamp("ns", tz="UTC")
    times = rows.column("created_at").cast(kind)
    write_parquet(
        rows.set_column(rows.column_names.index("created_at"), Field("created_at", kind), times), Path(sink, name)
    )
    found = load(filled, WINDOWS[0], sink=sink)
    assert found.log_files == 5
    assert_same(found, load(filled, WINDOWS[0]))
    for column in ("propensity", "created_at", "group_hash"):
        write_parquet(rows.select([other for other in rows.column_names if other != column]), Path(sink, name))
        with pytest.raises(CandorError, match="log sink cannot be read") as refused:
            load(filled, WINDOWS[0], sink=sink)
        assert name in str(refused.value.found)
        assert column in str(refused.value.found)
