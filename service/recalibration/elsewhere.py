"""What a candidate calibrator could cost where no gate row lies, seen in the features of fit and certify rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np

from calibrators import Calibrator
from service.decisions.gate import Potential, potential
from service.decisions.multicalibrated import probabilities_of
from service.decisions.rows import Rows

_ROWS_AT_ONCE: Final = 8_192


def elsewhere(candidate: Calibrator, active: Calibrator, parts: Iterable[Rows]) -> Potential:
    """Return the largest difference, in log loss and in Brier score, of any group with the worst labels.

    Gate rows may miss a region by chance. Labels are not read, so any row of another role shows what is possible there.

    Args:
        candidate: The recalibrated calibrator.
        active: The active one.
        parts: Rows of other roles, labelled or not; groups may be in several parts.
    """
    found = [Potential()]
    for rows in parts:
        order = np.argsort(rows.group, kind="stable")
        group = rows.group[order]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
        places = np.searchsorted(starts, np.arange(0, len(group), _ROWS_AT_ONCE)).clip(max=max(len(starts) - 1, 0))
        for first, last in pairwise([*np.unique(starts[places]), len(group)]):
            some = rows.take(order[first:last])
            after, before = (probabilities_of(one, some.logits, some.cells) for one in (candidate, active))
            found.append(potential(after, before, some.group)._replace(of=len(rows)))
    return max(found, key=lambda one: one.nll)._replace(brier=max(one.brier for one in found))
