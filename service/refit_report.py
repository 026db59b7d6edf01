"""What a refit says about itself: the two sides, decisions that change, what is bounded, one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators import Calibrator
from service.decisions.caps import Cap, change_cap, ratio_cap, share_cap
from service.decisions.decide import decide_rows
from service.decisions.gate import GateResult
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import Limits

_ROWS_AT_ONCE = 8_192
_LONGEST_FIELD = 200  # values in a calibrator's field above which a report leaves it out


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the two that are compared: the revision in service, or the refit.

    Attributes:
        calibrator: Fitted calibrator.
        policies: Solved policies by id.
        probabilities: float32 (N, K).
        labels: int64 (N,), the label that it predicts for each.
        confidence: float32 (N,), the probability of that label.
    """

    calibrator: Calibrator
    policies: Mapping[str, SolvedPolicy]
    probabilities: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float32]

    @classmethod
    def of(cls, calibrator: Calibrator, policies: Mapping[str, SolvedPolicy], logits: npt.NDArray[np.float32]) -> Side:
        """Calibrate logits (N, K)."""
        probabilities = calibrator.predict_proba(logits)
        return cls(calibrator, policies, probabilities, *calibrator.top_label(logits, probabilities))

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Side:
        """Return the rows that `which` marks or numbers."""
        rows = self.probabilities[which], self.labels[which], self.confidence[which]
        return Side(self.calibrator, self.policies, *rows)

    def actions(
        self, policy: str, names: Sequence[str], logits: npt.NDArray[np.float32], segments: npt.NDArray[np.object_]
    ) -> npt.NDArray[np.str_]:
        """Return what a policy does with each row.

        Args:
            policy: Its id.
            names: The model's labels.
            logits: float32 (N, K), of these rows.
            segments: str or None (N,), theirs.
        """
        solved = self.policies[policy]
        bands = decide_rows(solved, names, logits, self.probabilities, self.labels, self.confidence, segments)
        return np.array(solved.actions)[bands]


def changed_decisions(
    names: Sequence[str],
    before: Side,
    after: Side,
    logits: npt.NDArray[np.float32],
    segments: npt.NDArray[np.object_],
) -> dict[str, Any]:
    """Count the gate rows whose action would change, under each policy and under any of them.

    Args:
        names: The model's labels.
        before: The revision in service.
        after: The refit, with the same policies.
        logits: float32 (N, K), of the gate rows.
        segments: str or None (N,), theirs.
    """
    any_flip = np.zeros(len(logits), dtype=bool)
    policies = {}
    for key in before.policies:
        old, new = (side.actions(key, names, logits, segments) for side in (before, after))
        any_flip |= old != new
        counts = Counter(old.tolist()), Counter(new.tolist())
        policies[key] = {
            "flipped": int((old != new).sum()),
            "actions": {
                action: {"before": counts[0][action], "after": counts[1][action]}
                for action in before.policies[key].actions
            },
        }
    return {"flipped": int(any_flip.sum()), "of": len(logits), "policies": policies}


def change_caps(
    names: Sequence[str],
    before: Side,
    after: Side,
    logits: npt.NDArray[np.float32],
    segments: npt.NDArray[np.object_],
    *,
    which: npt.NDArray[np.intp],
    limits: Limits,
    level: float,
) -> list[Cap]:
    """Bound how far probabilities move, and for each policy the shares of changed and of flagged rows and their ratio.

    Args:
        names: The model's labels.
        before: The revision in service.
        after: The refit, with the same policies.
        logits: float32 (N, K), of recent rows, labelled or not.
        segments: str or None (N,), theirs.
        which: Indices of the rows that count, one of each group.
        limits: What these may be.
        level: Of each bound.
    """
    caps = [change_cap(_changes(before, after, which), level, limits.probability_change)]
    for key, solved in before.policies.items():
        old, new = (side.actions(key, names, logits, segments)[which] for side in (before, after))
        flagged = solved.policy.bands[0].action
        caps += [
            share_cap("flipped", key, old != new, level, limits.flipped),
            share_cap("flag_rate", key, new == flagged, level, limits.flag_rate),
            ratio_cap(key, old == flagged, new == flagged, level, limits.flag_rate_ratio),
        ]
    return caps


def _changes(before: Side, after: Side, which: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Return the largest change of any class's probability in each of these rows."""
    changes = np.empty(len(which), dtype=np.float32)
    for start in range(0, len(which), _ROWS_AT_ONCE):
        part = which[start : start + _ROWS_AT_ONCE]
        changes[start : start + _ROWS_AT_ONCE] = np.abs(after.probabilities[part] - before.probabilities[part]).max(1)
    return changes


def summary(verdict: GateResult) -> str:
    """Return the verdict as one sentence."""
    return verdict.reason if verdict.passed else f"Refused. {verdict.reason}"


def shown_calibrator(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a calibrator's document as a report shows it: without the fields that are long.

    A matrix over a thousand classes has a million numbers; the revision holds them, the report need not.

    Args:
        document: From `Calibrator.to_dict`.

    Returns:
        The document; where fields were left out, `omitted` names them.

    Example:
        >>> shown_calibrator({"method": "vector", "scale": [1.0] * 1000})
        {'method': 'vector', 'omitted': ['scale']}
    """
    omitted = [key for key, value in document.items() if _numbers(value) > _LONGEST_FIELD]
    shown = {key: value for key, value in document.items() if key not in omitted}
    return {**shown, "omitted": omitted} if omitted else shown


def _numbers(value: Any) -> int:
    """Count the values inside a JSON-able one."""
    if isinstance(value, Mapping):
        return sum(_numbers(part) for part in value.values())
    return sum(_numbers(part) for part in value) if isinstance(value, list) else 1
