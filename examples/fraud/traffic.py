"""What the service did with payments, and the labels that come back from them: late, and only for some."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from examples.fraud.generator import OUTCOMES, Payments
from service.client import Client
from service.client.answers import Prediction

POLICY = "card-fraud"
_ROWS_PER_REQUEST = 1000
_REPORTED = 0.9


@dataclass(frozen=True, eq=False)
class Served:
    """N payments and how the service answered.

    Attributes:
        payments: What was asked, with the truth about it.
        ids: N prediction ids.
        stated: float64 (N,): the probability of fraud that the service stated.
        action: str (N,).
        sought: bool (N,): whether the service asked for the label.
    """

    payments: Payments
    ids: list[str]
    stated: NDArray[np.float64]
    action: NDArray[np.str_]
    sought: NDArray[np.bool_]

    def share(self, action: str) -> float:
        """Return the share of payments with an action."""
        return float((self.action == action).mean())

    def true_precision(self, action: str) -> float:
        """Return the mean true probability of fraud of those with an action: their precision, without luck; or NaN."""
        return mean_of(self.payments.probability[self.action == action])

    def flagged(self) -> float:
        """Return the share that is blocked, reviewed, or looked at for exploration."""
        return float((self.sought | (self.action == "block")).mean())


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels that come back, in the order in which they do.

    Attributes:
        rows: int64 (M,): places among the N payments.
        propensity: float64 (M,): with which each was sought; NaN for what a customer reported unasked.
    """

    rows: NDArray[np.int64]
    propensity: NDArray[np.float64]

    @property
    def sought(self) -> Labels:
        """Those that the service asked for."""
        asked = ~np.isnan(self.propensity)
        return Labels(self.rows[asked], self.propensity[asked])


def mean_of(values: NDArray[np.float64]) -> float:
    """Return the mean, NaN of nothing."""
    return float(values.mean()) if len(values) else float("nan")


def predict(client: Client, payments: Payments, console: Console, what: str) -> Served:
    """Ask for decisions over HTTP, row by row as a client has them."""
    rows = payments.rows()
    predictions: list[Prediction] = []
    columns = (TextColumn(f"  deciding {len(rows):,} {what}"), BarColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(rows))
        for start in range(0, len(rows), _ROWS_PER_REQUEST):
            part = rows[start : start + _ROWS_PER_REQUEST]
            predictions += client.predict(part, policy=POLICY).predictions
            bar.advance(task, len(part))
    decisions = [prediction.decision for prediction in predictions if prediction.decision is not None]
    return Served(
        payments,
        [prediction.prediction_id for prediction in predictions],
        np.array([prediction.probabilities[OUTCOMES[1]] for prediction in predictions]),
        np.array([decision.action for decision in decisions]),
        np.array([decision.label_sought for decision in decisions]),
    )


def labels_of(served: Served, explored: float, *, seed: int) -> Labels:
    """Say which labels come back, and in which order.

    People label what is reviewed or explored. Beside them, customers report some of the frauds that were let through;
    nobody ever reports a genuine payment. The order is random: how long a label takes has nothing to do with it.

    Args:
        served: Decisions of the policy.
        explored: The policy's share of explored rows.
        seed: Of which are reported, and of the order.
    """
    draw = np.random.default_rng(seed)
    reported = ~served.sought & (served.action == "allow") & served.payments.fraud
    reported &= draw.random(len(served.ids)) < _REPORTED
    rows = draw.permutation(np.flatnonzero(served.sought | reported))
    propensity = np.where(served.action[rows] == "review", 1.0, explored)
    return Labels(rows, np.where(served.sought[rows], propensity, np.nan))


def write_labels(path: Path, served: Served, labels: Labels, which: slice = slice(None)) -> Path:
    """Write labels as the CSV that `candor feedback --file` and POST /feedback take."""
    truth = served.payments.labels()
    rows: Iterable[tuple[int, float]] = zip(labels.rows[which].tolist(), labels.propensity[which].tolist(), strict=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["prediction_id", "label", "source"])
        writer.writerows(
            (served.ids[row], truth[row], "customer" if np.isnan(propensity) else "reviewer")
            for row, propensity in rows
        )
    return path
