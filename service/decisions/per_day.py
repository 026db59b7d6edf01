"""Promises in rows per day: shares of the rows of a day, which the policy gives or the service measures.

A certificate covers the share. It assumes the number of rows of a day, and does not cover it.
"""

from __future__ import annotations

import math
from typing import Final

from candor.contract.policies import Policy
from service.decisions.policy import parse_policy
from service.errors import PolicyError
from service.places import in_body

LARGEST_SHARE: Final = 0.99
"""Largest share that a promise in rows per day becomes, where the measured days have fewer rows."""


def of_rows_per_day(policy: Policy, measured: int | None) -> Policy:
    """Return a policy whose promises in rows per day are shares of the rows of a day.

    Args:
        policy: The policy; without such a promise, or with `rows_per_day` of its own, it is returned as it is.
        measured: Rows of a busy day in the traffic; None if unknown.

    Raises:
        PolicyError: The rows of a day are unknown, or exploration alone takes as many as are promised.

    Example:
        >>> bands = [{"action": "review", "when": {"max_review_per_day": 500}}, {"action": "allow"}]
        >>> policy = parse_policy({"id": "p", "bands": bands})
        >>> of_rows_per_day(policy, 10_000).tolerance(0)
        0.05
    """
    most = policy.most_per_day
    if most is None or not policy.lacks_rows_per_day:
        return policy
    if measured is None:
        raise PolicyError(
            "The rows of a day are unknown: there is no whole day (UTC) of traffic, or it is not counted yet.",
            where=in_body("rows_per_day"),
            found=None,
            expected="the rows that the model predicts in a busy day",
            remedy="Give `rows_per_day`, or put the policy into a service whose model has predicted for a whole day.",
        )
    return parse_policy({**policy.to_dict(), "rows_per_day": max(measured, math.ceil(most / LARGEST_SHARE))})
