"""What a policy would have done with rows that did not solve it: changed decisions, volumes, and forecasts."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.changes import Volume
from candor.contract.conditions import Metric
from candor.contract.simulation import Change, Changes, Flip, Forecast, ShareEstimate, SimulatedDecisions
from service.decisions.binomial import lower_share, upper_share
from service.decisions.counting import Counts, Sample
from service.decisions.decide import decide
from service.decisions.grid import lowest_propensity
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy

LEVEL: Final = 0.05
"""One minus the coverage of the intervals."""

_METRICS: Final[tuple[Metric, ...]] = ("precision", "recall", "false_positive_rate", "flag_rate")


def simulate(
    after: SolvedPolicy,
    rows: ScoredRows,
    *,
    before: tuple[SolvedPolicy, ScoredRows] | None = None,
    most_flips: int = 100,
    seed: int = 0,
) -> SimulatedDecisions:
    """Compare a policy with the policy that decides now, and estimate the rates of its bands.

    Args:
        after: The solved policy.
        rows: N rows as this policy scores them, labelled or not; none of them solved the policy.
        before: The policy that decides now, and the same rows as it scores them; None without one.
        most_flips: Maximum number of changed rows to name.
        seed: Seed of the draws of one row per group and of the thinning; fixed before any label is seen.

    Returns:
        Volumes and changes of these rows, and estimates for the population, to which each group contributes one row.

    Example:
        >>> from service.decisions.certify import solve
        >>> from service.decisions.policy import parse_policy
        >>> bands = [{"action": "accept", "when": {"min_probability": 0.6}}, {"action": "review"}]
        >>> p = np.linspace(0.5, 1.0, 200, dtype=np.float32)
        >>> rows = ScoredRows(probability=p, score=p, positive=p > 0.7)
        >>> policy = parse_policy({"id": "p", "bands": bands})
        >>> solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="traffic")
        >>> found = simulate(solved, rows)
        >>> found.actions["accept"].after, found.expected[0].precision.value, found.expected[0].recall.value
        (160, 0.75, 1.0)
    """
    decided = _decided(after, rows)
    actions = np.array(after.actions)[decided]
    now = actions if before is None else np.array(before[0].actions)[_decided(*before)]
    flips = np.flatnonzero(actions != now)
    counts = Counter(actions.tolist())
    counts_before = None if before is None else Counter(now.tolist())
    changes = Counter(zip(now[flips].tolist(), actions[flips].tolist(), strict=True))
    known_actions = dict.fromkeys([*after.actions, *sorted(counts_before or ())])
    return SimulatedDecisions(
        rows=len(rows),
        labelled=int(rows.known().sum()),
        decisions=Changes(
            flipped=None if before is None else len(flips),
            of=len(rows),
            changes=tuple(Change(before=was, after=will, rows=rows) for (was, will), rows in changes.most_common()),
            flips=tuple(
                Flip(id=rows.id[row].decode(), before=str(now[row]), after=str(actions[row]))
                for row in flips[:most_flips]
            ),
        ),
        actions={
            action: Volume(before=None if counts_before is None else counts_before[action], after=counts[action])
            for action in known_actions
        },
        expected=_forecasts(after, decided, rows, seed),
    )


def _decided(solved: SolvedPolicy, rows: ScoredRows) -> NDArray[np.intp]:
    return decide(solved, rows.probability, rows.score, rows.segment, rows.amount)


def _forecasts(solved: SolvedPolicy, decided: NDArray[np.intp], rows: ScoredRows, seed: int) -> tuple[Forecast, ...]:
    floor = lowest_propensity(len(solved.actions), decided, rows.propensity)
    sample = Sample(rows, decided, floor, seed)
    counts = {metric: sample.count(metric) for metric in _METRICS}
    return tuple(
        Forecast(action=band.action, **{metric: _estimate(counts[metric], metric, index) for metric in _METRICS})
        for index, band in enumerate(solved.bands[:-1])
    )


def _estimate(counts: Counts, metric: Metric, index: int) -> ShareEstimate:
    """Return the estimate of a metric at one band; errors lower a precision or recall, and are the rate otherwise."""
    n, errors, known, known_errors, best = (
        int(column[index]) for column in (counts.n, counts.errors, counts.known, counts.known_errors, counts.best)
    )
    rate = known_errors / known if known else None
    low, high = lower_share(known_errors, best, LEVEL / 2), upper_share(errors, n, LEVEL / 2)
    unknown = n - known + best - known if metric in ("recall", "false_positive_rate") else n - known
    if metric in ("precision", "recall"):
        rate, low, high = None if rate is None else 1 - rate, 1 - high, 1 - low
    return ShareEstimate(value=rate, interval=(low, high), n=known, unknown=unknown)
