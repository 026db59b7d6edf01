"""Payments with a known probability of fraud, so that the story can compare every claim with the truth."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

COUNTRIES = ("AT", "CH", "DE", "FR", "IT")
SHOPS = ("food", "travel", "fashion", "electronics", "games", "gift cards")
DEVICES = ("known", "new")
HOURS = ("night", "morning", "afternoon", "evening")
COLUMNS = ("amount", "account_days", "attempts", "time", "country", "shop", "device")
LABEL = "fraud"
OUTCOMES = ("genuine", "fraud")
_STRENGTH, _OFFSET = 6.0, -20.3
_NEVER_NOTED = 0.03


@dataclass(frozen=True, eq=False)
class Payments:
    """N payments.

    Attributes:
        values: Columns by name, (N,) each: float64 with NaN for a missing value, or str.
        probability: float64 (N,) in (0, 1): P(fraud | columns).
        fraud: bool (N,): the outcomes.
    """

    values: Mapping[str, NDArray[np.float64] | NDArray[np.str_]]
    probability: NDArray[np.float64]
    fraud: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.fraud)

    def rows(self) -> list[dict[str, str | float]]:
        """Return each payment as a mapping from column to value, as a client sends it."""
        columns = [self.values[name].tolist() for name in COLUMNS]
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

    def labels(self) -> list[str]:
        """Return the label of each payment."""
        return [OUTCOMES[int(fraud)] for fraud in self.fraud]

    def write(self, path: Path) -> None:
        """Write the payments as CSV, with a label column: 1 for fraud."""
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([*COLUMNS, LABEL])
            writer.writerows(
                [*("" if value != value else value for value in row.values()), int(fraud)]  # NaN alone is not itself
                for row, fraud in zip(self.rows(), self.fraud, strict=True)
            )


def payments(rows: int, *, seed: int, drift: float = 0.0) -> Payments:
    """Draw payments.

    The log-odds of fraud are a function of the columns with interactions, plus `drift`: drift changes how frequent
    fraud is, not the payments.

    Args:
        rows: Number of payments.
        seed: Seed of the draw.
        drift: Added to every row's log-odds.
    """
    draw = np.random.default_rng(seed)
    amount = np.round(draw.lognormal(3.6, 0.6, rows), 2)
    days = np.floor(draw.gamma(1.5, 250.0, rows))
    attempts = draw.poisson(0.4, rows).astype(np.float64)
    time = draw.choice(len(HOURS), rows, p=(0.12, 0.28, 0.32, 0.28))
    country = draw.choice(len(COUNTRIES), rows, p=(0.1, 0.1, 0.4, 0.25, 0.15))
    shop = draw.choice(len(SHOPS), rows, p=(0.3, 0.1, 0.22, 0.16, 0.14, 0.08))
    device = (draw.random(rows) < 0.25).astype(np.int64)
    noted = draw.random(rows) >= _NEVER_NOTED

    night, young = time == 0, np.where(noted, np.exp(-days / 200.0), 0.0)
    suspicion = (
        1.2 * np.log(amount / 35.0)
        + np.array([0.0, -0.3, -0.5, 0.0, 0.4])[country]
        + np.array([-0.8, 0.3, -0.2, 0.9, 0.5, 1.6])[shop]
        + 1.1 * np.minimum(attempts, 3)
        + 1.5 * device
        + 2.0 * young
        + 1.5 * night * (shop >= 3)
    )
    probability = expit(_STRENGTH * suspicion + _OFFSET + drift)
    return Payments(
        {
            "amount": amount,
            "account_days": np.where(noted, days, np.nan),
            "attempts": attempts,
            "time": np.array(HOURS)[time],
            "country": np.array(COUNTRIES)[country],
            "shop": np.array(SHOPS)[shop],
            "device": np.array(DEVICES)[device],
        },
        probability,
        draw.random(rows) < probability,
    )
