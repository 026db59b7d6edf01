"""The rows of the table: job, data set, check of the answer, and goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SIZES = {"a": "5,000 × 10", "b": "25,000 × 1,000", "c": "1,000,000 × 2"}

Check: TypeAlias = Literal["optimum", "answer", "value", "none"]
"""The check of an answer, which must pass for its time to count.

`optimum`: the mean NLL on the fitted rows equals the row's minimum; `answer`: it equals ours; `value`: the metric's
value equals ours; `none`: nothing to compare.
"""

_SLACK: dict[Check, float] = {"optimum": 1e-5, "answer": 1e-3, "value": 1e-3, "none": 0.0}
# The reference code of the smooth ECE treats the edges differently, and rounds the width to 1e-3.
_SMOOTH_SLACK = 1e-2


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        job: Key of the job.
        data: Key of the data set.
        shown: Name in the report.
        check: Check of the answer.
        factor: Goal: how many times faster than the fastest peer; 0 without a goal.
        at_most: Goal: maximum milliseconds; 0 without a goal.
        own_slack: Tolerance of the check; None for the check's default.
    """

    job: str
    data: str
    shown: str
    check: Check
    factor: float = 0.0
    at_most: float = 0.0
    own_slack: float | None = None

    @property
    def slack(self) -> float:
        """Tolerance of the check."""
        return _SLACK[self.check] if self.own_slack is None else self.own_slack

    @property
    def key(self) -> str:
        """Key such as ``"temperature/b"``."""
        return f"{self.job}/{self.data}"


ROWS = [
    *(Row("temperature", data, "temperature fit", "optimum", 5.0) for data in SIZES),
    Row("vector", "a", "vector fit", "optimum", 1.3),
    Row("vector", "b", "vector fit", "optimum", 8.0),
    Row("vector", "c", "vector fit", "optimum", 2.0),
    Row("matrix", "a", "matrix fit, no penalty", "optimum", 1.5),
    Row("dirichlet", "a", "Dirichlet fit, no penalty", "optimum", 5.0),
    Row("structured_vector", "b", "structured vector fit", "answer", 4.0),
    Row("structured_matrix", "a", "structured matrix fit", "answer"),
    Row("isotonic", "c", "isotonic fit", "answer", 1.5),
    Row("isotonic", "b", "isotonic fit, one-vs-rest", "answer", 1.5),
    Row("histogram_width", "c", "histogram fit, 15 equal widths, per class", "answer", 4.0),
    Row("histogram_mass", "c", "histogram fit, 15 equal masses, per class", "answer"),
    Row("histogram", "c", "histogram fit, as it comes: 15 equal masses, top label", "none"),
    Row("platt", "c", "Platt fit", "optimum", 8.0),
    Row("beta", "c", "beta fit", "optimum", 3.0),
    Row("venn_abers", "c", "Venn–Abers fit", "answer", 4.0),
    Row("spline", "c", "spline fit", "answer", 50.0, own_slack=1e-2),
    Row("predict", "b", "predict, given an array for the result", "answer", 2.0, own_slack=1e-6),
    Row("predict_one_row", "a", "predict, one row of 10 classes", "answer", at_most=0.01, own_slack=1e-6),
    Row("ece", "b", "ECE, 15 equal widths", "value", 2.0),
    Row("ece", "c", "ECE, 15 equal widths", "value", 2.0),
    Row("debiased_absolute", "c", "debiased absolute error, 15 equal masses", "value", 20.0),
    Row("debiased_squared", "c", "debiased squared error, 15 equal masses", "value"),
    Row("smooth", "b", "smooth ECE, top label", "value", 4.0, own_slack=_SMOOTH_SLACK),
    Row("smooth_confidences", "b", "smooth ECE, confidences ready", "value", 4.0, own_slack=_SMOOTH_SLACK),
    Row("smooth", "c", "smooth ECE, class 1", "value", 4.0, own_slack=_SMOOTH_SLACK),
]
