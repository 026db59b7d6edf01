"""The log as Parquet by hour: whole hours, each once, whatever stops or refuses in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import ConfigurationError
from service.ids import ids_of
from service.state import log_sink
from service.state.database import Database, now_us
from service.state.log_sink import HOUR_US, LogSink
from service.state.predictions import PredictionLog
from service.times import iso
from tests.service.conftest import InThread
from tests.waiting import until

from .conftest import batch

pytest.importorskip("arro3.io", reason="the extra parquet is not installed")

THIS_HOUR_US = now_us() // HOUR_US * HOUR_US


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hour of these tests does not end while they run."""
    monkeypatch.setattr(log_sink, "now_us", lambda: THIS_HOUR_US + HOUR_US // 2)


def write(database: Database, hours_ago: int, count: int = 5, **changes: Any) -> list[str]:
    at = THIS_HOUR_US - hours_ago * HOUR_US + 1_000_000
    ids = ids_of(at // 1000, b"".join(row.to_bytes(10) for row in range(count)))
    log = PredictionLog(database)
    assert log.append(batch(ids, **{"created_at": at} | changes))
    log.close()
    return ids


def name(hours_ago: int) -> str:
    return f"{iso(THIS_HOUR_US - hours_ago * HOUR_US)[:13]}.parquet"


def read(file: Path) -> dict[str, list[Any]]:
    from arro3.io import read_parquet

    with file.open("rb") as opened:
        table = read_parquet(opened).read_all()
    return {column: table.column(column).to_pylist() for column in table.column_names}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_hours_that_have_ended_are_written_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The present hour, and the one before, may still get rows."""
    monkeypatch.setattr(log_sink, "ROWS_PER_PAGE", 2)
    folder = tmp_path / "sink"
    names = ["tx-1", None, "tx-2", None, None]
    old = write(database, 5, references=names, segments=["DE", None, None, None, None], sought=[True] + [False] * 4)
    write(database, 3, 1, model="cars", propensities=[0.25])
    write(database, 0)
    sink = LogSink(database, f"{scheme}{folder}", tmp_path / "uploads")
    sink.run()
    assert sorted(file.name for file in folder.iterdir()) == sorted([name(5), name(3)])
    assert (sink.written, sink.through_us) == (6, THIS_HOUR_US - HOUR_US)
    found = read(folder / name(5))
    assert (found["id"], found["reference"]) == (old, names)
    assert found["sought"] == [True] + [False] * 4
    assert found["segment"][:2] == ["DE", None]
    assert {iso(int(at.timestamp() * 1e6)) for at in found["created_at"]} == {
        iso(THIS_HOUR_US - 5 * HOUR_US + 1_000_000)
    }
    np.testing.assert_array_equal(np.float32(found["logits"]), np.arange(15, dtype=np.float32).reshape(5, 3) / 7)
    other = read(folder / name(3))
    assert (other["model"], other["revision"], other["propensity"]) == (["cars"], ["r1"], [0.25])
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    again = LogSink(database, f"{scheme}{folder}", tmp_path / "uploads")  # another replica, later
    again.run()
    assert again.written == 0
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_an_interrupted_or_refused_hour_is_written_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(database, 5)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    sink = LogSink(database, str(blocked / "sink"), tmp_path / "uploads")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        sink.run()
    assert sink.through_us is None
    blocked.unlink()
    monkeypatch.setattr(log_sink, "ROWS_PER_PAGE", 2)
    real = LogSink._pages

    def stopped(self: LogSink, since: str, until: str) -> Any:
        for page in real(self, since, until):
            yield page
            self._stopping.set()

    with monkeypatch.context() as patch:
        patch.setattr(LogSink, "_pages", stopped)
        sink.run()
    assert not list((blocked / "sink").iterdir())
    LogSink(database, str(blocked / "sink"), tmp_path / "uploads").run()
    assert len(read(blocked / "sink" / name(5))["id"]) == 5


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_full_disk_is_named_and_its_hour_written_later(database: Database, tmp_path: Path, scheme: str) -> None:
    """A folder gets the file beside its place, a URL from the folder of uploads: none from a small /tmp."""
    folder, uploads = tmp_path / "sink", tmp_path / "uploads"
    write(database, 5)
    folder.mkdir()
    uploads.mkdir()
    unfinished = uploads / "log-sink.parquet" if scheme else folder / f".unfinished-{name(5)}"
    unfinished.symlink_to("/dev/full")
    sink = LogSink(database, f"{scheme}{folder}", uploads)
    with pytest.raises(ConfigurationError, match="cannot be written") as refused:
        sink.run()
    assert "No space left" in str(refused.value.found)
    assert not [*folder.iterdir(), *uploads.iterdir()]
    sink.run()
    assert [file.name for file in folder.iterdir()] == [name(5)]
    assert not list(uploads.iterdir())


def test_the_service_fills_it_and_says_until_when(start: Callable[..., InThread], tmp_path: Path) -> None:
    service = start(log_sink=str(tmp_path / "sink"))
    until(lambda: service.metric("candor_log_sink_through_seconds") >= THIS_HOUR_US / 1e6 - 3600)
