"""Times are ISO 8601 or since the epoch, and become microseconds (UTC)."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from importing.errors import RowsError
from importing.rows import csv_file, read_rows

US = 1773480413_000000


def times(folder: Path, *cells: str) -> list[int]:
    path = folder / "rows.csv"
    path.write_text("t,y\n" + "".join(f'"{cell}",{row % 2}\n' for row, cell in enumerate(cells)))
    rows = read_rows(path, label="y", time="t")
    assert rows.time is not None
    assert "t" not in rows.features
    return [int(time) for time in rows.time]


@pytest.mark.parametrize(
    "cell",
    [
        "2026-03-14T09:26:53Z",
        "2026-03-14 09:26:53",
        "2026-03-14T10:26:53+01:00",
        "20260314T092653Z",
        "2026-03-14T09:26:53.000000",
        "1773480413",
        "1773480413.0",
        "1773480413000",
        "1773480413000.0",
    ],
)
def test_the_same_time_in_each_form(tmp_path: Path, cell: str) -> None:
    assert times(tmp_path, cell, cell) == [US, US]


def test_eight_digits_are_a_date_if_all_are(tmp_path: Path) -> None:
    assert times(tmp_path, "20260314", "19700101") == [US - (9 * 3600 + 26 * 60 + 53) * 1_000_000, 0]
    assert times(tmp_path, "20260314", "20260399") == [20260314_000000, 20260399_000000]


def test_one_large_number_makes_all_milliseconds(tmp_path: Path) -> None:
    assert times(tmp_path, "1773480413000", "5") == [US, 5_000]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moments=st.lists(
        st.datetimes(
            timezones=st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours))),
            min_value=datetime(2, 1, 1),  # noqa: DTZ001  # the strategy adds the zone
            max_value=datetime(9998, 1, 1),  # noqa: DTZ001
        ),
        min_size=2,
        max_size=9,
    )
)
def test_iso_keeps_microseconds(tmp_path: Path, moments: list[datetime]) -> None:
    expected = [(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for moment in moments]
    assert times(tmp_path, *(moment.isoformat() for moment in moments)) == expected


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("2026-03-14", ""), r"line 3, column t: The time is missing\. Found: ''"),
        (("1773480413", "na"), r"line 2, column t: The time is not valid\. Found: '1773480413'"),
        (("2026-03-14", "14.03.2026"), r"line 3, column t: The time is not valid\. Found: '14\.03\.2026'"),
        (("5", "1773480413000000"), r"line 3, column t: The time is out of range\. Found: '1773480413000000'"),
        (("2026-03-14", "inf"), r"line 3, column t: The time is not valid\. Found: 'inf'"),
    ],
)
def test_other_times_are_refused(tmp_path: Path, cells: tuple[str, ...], message: str) -> None:
    with pytest.raises(RowsError, match=message):
        times(tmp_path, *cells)


def test_two_forms_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", 1)
    with pytest.raises(RowsError, match=r"line 3, column t: The time is written in another way than those above"):
        times(tmp_path, "2026-03-14", "1773480413")
