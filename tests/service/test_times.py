"""Times outside are ISO 8601, inside microseconds, and nothing is lost between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from service.times import iso, microseconds

MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=14))]))


@given(MOMENTS.filter(lambda time: 1 < time.year < 9999))
def test_a_round_trip_is_exact(time: datetime) -> None:
    assert datetime.fromisoformat(iso(microseconds(time))) == time


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_text_sorts_as_time_does_and_has_one_form(us: int) -> None:
    text = iso(us)
    assert len(text) == 27
    assert text.endswith("Z")
    assert microseconds(datetime.fromisoformat(text)) == us
