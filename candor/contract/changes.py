"""How decisions change from one calibrator or policy to another."""

from __future__ import annotations

from pydantic import Field

from candor.contract.documents import Answer


class Volume(Answer):
    """Rows that get an action, before and after."""

    before: int | None = Field(description="Null without a policy to compare with.")
    after: int


class PolicyChanges(Answer):
    """How one policy's decisions change."""

    flipped: int = Field(description="Rows that get another action.")
    actions: dict[str, Volume] = Field(description="Rows by action.")


class DecisionChanges(Answer):
    """How decisions change on the compared rows."""

    flipped: int = Field(description="Rows that get another action under any policy.")
    of: int = Field(description="Rows compared.")
    policies: dict[str, PolicyChanges] = Field(description="Changes by policy.")
