"""Rows with what one calibrator makes of them: computed once, then read by policies, gates and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrators import Calibrator
from candor.contract.policies import TOP, Policy
from service.decisions.decide import decide_rows, score_rows
from service.decisions.multicalibrated import probabilities_of
from service.decisions.rows import Rows, ScoredRows
from service.decisions.solved import SolvedPolicy

_NONE: Mapping[str, SolvedPolicy] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """N rows, scored.

    Attributes:
        rows: The rows, with their logits.
        names: The model's K labels.
        probabilities: float32 of shape (N, K).
        predicted: Index of the label that the calibrator predicts, int64 of shape (N,).
        confidence: Its probability, float32 of shape (N,).
        policies: Solved policies by id.
        decided: For each policy the index of every row's action, shape (N,).
    """

    rows: Rows
    names: Sequence[str]
    probabilities: NDArray[np.float32]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]
    policies: Mapping[str, SolvedPolicy]
    decided: Mapping[str, NDArray[np.intp]]
    _scored: dict[str, ScoredRows] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, calibrator: Calibrator, names: Sequence[str], rows: Rows, policies: Mapping[str, SolvedPolicy] = _NONE
    ) -> Self:
        """Calibrate rows, and decide them under each policy."""
        probabilities = probabilities_of(calibrator, rows.logits, rows.cells)
        predicted, confidence = calibrator.top_label(rows.logits, probabilities)
        given = rows.segment, rows.amount
        decided = {
            key: decide_rows(solved, names, rows.logits, probabilities, predicted, confidence, *given)
            for key, solved in policies.items()
        }
        return cls(rows, names, probabilities, predicted, confidence, policies, decided)

    def take(self, which: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index selects, without their logits: decisions are made."""
        return replace(
            self,
            rows=self.rows.without("logits").take(which),
            probabilities=self.probabilities[which],
            predicted=self.predicted[which],
            confidence=self.confidence[which],
            decided={key: bands[which] for key, bands in self.decided.items()},
        )

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the predicted label is the true one, shape (N,)."""
        right: NDArray[np.bool_] = self.predicted == self.rows.label
        return right

    def actions(self, policy: str) -> NDArray[np.str_]:
        """Return the action of each row under one of the policies, shape (N,)."""
        return np.array(self.policies[policy].actions)[self.decided[policy]]

    def scored(self, policy: Policy) -> ScoredRows:
        """Return the rows as a policy sees them: (probability, raw score) pairs, and whether each row is a positive."""
        positive = policy.positive
        if positive not in self._scored:
            parts = self.probabilities, self.predicted, self.confidence
            probability, score = score_rows(policy, self.names, self.rows.logits, *parts)
            is_positive = self.right if positive == TOP else self.rows.label == list(self.names).index(positive)
            self._scored[positive] = ScoredRows.of(
                self.rows, probability=probability, score=score, positive=is_positive
            )
        return self._scored[positive]
