"""What POST …/feedback reads: JSON, NDJSON and CSV, all to the same checked items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AwareDatetime, FailFast, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from service.errors import MalformedBodyError, UnsupportedMediaTypeError
from service.rest.lines import CSV_TYPE, NDJSON_TYPE, Record, read_lines
from service.rest.payloads import JSON_TYPE, media_type_of
from service.rest.schema import Body, Text

MOST_ITEMS: Final = 10_000
MEDIA_TYPES: Final = (JSON_TYPE, NDJSON_TYPE, CSV_TYPE)


class FeedbackEntry(Body):
    """The true label of one earlier prediction, named by its id or by the client's own reference."""

    prediction_id: str | None = Field(None, description="Id from the prediction's answer.")
    reference: Text | None = Field(None, max_length=200, description="Your own id of the row.")
    label: str = Field(description="The true label, as the model names it.")
    source: Text = Field("client", max_length=100, description="Who says so: reviewer, system, client …")
    labelled_at: AwareDatetime | None = Field(None, description="When it was found out; left out: now.")


class FeedbackBody(Body):
    """Labels for earlier predictions."""

    items: Annotated[list[FeedbackEntry], FailFast()] = Field(min_length=1, max_length=MOST_ITEMS)


@dataclass(frozen=True, slots=True)
class Sent:
    """The items of a request and where each stands in its body.

    Attributes:
        entries: At least one.
        records: Their lines; None where the body was one JSON document.
        body: As it came.
    """

    entries: Sequence[FeedbackEntry]
    records: Sequence[Record] | None
    body: bytes

    def place(self, index: int, field: str | None = None) -> str:
        """Say where an item is, or one field of it: by line and column, or as a JSON pointer."""
        if self.records is not None:
            return self.records[index].place(field)
        return f"/items/{index}" + ("" if field is None else f"/{field}")


async def _sent(request: Request) -> Sent:
    content_type = request.headers.get("content-type")
    media_type = media_type_of(content_type) if content_type else None
    if media_type not in MEDIA_TYPES:
        raise UnsupportedMediaTypeError(
            "Feedback is read as JSON, NDJSON or CSV.",
            found=content_type or "no content type",
            expected=list(MEDIA_TYPES),
            remedy=f"Say what the body is: Content-Type: {', '.join(MEDIA_TYPES[:-1])} or {MEDIA_TYPES[-1]}.",
        )
    return await run_in_threadpool(read_feedback, await request.body(), media_type)


SentDep = Annotated[Sent, Depends(_sent)]


def read_feedback(body: bytes, media_type: str) -> Sent:
    """Read and check the items of a request.

    Args:
        body: As it came.
        media_type: One of `MEDIA_TYPES`.

    Raises:
        MalformedBodyError: It is not what the media type says.
        InputError: It is, and its records cannot be used.
        RequestValidationError: An item, or the document, is not as `FeedbackBody` says.
    """
    if media_type == JSON_TYPE:
        return Sent(_checked(_json(body), None), None, body)
    records = read_lines(body, media_type, columns=FeedbackEntry.model_fields, at_most=MOST_ITEMS)
    return Sent(_checked({"items": [record.fields for record in records]}, records), records, body)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError(f"The body is no JSON that can be read: {error}.", expected="JSON") from error


def _checked(document: Any, records: Sequence[Record] | None) -> Sequence[FeedbackEntry]:
    try:
        return FeedbackBody.model_validate(document).items
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location: tuple[str | int, ...] = ("body", *first["loc"])
        if records is not None:
            _, index, *field = first["loc"]
            location = ("line", records[int(index)].place(str(field[0]) if field else None))
        raise RequestValidationError([{**first, "loc": location}]) from error


def _schema(description: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"schema": {**schema, "description": description}, "example": example}


_ENTRY = FeedbackEntry.model_json_schema()
_ITEMS = {"type": "array", "minItems": 1, "maxItems": MOST_ITEMS, "items": _ENTRY}
_ID = "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G"
REQUEST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        JSON_TYPE: _schema(
            "Labels for earlier predictions.",
            {"type": "object", "required": ["items"], "properties": {"items": _ITEMS}, "additionalProperties": False},
            {
                "items": [
                    {"prediction_id": _ID, "label": "7", "source": "reviewer"},
                    {"reference": "scan-88", "label": "1"},
                ]
            },
        ),
        NDJSON_TYPE: _schema(
            f"One item a line, as JSON; at most {MOST_ITEMS:,}.",
            {"type": "string"},
            f'{{"prediction_id": "{_ID}", "label": "7", "source": "reviewer"}}\n'
            '{"reference": "scan-88", "label": "1"}\n',
        ),
        CSV_TYPE: _schema(
            f"A header with some of {', '.join(FeedbackEntry.model_fields)}, and one item a row, at most "
            f"{MOST_ITEMS:,}; an empty cell is a field left out.",
            {"type": "string"},
            f"prediction_id,reference,label,source\n{_ID},,7,reviewer\n,scan-88,1,\n",
        ),
    },
}
"""The request body in the OpenAPI document."""
