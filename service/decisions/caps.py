"""How much a refit may change: shares of rows, judged by an upper bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

CapName = Literal["flipped", "flag_rate"]


@dataclass(frozen=True, slots=True)
class Cap:
    """A share of recent rows, and how large it may be.

    Attributes:
        name: "flipped" for rows that get another action than before, "flag_rate" for rows that get the action of the
            policy's first band.
        policy: Whose decisions these are.
        count: Such rows.
        of: All rows, one of each group.
        upper: Upper bound of the share, from `binomial.upper_share`.
        at_most: What the bound must not exceed; None when nothing is asked.
    """

    name: CapName
    policy: str
    count: int
    of: int
    upper: float
    at_most: float | None

    @property
    def holds(self) -> bool:
        """Whether the bound is within the cap."""
        return self.at_most is None or self.upper <= self.at_most

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return asdict(self)
