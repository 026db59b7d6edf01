"""Decisions of the service on payments, and the labels that come back: late, and only for some."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from candor import Client
from candor.contract.predictions import Prediction
from examples.fraud.generator import OUTCOMES, Payments

POLICY = "card-fraud"
_ROWS_PER_REQUEST = 1000
_REPORTED = 0.9


@dataclass(frozen=True, eq=False)
class Served:
    """N payments and the service's answers.

    Attributes:
        payments: The payments, with their true labels and probabilities.
        ids: N prediction ids.
        stated: float64 (N,): the probability of fraud that the service stated.
        action: str (N,).
        sought: bool (N,): whether the label was sought.
    """

    payments: Payments
    ids: list[str]
    stated: NDArray[np.float64]
    action: NDArray[np.str_]
    sought: NDArray[np.bool_]

    def share(self, action: str) -> float:
        """Return the share of payments with an action."""
        return float((self.action == action).mean())

    def true_precision(self) -> float:
        """Return the mean true probability of fraud of blocked payments (expected precision), or NaN."""
        return mean_of(self.payments.probability[self.action == "block"])

    def flagged(self) -> float:
        """Return the share that is blocked, reviewed or explored."""
        return float((self.sought | (self.action == "block")).mean())


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels that come back, in order of arrival.

    Attributes:
        rows: int64 (M,): indices among the N payments.
        propensity: float64 (M,): probability that the label is sought; NaN for a customer's report.
    """

    rows: NDArray[np.int64]
    propensity: NDArray[np.float64]

    @property
    def sought(self) -> Labels:
        """The labels that were sought."""
        asked = ~np.isnan(self.propensity)
        return Labels(self.rows[asked], self.propensity[asked])


def mean_of(values: NDArray[np.float64]) -> float:
    """Return the mean; NaN if empty."""
    return float(values.mean()) if len(values) else float("nan")


def predict(client: Client, payments: Payments, console: Console, what: str) -> Served:
    """Send payments to the service over HTTP and return its decisions."""
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
    """Draw which labels come back, in order of arrival.

    Reviewers label all reviewed and explored payments. Customers also report some of the allowed frauds, never a
    genuine payment. The order is random: a label's delay does not depend on the label.

    Args:
        served: Decisions of the policy.
        explored: The policy's exploration share.
        seed: Seed of the reports and the order.
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
