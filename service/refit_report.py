"""What a refit says about itself: metrics of both sides, decisions that change, one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators import Calibrator, metrics
from service.decisions.binomial import upper_share
from service.decisions.caps import Cap, CapName
from service.decisions.decide import decide_rows
from service.decisions.gate import GateResult
from service.decisions.solved import SolvedPolicy
from service.decisions.unattended import Limits


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

    def take(self, which: npt.NDArray[np.bool_]) -> Side:
        """Return the rows that `which` marks."""
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


def compared_metrics(
    verdict: GateResult, before: Side, after: Side, truth: npt.NDArray[np.int64], seed: int
) -> dict[str, Any]:
    """Return metrics on the gate rows: proper scores with the interval of their paired difference, ECE with its null.

    Args:
        verdict: Holds the paired comparisons.
        before: The revision in service.
        after: The refit.
        truth: int64 (N,), true labels of the gate rows.
        seed: Of the draws behind the null of the ECE.
    """
    sides = [_metrics(side, truth, seed) for side in (before, after)]
    compared: dict[str, Any] = {
        name: {"before": loss.before, "after": loss.after, "interval": list(loss.interval)}
        for name, loss in (("nll", verdict.nll), ("brier", verdict.brier))
    }
    compared["ece"] = {
        "before": sides[0]["ece"],
        "after": sides[1]["ece"],
        "null": sides[1]["null"],
        "null_before": sides[0]["null"],
    }
    for name in ("accuracy", "refinement_auroc", "reliability"):
        compared[name] = {"before": sides[0][name], "after": sides[1][name]}
    return compared


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
    """Bound the shares of rows whose action changes, and that get the action of the first band, for each policy.

    Args:
        names: The model's labels.
        before: The revision in service.
        after: The refit, with the same policies.
        logits: float32 (N, K), of recent rows, labelled or not.
        segments: str or None (N,), theirs.
        which: Indices of the rows that count, one of each group.
        limits: What the shares may be.
        level: Of each bound.
    """
    caps = []
    for key, solved in before.policies.items():
        old, new = (side.actions(key, names, logits, segments)[which] for side in (before, after))
        found: tuple[tuple[CapName, npt.NDArray[np.bool_], float | None], ...] = (
            ("flipped", old != new, limits.flipped),
            ("flag_rate", new == solved.policy.bands[0].action, limits.flag_rate),
        )
        for name, rows, at_most in found:
            count, of = int(rows.sum()), len(rows)
            caps.append(Cap(name, key, count, of, upper_share(count, of, level), at_most))
    return caps


def summary(verdict: GateResult) -> str:
    """Return the verdict as one sentence."""
    return verdict.reason if verdict.passed else f"Refused. {verdict.reason}"


def _metrics(side: Side, truth: npt.NDArray[np.int64], seed: int) -> dict[str, Any]:
    test = metrics.calibration_test(side.probabilities, truth, predicted=side.labels, seed=seed)
    curve = metrics.reliability_curve(side.probabilities, truth, predicted=side.labels)
    right = side.labels == truth
    return {
        "accuracy": float(right.mean()),
        # Undefined where all answers are right or all wrong.
        "refinement_auroc": metrics.refinement_auroc(side.probabilities, truth, predicted=side.labels)
        if 0 < right.sum() < len(right)
        else None,
        "ece": test.error,
        "null": {"mean": test.null_mean, "q95": test.null_quantile},
        "reliability": {name: getattr(curve, name).tolist() for name in ("confidence", "accuracy", "count")},
    }
