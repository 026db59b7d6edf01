"""The audit log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from candor.contract.documents import Answer


class AuditEntry(Answer):
    """One recorded action."""

    id: int
    at: str = Field(description="Time (ISO 8601, UTC).")
    model: str | None = Field(None, description="Model that it concerns; null for the whole service.")
    by: str = Field(description="Name of the API key, or of the part of the service that acted.")
    action: str = Field(description="Such as `activate`.")
    subject: str = Field(description="What it was done to, such as `r7`.")
    detail: dict[str, Any] = Field(description="More about the action, such as its reason.")


class AuditPage(Answer):
    """Recorded actions, newest first."""

    items: tuple[AuditEntry, ...]
    next: int | None = Field(description="Value of `before` for the next page; null on the last.")


class AuditHead(BaseModel):
    """A signed head of the hash chain over the audit log, as it is exported."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["audit.head"]
    at: str = Field(description="When it was signed, UTC.")
    position: int = Field(ge=0, description="Number of links of the chain.")
    entry: int = Field(ge=0, description="Id of the last entry; 0 in an empty log.")
    head: str = Field(pattern="[0-9a-f]{64}", description="Last link: a SHA-256, hexadecimal.")
    key: str = Field(description="First 16 hexadecimal digits of the SHA-256 of the public key (SubjectPublicKeyInfo).")
    signature: str = Field(
        description="ed25519 signature (Base64) of `candor-audit-head-1`, a line feed, and the other fields as JSON "
        "with sorted keys and no spaces."
    )
