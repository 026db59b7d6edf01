"""How much a refit may change: shares of rows, judged by an upper bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from scipy.special import betaincinv

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
        upper: Upper bound of the share, from `upper_share`.
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


def upper_share(count: int, of: int, level: float) -> float:
    """Return the exact one-sided upper bound of a share.

    Args:
        count: Rows that have the property, 0 … `of`.
        of: Rows in all.
        level: Probability in (0, 1) that the bound lies below the share, at most.

    Returns:
        A share in (0, 1]; 1 without rows.

    References:
        Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case of
        the binomial. Biometrika 26, 404–413.

    Example:
        >>> round(upper_share(0, 59, 0.05), 3), upper_share(3, 3, 0.05)
        (0.05, 1.0)
    """
    return float(betaincinv(count + 1, of - count, 1.0 - level)) if count < of else 1.0
