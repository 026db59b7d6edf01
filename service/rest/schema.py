"""The base of request and answer bodies on the control plane."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """Frozen; a field that is not named is an error, so that a typing mistake is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)
