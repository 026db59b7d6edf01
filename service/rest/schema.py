"""The base of request and answer bodies on the control plane."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
"""Text that every database stores: not empty, and without NUL, which PostgreSQL does not take."""


class Body(BaseModel):
    """Frozen; a field that is not named is an error, so that a typing mistake is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)
