"""What another revision does to the traffic: the share of each action before and after, on the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import REVIEW
from candor.contract.traffic import PolicyMix, SegmentMix, ShareChange
from service.decisions.binomial import lower_share
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import decides_nothing
from service.decisions.solved import SolvedPolicy

ENOUGH_ROWS: Final = 100
"""Rows from which an observed change counts as it is; in fewer, only a change that chance does not explain.

On 100 rows, a change of half the default limit is seen beyond the limit in 2 % of cases.
"""

MOST_SEGMENTS: Final = 20
_LEVEL: Final = 0.05
_ROUNDING: Final = 1e-9  # 0.3 - 0.2 is not above 0.1


def mixes(before: Calibrated, after: Calibrated, limit: float) -> dict[str, PolicyMix]:
    """Return the shares of all actions on the same rows, for each policy that both sides have.

    Args:
        before: N rows, decided by the active revision's policies.
        after: The same rows, decided by another revision's.
        limit: Largest change of a share that does not exceed the limit, in [0, 1].
    """
    found = {}
    for key in before.policies.keys() & after.policies.keys() if len(before.rows) else ():
        was, will = before.actions(key), after.actions(key)
        names = list(dict.fromkeys([*before.policies[key].actions, *after.policies[key].actions]))
        whole = _mix(names, was, will, limit)
        segments = tuple(_segments(names, was, will, before.rows.segment, limit))
        found[key] = PolicyMix(**whole, segments=segments)
    return dict(sorted(found.items()))


def exceeding(
    found: Mapping[str, PolicyMix],
    before: Mapping[str, SolvedPolicy],
    after: Mapping[str, SolvedPolicy],
    limit: float,
    reviewed: Iterable[str] = (),
) -> tuple[str, ...]:
    """Describe each change that somebody must accept: beyond the limit, or all rows to review.

    Args:
        found: From `mixes`.
        before: The active revision's policies in force.
        after: The other revision's.
        limit: As for `mixes`.
        reviewed: New policies that send every recent row to review, from `to_review`.
    """
    said = []
    for key in sorted(after):
        if decides_nothing(after[key]) and not (key in before and decides_nothing(before[key])):
            said.append(f"Policy {key!r} would give every row {after[key].policy.fallback!r}: nothing is certified.")
        elif key in found:
            mix = found[key]
            parts = [part for part in mix.segments if part.exceeds and not mix.exceeds]
            said += [_said(key, part, limit) for part in ([mix] if mix.exceeds else parts)]
        elif key in reviewed:
            said.append(f"The new policy {key!r} would send every recent row to review.")
    return tuple(said)


def to_review(before: Mapping[str, SolvedPolicy], after: Calibrated) -> frozenset[str]:
    """Return the new policies that send every row to review, where there are enough rows to tell."""
    new = after.policies.keys() - before.keys() if len(after.rows) >= ENOUGH_ROWS else ()
    return frozenset(key for key in new if (after.actions(key) == REVIEW).all())


def _said(key: str, mix: PolicyMix | SegmentMix, limit: float) -> str:
    action, share = max(mix.actions.items(), key=lambda item: round(abs(item[1].after - item[1].before), 9))
    of = ""
    if isinstance(mix, SegmentMix):
        of = " for all other segments" if mix.segment is None else f" for segment {mix.segment!r}"
    return (
        f"Policy {key!r} would change the share of {action!r}{of} from {share.before:.1%} to {share.after:.1%} "
        f"({mix.rows:,} recent rows; limit: {100 * limit:g} points)."
    )


def _mix(names: list[str], was: NDArray[np.str_], will: NDArray[np.str_], limit: float) -> dict[str, Any]:
    rows = len(was)
    counts = {name: (int((was == name).sum()), int((will == name).sum())) for name in names}
    largest = max(abs(after - before) for before, after in counts.values())
    sure = largest / rows if rows >= ENOUGH_ROWS else lower_share(largest, rows, _LEVEL)
    reviewed = counts.get(REVIEW, (0, 0))
    to_review = rows >= ENOUGH_ROWS and reviewed[1] == rows > reviewed[0]
    return {
        "rows": rows,
        "actions": {
            name: ShareChange(before=before / rows, after=after / rows) for name, (before, after) in counts.items()
        },
        "largest": largest / rows,
        "exceeds": sure > limit + _ROUNDING or to_review,
    }


def _segments(
    names: list[str], was: NDArray[np.str_], will: NDArray[np.str_], segment: NDArray[Any], limit: float
) -> Iterator[SegmentMix]:
    """Yield the mix of each segment that has enough rows, largest change first, then that of all other rows."""
    values, code = np.unique(np.array(["" if value is None else value for value in segment]), return_inverse=True)
    counts = np.bincount(code)
    found = []
    for place in np.flatnonzero((counts >= ENOUGH_ROWS) & (values != "")):
        which = code == place
        mix = SegmentMix(**_mix(names, was[which], will[which], limit), segment=str(values[place]))
        found.append((mix, which))
    found.sort(key=lambda one: -one[0].largest)
    shown = found[:MOST_SEGMENTS]
    yield from (mix for mix, _ in shown)
    rest = ~np.any([which for _, which in shown], axis=0) if shown else np.zeros(0, np.bool_)
    if rest.any():
        yield SegmentMix(**_mix(names, was[rest], will[rest], limit), segment=None)
