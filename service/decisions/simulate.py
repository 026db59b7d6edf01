"""What a policy would have done with rows that it was not solved on: decisions that change, volumes, what to expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.decisions.binomial import lower_share, upper_share
from service.decisions.conditions import Metric
from service.decisions.counting import Counts, Sample
from service.decisions.grid import lowest_propensity
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedPolicy

LEVEL: Final = 0.05
"""One minus the coverage of the intervals."""

_METRICS: Final[tuple[Metric, ...]] = ("precision", "recall", "false_positive_rate", "flag_rate")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share of the population, estimated.

    Attributes:
        value: The share among rows whose label is known; None without any.
        interval: Exact two-sided 95 % interval, whatever the unknown labels are.
        n: Rows in the denominator whose label is known.
        unknown: Rows that may belong to the denominator, and whose label is not known.
    """

    value: float | None
    interval: tuple[float, float]
    n: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of the rows that a band or one before it takes.

    Attributes:
        action: The band's action.
        precision: Share of positives among those rows; 1 minus the selective risk.
        recall: Share of all positives that they hold.
        false_positive_rate: Share of all negatives that they hold.
        flag_rate: Share of all rows that they are.
    """

    action: str
    precision: Estimate
    recall: Estimate
    false_positive_rate: Estimate
    flag_rate: Estimate


@dataclass(frozen=True, slots=True)
class Flip:
    """A row that would get another action.

    Attributes:
        id: Its name.
        before: Action now.
        after: Action under the new policy.
    """

    id: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """What would have happened.

    Attributes:
        rows: Rows tried.
        labelled: Rows among them whose label was sought and has come.
        flipped: Rows that would get another action; None where there is nothing to compare with.
        flips: The first of them.
        changes: How many rows go from which action to which.
        volumes: Rows by action, before (None where there is nothing to compare with) and after.
        bands: What to expect of each band but the last.
    """

    rows: int
    labelled: int
    flipped: int | None
    flips: tuple[Flip, ...]
    changes: tuple[tuple[str, str, int], ...]
    volumes: dict[str, tuple[int | None, int]]
    bands: tuple[Forecast, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "rows": self.rows,
            "labelled": self.labelled,
            "decisions": {
                "flipped": self.flipped,
                "of": self.rows,
                "changes": [{"before": before, "after": after, "rows": rows} for before, after, rows in self.changes],
                "flips": [asdict(flip) for flip in self.flips],
            },
            "actions": {action: {"before": before, "after": after} for action, (before, after) in self.volumes.items()},
            "expected": [asdict(band) for band in self.bands],
        }


def simulate(
    after: SolvedPolicy,
    decided: NDArray[np.intp],
    rows: ScoredRows,
    ids: Sequence[str] | NDArray[np.str_],
    *,
    before: NDArray[np.str_] | None = None,
    most_flips: int = 100,
    seed: int = 0,
) -> Simulation:
    """Compare a policy with what happens now, and estimate what its bands would keep.

    Args:
        after: The solved policy.
        decided: What it decides for each row, as `decide` gives it, shape (N,).
        rows: The rows as this policy sees them, N of them, unlabelled ones among them; none that solved the policy.
        ids: Name of each row, N of them.
        before: Action of each row now, shape (N,); None where there is nothing to compare with.
        most_flips: Names of changed rows that are returned, at most.
        seed: Of the draws that choose one row per group and thin by propensity; fixed before any label is seen.

    Returns:
        Volumes and changes of the very rows; estimates for the population, one row of each group counting.

    Example:
        >>> from service.decisions.certify import solve
        >>> from service.decisions.decide import decide
        >>> from service.decisions.policy import Policy
        >>> bands = [{"action": "accept", "when": {"min_probability": 0.6}}, {"action": "review"}]
        >>> p = np.linspace(0.5, 1.0, 200, dtype=np.float32)
        >>> rows = ScoredRows(p, p, p > 0.7)
        >>> policy = Policy.from_dict({"id": "p", "bands": bands})
        >>> solved = solve(policy, version=1, fit=rows, certify=rows, look=1, basis="traffic")
        >>> found = simulate(solved, decide(solved, p, p), rows, [str(i) for i in range(200)])
        >>> found.volumes, found.bands[0].precision.value, found.bands[0].recall.value
        ({'accept': (None, 160), 'review': (None, 40)}, 0.75, 1.0)
    """
    names = np.array(after.actions)
    actions = names[decided]
    flips = np.flatnonzero(actions != before) if before is not None else np.empty(0, dtype=np.intp)
    counts = Counter(actions.tolist())
    counts_before = None if before is None else Counter(before.tolist())
    changes = (
        Counter() if before is None else Counter(zip(before[flips].tolist(), actions[flips].tolist(), strict=True))
    )
    known_actions = dict.fromkeys([*after.actions, *sorted(counts_before or ())])
    return Simulation(
        rows=len(rows),
        labelled=int(rows.known().sum()),
        flipped=None if before is None else len(flips),
        flips=tuple(
            Flip(str(ids[row]), str(before[row]), str(actions[row])) for row in flips[:most_flips] if before is not None
        ),
        changes=tuple((was, will, rows) for (was, will), rows in changes.most_common()),
        volumes={
            action: (None if counts_before is None else counts_before[action], counts[action])
            for action in known_actions
        },
        bands=_forecasts(after, decided, rows, seed),
    )


def _forecasts(solved: SolvedPolicy, decided: NDArray[np.intp], rows: ScoredRows, seed: int) -> tuple[Forecast, ...]:
    floor = lowest_propensity(len(solved.actions), decided, rows.propensity)
    sample = Sample(rows, decided, floor, seed)
    counts = {metric: sample.count(metric) for metric in _METRICS}
    return tuple(
        Forecast(band.action, **{metric: _estimate(counts[metric], metric, index) for metric in _METRICS})
        for index, band in enumerate(solved.bands[:-1])
    )


def _estimate(counts: Counts, metric: Metric, index: int) -> Estimate:
    """Return the metric at one band; errors are what counts against a precision or recall, and the rate itself else."""
    n, errors, known, known_errors, best = (
        int(column[index]) for column in (counts.n, counts.errors, counts.known, counts.known_errors, counts.best)
    )
    rate = known_errors / known if known else None
    low, high = lower_share(known_errors, best, LEVEL / 2), upper_share(errors, n, LEVEL / 2)
    unknown = n - known + best - known if metric in ("recall", "false_positive_rate") else n - known
    if metric in ("precision", "recall"):
        return Estimate(None if rate is None else 1 - rate, (1 - high, 1 - low), known, unknown)
    return Estimate(rate, (low, high), known, unknown)
