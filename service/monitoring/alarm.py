"""Evidence of a monitor, row by row, and its alarm at a level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from service.decisions.numbers import number, whole
from service.errors import InputValueError
from service.monitoring.onset import advance, first_stakes, log_evidence

FIELDS: Final = {"level", "through", "rows", "unlabelled", "stakes", "beside", "peak", "fired_at"}
"""Fields of `to_dict`."""


class Alarm:
    """Evidence in nats, with an alarm once it reaches ln(1/level).

    Args:
        log_weights: Logarithms of the bets' weights, which sum to 1, shape (J,).
        level: Probability in (0, 1) that the alarm is ever false.
        since: Start of the monitor, microseconds since the epoch, UTC.
        share: Share of the capital that bets on rows, 0 for none; the rest has evidence of another kind beside it.

    Attributes:
        level: As given.
        through: All rows before this time are counted.
        rows: Rows counted: with a sought label, or valid without a label.
        unlabelled: Rows counted with an unknown label; they count for the hypothesis.
        beside: Latest evidence of the rest of the capital; None before any.
        peak: Maximum evidence so far, ln max W; 0 at the start.
        fired_at: Time of the prediction that raised the alarm; None without an alarm. It never changes again.
    """

    def __init__(self, log_weights: NDArray[np.float64], level: float, since: int, share: float = 1.0) -> None:
        self.level = number(level, "level", above=0.0, below=1.0)
        self.through = whole(since, "since", least=0)
        self.rows = 0
        self.unlabelled = 0
        self.beside: float | None = None
        self.peak = 0.0
        self.fired_at: int | None = None
        self.log_weights = log_weights
        self.share = share
        self._stakes = first_stakes(log_weights.shape)

    @property
    def log_e(self) -> float:
        """The current evidence ln W; above 0 it speaks against the hypothesis."""
        if not self.share:
            return self.beside or 0.0
        rows = float(log_evidence(self._stakes, self.log_weights, self.rows)) + math.log(self.share)
        return rows if self.beside is None else max(rows, self.beside)

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value 1/max W: under the hypothesis it ever falls to x with probability at most x."""
        return math.exp(-self.peak)

    def take(
        self,
        blocks: Iterable[tuple[NDArray[np.float64], NDArray[np.int64], int]],
        through: int,
        beside: float | None = None,
    ) -> None:
        """Count the rows of one cohort.

        Args:
            blocks: Rows in order of prediction, in blocks: ln f for each row and bet, finite, shape (B, J); the rows'
                times, shape (B,); the number of rows without a label.
            through: End of the cohort.
            beside: Evidence of the rest of the capital at the end of the cohort, its share of the capital included.
        """
        for factors, time, unlabelled in blocks:
            self.unlabelled += unlabelled
            if not self.share:
                self.rows += len(time)
                continue
            path = np.empty_like(factors)
            for i, row in enumerate(factors):
                self.rows += 1
                advance(self._stakes, row, self.rows)
                path[i] = self._stakes
            if len(path):
                rows = np.arange(self.rows - len(path) + 1, self.rows + 1)
                self._note(log_evidence(path, self.log_weights, rows) + math.log(self.share), time)
        if beside is not None:
            self.beside = beside
            self._note(np.array([beside]), np.array([through - 1]))
        self.through = through

    def _note(self, evidence: NDArray[np.float64], time: NDArray[np.int64]) -> None:
        self.peak = max(self.peak, float(evidence.max()))
        if self.fired_at is None and self.peak >= -math.log(self.level):
            self.fired_at = int(time[np.argmax(evidence >= -math.log(self.level))])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; JSON keeps every number exactly."""
        return {
            "level": self.level,
            "through": self.through,
            "rows": self.rows,
            "unlabelled": self.unlabelled,
            "stakes": self._stakes.tolist(),
            "beside": self.beside,
            "peak": self.peak,
            "fired_at": self.fired_at,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], log_weights: NDArray[np.float64], share: float = 1.0) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: A value is impossible, or two contradict each other.
        """
        alarm = cls(log_weights, document["level"], document["through"], share)
        stakes = document["stakes"]
        if not isinstance(stakes, list) or len(stakes) != len(log_weights):
            raise InputValueError(
                "The stakes do not match this monitor's bets.",
                where="stakes",
                found=len(stakes) if isinstance(stakes, list) else type(stakes).__name__,
                expected=len(log_weights),
                remedy="Start a new monitor with its own level.",
            )
        alarm._stakes = np.array([number(stake, f"stakes[{i}]") for i, stake in enumerate(stakes)])
        alarm.rows = whole(document["rows"], "rows", least=0)
        alarm.unlabelled = whole(document["unlabelled"], "unlabelled", least=0)
        alarm.beside = None if document["beside"] is None else number(document["beside"], "beside")
        alarm.peak = number(document["peak"], "peak", above=max(alarm.log_e - 1e-9, 0.0), closed="below")
        fired_at = document["fired_at"]
        alarm.fired_at = None if fired_at is None else whole(fired_at, "fired_at", least=0)
        if (alarm.fired_at is not None) != (alarm.peak >= -math.log(alarm.level)):
            raise InputValueError(
                "The alarm and its evidence contradict each other.",
                where="fired_at",
                found={"fired_at": fired_at, "peak": alarm.peak},
                expected=f"a time if and only if the peak has reached {-math.log(alarm.level):.4g}",
                remedy="Pass the document unchanged.",
            )
        return alarm
