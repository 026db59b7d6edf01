"""Times of requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

_NUMBER: Final = re.compile(r"\s*[-+]?[0-9.]+\s*")


def _no_number(value: Any) -> Any:
    """Refuse numbers, also as texts: their unit would be ambiguous."""
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise PydanticCustomError("time_type", "A time must be a text with its zone, such as 2026-11-28T09:30:00Z")
    return value


def _in_utc(time: datetime) -> datetime:
    """Refuse times that are before the year 1 or after 9999 in UTC, such as 0001-01-01T00:00:00+14:00."""
    try:
        time.astimezone(UTC)
    except OverflowError as error:
        raise PydanticCustomError("datetime_parsing", "This is not a time with its zone") from error
    return time


Time = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_utc)]
"""A time with its zone, in ISO 8601."""
