"""Times of requests."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

_NUMBER: Final = re.compile(r"\s*[-+]?[0-9.]+\s*")


def _no_number(value: Any) -> Any:
    """Refuse numbers, also as texts: their unit would be ambiguous."""
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise PydanticCustomError("time_type", "A time must be a text with its zone, such as 2026-11-28T09:30:00Z")
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_no_number)]
"""A time with its zone, in ISO 8601."""
