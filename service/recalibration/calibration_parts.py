"""Calibration of the predicted label, of single classes and of segments, on the gate's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bundle.split import one_per_group
from calibrators import metrics
from candor.contract.policies import TOP
from service.decisions.calibrated import Calibrated
from service.decisions.calibration_bound import upper_error

_BINS: Final = 15
_RESAMPLES: Final = 200
_LEVEL: Final = 0.025
Group = tuple[str, str, NDArray[np.intp]]
"""Column, value, and the places of its rows."""

_MOST: Final = 10
"""Maximum number of classes, and of segments."""


class _Part(NamedTuple):
    rows: NDArray[np.intp]
    label: str | None = None
    segment: str | None = None
    column: str | None = None
    value: str | None = None
    required: bool = False


def calibration_parts(
    before: Calibrated, after: Calibrated, seed: int, groups: Iterable[Group] = ()
) -> list[dict[str, Any]]:
    """Return the evidence on calibration of each part: all rows, classes, segments, values of columns.

    Args:
        before: The gate's rows, scored by the active revision.
        after: The same rows, scored by the recalibrated revision.
        seed: Seed of the null distribution of the ECE, and of the row of each group that the bound reads.
        groups: Values of the columns of a multicalibration, with their rows.

    Returns:
        A part has `label`, None for the predicted one; `segment`, None for all rows; `column` and `value`, None unless
        it is of a group; `required`, whether a limit on the calibration error is about it; `rows`; and `before` and
        `after` with `ece`, its 95 % quantile under perfect calibration (`null_q95`), and `upper`: with confidence
        97.5 %, the root of the mean squared error over the bins of `upper_error` is at most this.
    """
    parts = [*_parts(before)]
    of_class = next((part.label for part in parts if part.label is not None), before.names[-1])
    parts += [_Part(rows, label=of_class, column=column, value=value) for column, value, rows in groups]
    found = []
    for part in parts:
        positive = None if part.label is None else list(before.names).index(part.label)
        sides = {"before": before.take(part.rows), "after": after.take(part.rows)}
        evidence = {name: _evidence(side, positive, seed) for name, side in sides.items()}
        found.append({**part._asdict(), "rows": len(part.rows), **evidence})
    return found


def largest_error(parts: list[dict[str, Any]]) -> float:
    """Return the largest upper bound after the recalibration that a limit is about."""
    return max(float(part["after"]["upper"]) for part in parts if part["required"])


def _parts(side: Calibrated) -> Iterator[_Part]:
    """Yield the parts that are of no group: policies' positive classes first, then frequent ones."""
    every = np.arange(len(side.rows))
    yield _Part(every, required=True)
    wanted = dict.fromkeys(solved.policy.positive for solved in side.policies.values())
    wanted.pop(TOP, None)
    counts = np.bincount(side.rows.label, minlength=len(side.names))
    frequent = [side.names[at] for at in np.argsort(-counts, kind="stable") if counts[at]]
    others = [label for label in frequent if label not in wanted] if len(side.names) > 2 else []
    yield from (_Part(every, label=label, required=True) for label in wanted)
    yield from (_Part(every, label=label) for label in others[: max(0, _MOST - len(wanted))])
    named = [segment for segment in side.rows.segment.tolist() if segment]
    values, sizes = np.unique(np.array(named, dtype=str), return_counts=True)
    for segment in values[np.argsort(-sizes, kind="stable")][:_MOST].tolist():
        rows = every[side.rows.segment == segment]
        yield from (_Part(rows, label=label, segment=segment) for label in (None, *wanted))


def _evidence(side: Calibrated, positive: int | None, seed: int) -> dict[str, float]:
    of = {"predicted": side.predicted} if positive is None else {"positive": positive}
    tested = metrics.calibration_test(side.probabilities, side.rows.label, _BINS, resamples=_RESAMPLES, seed=seed, **of)
    stated = side.confidence if positive is None else side.probabilities[:, positive]
    event = side.right if positive is None else side.rows.label == positive
    single = one_per_group(side.rows.group, seed)
    upper = upper_error(stated[single], event[single], _LEVEL)
    return {"ece": tested.error, "null_q95": tested.null_quantile, "upper": upper}
