"""When the labels of policies are mature."""

from __future__ import annotations

from collections.abc import Iterable

from candor.contract.policies import Policy
from service.decisions.solved import SolvedPolicy
from service.times import duration_us


def maturity_us(policies: Iterable[Policy | SolvedPolicy], least_s: float = 0.0) -> int:
    """Return the age in microseconds from which the labels of all policies are mature.

    Args:
        policies: Policies, solved or not; their `labels` count.
        least_s: Age in seconds from which sought labels are.

    Example:
        >>> from service.decisions.policy import parse_policy
        >>> document = {"id": "p", "labels": {"mature_in": "2d"}, "bands": [{"action": "allow"}]}
        >>> maturity_us([parse_policy(document)], 3600.0) / 3.6e9
        48.0
    """
    terms = (one.policy.labels if isinstance(one, SolvedPolicy) else one.labels for one in policies)
    ages = (duration_us(labels.mature_in) for labels in terms if labels is not None)
    return max([round(least_s * 1e6), *ages])
