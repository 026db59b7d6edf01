"""A recalibration from the files of the log sink reports what one from the database does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.recalibration.task import RefitRequest
from service.settings import Settings
from service.state import log_sink
from service.state.database import now_us
from service.state.log_sink import HOUR_US, LogSink
from tests.service.conftest import Digits, InThread

from .outcomes import outcome_of, task_of

pytest.importorskip("arro3.io", reason="the extra parquet is not installed")


def write_files(service: InThread, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the present hour too, as if it had ended."""
    with monkeypatch.context() as patch:
        patch.setattr(log_sink, "now_us", lambda: now_us() + 3 * HOUR_US)
        LogSink(service.runtime.database, str(folder), folder / "uploads").run()
    assert list(folder.glob("*.parquet"))


def test_the_report_is_the_same(
    on_both: InThread, digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_both.teach(digits.dimmed[:400], digits.labels[:400])
    on_both.predict(digits.dimmed[400:700], policy="auto-read")
    assert on_both.runtime.log.flush()
    folder = tmp_path / "sink"
    write_files(on_both, folder, monkeypatch)
    task = task_of(on_both, RefitRequest())
    for asked in (task, replace(task, request=RefitRequest(gate="non_inferior"), max_labels=300)):
        expected, found = outcome_of(asked), outcome_of(replace(asked, log_sink=str(folder)))
        assert expected["report"]["rows"]["gate"] > 0
        assert (expected["report"].pop("log_files"), found["report"].pop("log_files") > 0) == (0, True)
        assert found == expected


def test_the_setting_reaches_a_recalibration(
    start: Callable[..., InThread], digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError, match="CANDOR_REFIT_FROM_SINK requires CANDOR_LOG_SINK"):
        Settings(refit_from_sink=True)
    service = start(log_sink=str(tmp_path / "sink"), refit_from_sink=True)
    service.teach(digits.dimmed[:400], digits.labels[:400])
    write_files(service, tmp_path / "sink", monkeypatch)
    assert service.recalibrate().json()["log_files"] > 0
