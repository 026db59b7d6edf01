"""What an activation does to the traffic: the share of each action before and after it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from candor.contract.documents import Answer


class ShareChange(Answer):
    """Shares of an action, in [0, 1]."""

    before: float = Field(description="Share of the rows under the active revision.")
    after: float = Field(description="Share of the same rows under the other revision.")


class ActionMix(Answer):
    """Shares of all actions on the same rows, before and after."""

    rows: int
    actions: dict[str, ShareChange] = Field(description="Shares by action.")
    largest: float = Field(description="Largest change of an action's share.")
    exceeds: bool = Field(description="Whether a change exceeds the limit, or all rows would go to review.")


class SegmentMix(ActionMix):
    """Shares of all actions in a segment."""

    segment: str | None = Field(description="Value of the requests' `segments`; null for all other rows.")


class PolicyMix(ActionMix):
    """Shares of all actions of a policy."""

    segments: tuple[SegmentMix, ...] = Field(
        description="Segments with at least 100 rows, largest change first, maximum 20, then all other rows; empty "
        "without segments."
    )


class Guard(Answer):
    """A guard of an activation: it rolls back if the share of an action changes by more than `max_change`."""

    state: Literal["watching", "passed", "rolled_back", "ended"] = Field(
        description="`passed`: its window is over; `rolled_back`: it has rolled back; `ended`: another activation or "
        "rollback has ended it."
    )
    revision: str = Field(description="Revision that was activated.")
    previous: str = Field(description="Revision that it rolls back to.")
    since: str = Field(description="Time of the activation (ISO 8601, UTC).")
    until: str = Field(description="End of its window.")
    max_change: float = Field(description="Largest change of an action's share that it allows.")
    level: float = Field(description="Maximum probability of a rollback although no share changes by more than that.")
    looks: int = Field(description="Tests so far.")
    before: dict[str, dict[str, int]] = Field(
        description="Groups by policy and action before the activation, in a span as long as that since; empty before "
        "the first test."
    )
    after: dict[str, dict[str, int]] = Field(description="The same since the activation.")
    reason: str | None = Field(description="Why it rolled back; null otherwise.")


class TrafficChange(Answer):
    """Recent predictions, decided by the active revision and by another one."""

    revision: str = Field(description="The other revision.")
    rows: int = Field(description="Predictions replayed, newest first, maximum 20,000 (2,000 with another model).")
    window: tuple[str, str] | None = Field(description="Times of the oldest and the newest row; null without rows.")
    limit: float = Field(description="Change of an action's share that needs no acceptance.")
    policies: dict[str, PolicyMix] = Field(description="By policy that both revisions have, as if it decided all rows.")
    exceeds: tuple[str, ...] = Field(description="What must be accepted, with a reason; empty for nothing.")
    not_compared: str | None = Field(None, description="Why no row was replayed; null otherwise.")
