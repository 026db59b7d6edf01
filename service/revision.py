"""What is in force: thresholds, the certificates behind them, and the revision that names both.

Frozen values without behaviour. Every `to_dict` is JSON-able and `from_dict` gives back an equal value.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

Basis = Literal["reference", "traffic", "uploaded"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Lowest (probability, raw score) pair that a band takes, compared as float32 in lexicographic order.

    Attributes:
        probability: Calibrated probability in [0, 1], exactly representable in float32.
        score: Raw score (log-odds from the uncalibrated logits) that breaks ties; −inf takes every tie.
    """

    probability: float
    score: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; an infinite score is written as None."""
        return {"probability": self.probability, "score": None if self.score == float("-inf") else self.score}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        score = document["score"]
        return cls(document["probability"], float("-inf") if score is None else score)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A claim about a threshold that held-out labelled rows support with confidence 1 − delta.

    Attributes:
        metric: Name of the certified metric, such as "precision".
        at_least: Lower bound that is promised, or None.
        at_most: Upper bound that is promised, or None.
        delta: Error probability that this claim was allowed, after sharing among bands and looks.
        n: Rows in the metric's denominator.
        errors: Rows among them that count against the promise.
        looks: Number of times these rows have been looked at, this one included.
        basis: Which rows certified it: the bundle's reference rows, labelled traffic, or rows that were uploaded and
            declared to be a random sample of the traffic.
        window: First and last time of those rows (ISO 8601), None for reference rows and for others without times.
        valid: Whether the claim stands.
        reason: Why it does not stand, in words; None when valid.
        needed: At least this many more labels in the denominator would certify it if none of them were an error.
        segment: The part of the traffic that the claim is about; None for all of it.
    """

    metric: str
    at_least: float | None
    at_most: float | None
    delta: float
    n: int
    errors: int | None
    looks: int
    basis: Basis
    window: tuple[str, str] | None
    valid: bool
    reason: str | None = None
    needed: int | None = None
    segment: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        document = asdict(self)
        document["window"] = list(self.window) if self.window else None
        return document

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        window = document["window"]
        return cls(**{**document, "window": tuple(window) if window else None})


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable state of a model in service: bundle, calibrator, solved policies and the report that led to it.

    Documents inside (calibrator, policies, report) are the JSON forms of their types, so that a revision can be stored,
    sent and compared without loading what they describe.

    Attributes:
        id: Name within its model, such as "r7".
        model: Model name.
        bundle_id: sha256 of the bundle's manifest.
        bundle_version: The bundle's version number.
        model_digest: sha256 of the bundle's model.onnx; feedback belongs to it.
        calibrator: Document of the fitted calibrator.
        policies: Documents of the solved policies by policy id.
        report: Metrics before and after, gate, flips, diagrams.
        by_key: Prefix of the API key that proposed it; None without one.
        parent: Revision that was active when this one was made, None for the first.
        cause: "bundle", "policy", "recalibrate" or "prior_shift".
        by: Who made it.
        gate: "passed", "refused" or "not_run".
        created_at: Microseconds since the epoch, UTC.
    """

    id: str
    model: str
    bundle_id: str
    bundle_version: int
    model_digest: str
    calibrator: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    parent: str | None
    cause: Literal["bundle", "policy", "recalibrate", "prior_shift"]
    by: str
    gate: Literal["passed", "refused", "not_run"]
    created_at: int
    report: dict[str, Any] = field(default_factory=dict)
    by_key: str | None = None
