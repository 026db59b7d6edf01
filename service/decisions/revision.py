"""A revision: everything that determines a model's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from calibrators import Calibrator
from service.decisions.solved import SolvedPolicy


@dataclass(frozen=True, slots=True)
class Revision:
    """Immutable state of a model: bundle, calibrator, solved policies, and the report behind them.

    Attributes:
        id: Name within its model, such as "r7".
        model: Model name.
        bundle_id: sha256 of the bundle's manifest.
        bundle_version: The bundle's version number.
        model_digest: sha256 of the bundle's model.onnx; feedback refers to it.
        calibrator: The fitted calibrator.
        policies: Solved policies by id.
        report: Metrics before and after, gate, flips, diagrams; JSON-able.
        by_key: Prefix of the API key that proposed it; None without a key.
        parent: Revision that was active when this one was made; None for the first revision.
        cause: "bundle", "policy", "recalibrate" or "prior_shift".
        by: Name of the person or process that made it.
        gate: "passed", "refused" or "not_run".
        created_at: Microseconds since the epoch, UTC.
    """

    id: str
    model: str
    bundle_id: str
    bundle_version: int
    model_digest: str
    calibrator: Calibrator
    policies: Mapping[str, SolvedPolicy]
    parent: str | None
    cause: Literal["bundle", "policy", "recalibrate", "prior_shift"]
    by: str
    gate: Literal["passed", "refused", "not_run"]
    created_at: int
    report: dict[str, Any] = field(default_factory=dict)
    by_key: str | None = None

    @property
    def summary(self) -> str | None:
        """Summary of its report, in one sentence; None without a report."""
        summary: str | None = self.report.get("summary")
        return summary
