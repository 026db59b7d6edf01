"""Whether the process runs, and whether it serves what it should."""

from __future__ import annotations

from pydantic import Field

from candor.contract.documents import Answer


class Liveness(Answer):
    """Proof that the process runs."""

    live: bool
    uptime_s: float = Field(description="Seconds since the start.")
    version: str = Field(description="Version of the service.")


class Health(Answer):
    """Whether every model serves its active revision. Without a valid key, only the first two fields are present."""

    ready: bool
    stale_for_s: float = Field(description="Seconds since the last contact with the database.")
    models: dict[str, str | None] | None = Field(None, description="Served revision by model; null for none.")
    problems: dict[str, str] | None = Field(
        None,
        description="What is wrong, by model; `bundles`: the remote folder cannot be listed; "
        "`state`: the database does not answer.",
    )
