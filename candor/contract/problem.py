"""Problem documents (RFC 9457): how every refusal and failure is reported."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from candor.contract.documents import Answer


class Problem(Answer):
    """What went wrong, where, what was found, what was expected, and what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "/errors/input-shape",
                "title": "Wrong input shape",
                "status": 422,
                "detail": "The model takes examples of shape [8, 8, 1].",
                "where": "/inputs/0",
                "found": [28, 28],
                "expected": [8, 8, 1],
                "remedy": "Send one example of that shape, or a batch with one more axis in front.",
            }
        }
    )

    type: str = Field(description="Kind of problem, such as `/errors/input-shape`.")
    title: str
    status: int = Field(description="HTTP status.")
    detail: str | None = Field(None, description="What went wrong, in one sentence.")
    where: str | None = Field(None, description="JSON pointer, parameter, header or line that is at fault.")
    found: Any = None
    expected: Any = None
    remedy: str | None = Field(None, description="What to do about it.")
