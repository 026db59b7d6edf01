"""Labelled sets: uploaded rows with labels, to recalibrate on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from candor.contract.documents import Answer


class LabelledSet(Answer):
    """An uploaded labelled set: its description, not its rows."""

    id: str = Field(description="Such as `ls1`.")
    model: str
    sha256: str = Field(description="Digest of the uploaded bytes.")
    bytes: int = Field(description="Size of the upload.")
    rows: int
    kind: Literal["logits", "inputs"]
    represents: Literal["traffic"] | None = Field(
        description="`traffic`: declared a random sample of the model's traffic; only then its rows certify."
    )
    labels: dict[str, int] = Field(description="Rows by label.")
    segments: tuple[str, ...] = Field(description="Segments that occur in the rows.")
    by: str = Field(description="Name of the API key that uploaded it.")
    created_at: str = Field(description="Time of the upload (ISO 8601, UTC).")


class LabelledSetPage(Answer):
    """Labelled sets, newest first."""

    items: tuple[LabelledSet, ...]
