"""The audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from candor.contract.documents import Answer


class AuditEntry(Answer):
    """One recorded action."""

    id: int
    at: str = Field(description="Time (ISO 8601, UTC).")
    by: str = Field(description="Name of the API key, or of the part of the service that acted.")
    action: str = Field(description="Such as `activate`.")
    subject: str = Field(description="What it was done to, such as `r7`.")
    detail: dict[str, Any] = Field(description="More about the action, such as its reason.")


class AuditPage(Answer):
    """Recorded actions, newest first."""

    items: tuple[AuditEntry, ...]
    next: int | None = Field(description="Value of `before` for the next page; null on the last.")
