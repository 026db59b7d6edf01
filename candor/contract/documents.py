"""The two kinds of JSON documents: what the service answers, and what it reads."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
"""Text that every database stores: not empty, and without NUL, which PostgreSQL refuses."""

Interval = Annotated[tuple[float, float], Field(description="Lower and upper end.")]


def each_name_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON document, as `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: It has a name twice. Readers do not agree which of the values counts.
    """
    found = dict(members)
    if len(found) < len(members):
        name = Counter(name for name, _ in members).most_common(1)[0][0]
        raise ValueError(f"duplicate name {name[:100]!r}")
    return found


class Answer(BaseModel):
    """Base of everything that the service answers: frozen, and open to fields that a newer service adds."""

    model_config = ConfigDict(extra="ignore", frozen=True, serialize_by_alias=True)

    @property
    def document(self) -> dict[str, Any]:
        """The answer as a JSON-able document, without the fields that the service left out."""
        # Without warnings: the service hands on what it stored as documents, also of earlier versions, as it is.
        return self.model_dump(mode="json", exclude_unset=True, warnings=False)


class Entry(BaseModel):
    """Base of what a request has thousands of: frozen, and closed to unknown fields, so that typos are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(Entry):
    """Base of everything else that the service reads, with one error for all unknown fields."""

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_field(cls, given: Any) -> Any:
        """Leave out all unknown fields but the first: an error for each of thousands would hold up the event loop."""
        fields = cls.model_fields
        if not isinstance(given, dict) or len(given) <= len(fields):
            return given
        known = {name: given[name] for name in fields if name in given}
        unknown = next((name for name in given if name not in fields), None)
        return given if unknown is None else known | {unknown: given[unknown]}
