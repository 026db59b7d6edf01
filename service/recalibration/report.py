"""Parts of a recalibration's report: changed decisions, bounds on the change, a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators.metrics.null_test import above_null
from candor.contract.gate import Cap, Gate
from candor.contract.recalibration import DoubleLabels
from service.decisions.calibrated import Calibrated
from service.decisions.caps import change_cap, ratio_cap, share_cap
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import Limits

_ROWS_AT_ONCE = 8_192
_LONGEST_FIELD = 200  # maximum values of a calibrator's field in a report


def changed_decisions(before: Calibrated, after: Calibrated) -> dict[str, Any]:
    """Count the rows whose action would change, under each policy and under any of them.

    Args:
        before: Rows scored by the active revision.
        after: The same rows, scored by the recalibrated revision, with the same policies.
    """
    any_flip = np.zeros(len(before.rows), dtype=bool)
    policies = {}
    for key, solved in before.policies.items():
        old, new = before.actions(key), after.actions(key)
        any_flip |= old != new
        counts = Counter(old.tolist()), Counter(new.tolist())
        policies[key] = {
            "flipped": int((old != new).sum()),
            "actions": {action: {"before": counts[0][action], "after": counts[1][action]} for action in solved.actions},
        }
    return {"flipped": int(any_flip.sum()), "of": len(before.rows), "policies": policies}


def change_caps(
    before: Calibrated, after: Calibrated, *, which: npt.NDArray[np.intp], limits: Limits, level: float
) -> list[Cap]:
    """Bound the change of probabilities and, for each policy, the changed rows, the flagged rows and their ratio.

    Args:
        before: Recent rows, labelled or not, scored by the active revision.
        after: The same rows, scored by the recalibrated revision, with the same policies.
        which: Indices of the rows that count, one per group.
        limits: Maximum of each.
        level: Level of each bound.
    """
    caps = [change_cap(_changes(before, after, which), level, limits.probability_change)]
    for key, solved in before.policies.items():
        old, new = (side.actions(key)[which] for side in (before, after))
        flagged = solved.policy.bands[0].action
        caps += [
            share_cap("flipped", key, old != new, level, limits.flipped),
            share_cap("flag_rate", key, new == flagged, level, limits.flag_rate),
            ratio_cap(key, old == flagged, new == flagged, level, limits.flag_rate_ratio),
        ]
    return caps


def _changes(before: Calibrated, after: Calibrated, which: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Return the largest change of any class's probability in each of these rows."""
    changes = np.empty(len(which), dtype=np.float32)
    for start in range(0, len(which), _ROWS_AT_ONCE):
        part = which[start : start + _ROWS_AT_ONCE]
        changes[start : start + _ROWS_AT_ONCE] = np.abs(after.probabilities[part] - before.probabilities[part]).max(1)
    return changes


def summary(verdict: Gate) -> str:
    """Return the verdict as one sentence."""
    return verdict.reason if verdict.passed else f"Refused. {verdict.reason}"


def calibration_warnings(ece: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each ECE of the recalibrated revision above its null's 95 % quantile.

    Args:
        ece: Entry `ece` of the report's metrics, of the predicted label.
        parts: Evidence on calibration; the positive classes of policies count, on all rows.
    """
    classes = [part for part in parts if part["required"] and part["label"] is not None]
    found = [above_null(ece["after"], ece["null"]["q95"])]
    found += [above_null(part["after"]["ece"], part["after"]["null_q95"], part["label"]) for part in classes]
    return [warning for warning in found if warning is not None]


def label_warnings(policies: Mapping[str, SolvedPolicy], doubles: DoubleLabels | None, unknown: int) -> list[str]:
    """Return a warning of labels that the model lacks, and for each policy that assumes too few wrong labels.

    Args:
        policies: Policies by id.
        doubles: What double labels say; None if nothing.
        unknown: Rows whose label the model lacks.
    """
    warnings = []
    if unknown:
        warnings = [
            f"Rows with a label that the model lacks: {unknown}. They fit and gate nothing. Promises count them as "
            "rows without a label: in flag rates, and as errors where they may be one."
        ]
    if doubles is None or doubles.wrong is None:
        return warnings
    return warnings + [
        f"Policy {key!r} assumes at most {share:.1%} of wrong labels, but rows with two labels estimate "
        f"{doubles.wrong:.1%} (at most {doubles.upper:.1%}, confidence 95 %)."
        for key, solved in policies.items()
        if (share := solved.policy.certify.wrong_labels) is not None and doubles.wrong > share
    ]


def shown_calibrator(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a calibrator's document for a report, without long fields such as a matrix over a thousand classes.

    Args:
        document: From `Calibrator.to_dict`.

    Returns:
        The document; `omitted` names the fields left out, if any.

    Example:
        >>> shown_calibrator({"method": "vector", "scale": [1.0] * 1000})
        {'method': 'vector', 'omitted': ['scale']}
    """
    omitted = [key for key, value in document.items() if _numbers(value) > _LONGEST_FIELD]
    shown = {key: value for key, value in document.items() if key not in omitted}
    return {**shown, "omitted": omitted} if omitted else shown


def _numbers(value: Any) -> int:
    """Count the scalars in a JSON-able value."""
    if isinstance(value, Mapping):
        return sum(_numbers(part) for part in value.values())
    return sum(_numbers(part) for part in value) if isinstance(value, list) else 1
