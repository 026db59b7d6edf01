"""Read POST …/feedback: JSON, NDJSON and CSV, to the same checked items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from candor.contract.documents import each_name_once
from candor.contract.feedback import MOST_ITEMS, FeedbackEntry, FeedbackRequest
from service.errors import MalformedBodyError, UnsupportedMediaTypeError
from service.places import Place, in_body
from service.rest.bodies import Scope, check_values, header
from service.rest.payloads import JSON_TYPE, media_type_of
from service.rest.problems import invalid
from service.rest.schemas import ref
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE, Record, read_lines

_MOST_VALUES: Final = 16 * MOST_ITEMS  # commas and brackets; an item has 6, and its texts may have more
MEDIA_TYPES: Final = (JSON_TYPE, NDJSON_TYPE, CSV_TYPE)


@dataclass(frozen=True, slots=True)
class Sent:
    """The items of a request and their places in the body.

    Attributes:
        entries: Items, at least one.
        records: Their lines, None if the body was one JSON document.
        body: The body.
    """

    entries: Sequence[FeedbackEntry]
    records: Sequence[Record] | None
    body: bytes

    def place(self, index: int, field: str | None = None) -> Place | str:
        """Return the place of an item or one of its fields: line and column, or JSON pointer."""
        if self.records is not None:
            return self.records[index].place(field)
        item = in_body("items", index)
        return item if field is None else item / field


def media_type_in(scope: Scope) -> str:
    """Return the media type of a request's body.

    Raises:
        UnsupportedMediaTypeError: It is none of `MEDIA_TYPES`.
    """
    content_type = header(scope, b"content-type")
    media_type = media_type_of(content_type) if content_type else None
    if media_type not in MEDIA_TYPES:
        raise UnsupportedMediaTypeError(
            "Feedback must be JSON, NDJSON or CSV.",
            found=content_type or "no content type",
            expected=list(MEDIA_TYPES),
            remedy=f"Say what the body is: Content-Type: {', '.join(MEDIA_TYPES[:-1])} or {MEDIA_TYPES[-1]}.",
        )
    return media_type


def read_feedback(body: bytes, media_type: str) -> Sent:
    """Read and check the items of a request.

    Args:
        body: As it came.
        media_type: One of `MEDIA_TYPES`.

    Raises:
        MalformedBodyError: It is not what the media type says.
        InputError: It is, and its records cannot be used.
    """
    if media_type == JSON_TYPE:
        return Sent(_checked(_json(body), None), None, body)
    records = read_lines(body, media_type, columns=FeedbackEntry.model_fields, at_most=MOST_ITEMS)
    return Sent(_checked({"items": [record.fields for record in records]}, records), records, body)


def _json(body: bytes) -> Any:
    check_values(body, _MOST_VALUES)
    try:
        return json.loads(body, object_pairs_hook=each_name_once) if body else None
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError(f"The body is not valid JSON: {error}.", expected="JSON") from error


def _checked(document: Any, records: Sequence[Record] | None) -> Sequence[FeedbackEntry]:
    try:
        return FeedbackRequest.model_validate(document).items
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location: tuple[str | int, ...] = ("body", *first["loc"])
        if records is not None:
            _, index, *field = first["loc"]
            location = ("line", records[int(index)].place(str(field[0]) if field else None))
        raise invalid({**first, "loc": location}) from error


_ID: Final = "01K0ZJ6Z3V8Q2W4X6Y8A0C2E4G"
REQUEST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        JSON_TYPE: {"schema": ref(FeedbackRequest)},
        NDJSON_TYPE: {
            "schema": {"type": "string", "description": f"One item a line, as JSON; maximum {MOST_ITEMS:,}."},
            "example": f'{{"prediction_id": "{_ID}", "label": "7", "source": "reviewer"}}\n'
            '{"reference": "scan-88", "label": "1"}\n',
        },
        CSV_TYPE: {
            "schema": {
                "type": "string",
                "description": f"A header with some of {', '.join(FeedbackEntry.model_fields)}, and one item a row; "
                f"maximum {MOST_ITEMS:,}. An empty cell is a missing field.",
            },
            "example": f"prediction_id,reference,label,source\n{_ID},,7,reviewer\n,scan-88,1,\n",
        },
    },
}
"""The request body in the OpenAPI document."""
