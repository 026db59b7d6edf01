"""A policy with its thresholds and certificates, as a revision holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from service.decisions.conditions import REVIEW
from service.decisions.policy import Policy
from service.revision import Certificate, Threshold


@dataclass(frozen=True, slots=True)
class SolvedBand:
    """One band with the threshold that rows must reach.

    Attributes:
        action: Name of the action.
        threshold: Lowest pair that the band takes; None when it takes every row (the last band) or none could be
            certified.
        certificate: What is promised about all rows at or above the threshold; None when nothing is.
    """

    action: str
    threshold: Threshold | None
    certificate: Certificate | None

    @property
    def stands(self) -> bool:
        """Whether what is promised of it is certified, if anything is."""
        return self.certificate is None or self.certificate.valid

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "action": self.action,
            "threshold": self.threshold.to_dict() if self.threshold else None,
            "certificate": self.certificate.to_dict() if self.certificate else None,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        threshold, certificate = document["threshold"], document["certificate"]
        return cls(
            document["action"],
            Threshold.from_dict(threshold) if threshold else None,
            Certificate.from_dict(certificate) if certificate else None,
        )


@dataclass(frozen=True, slots=True)
class SolvedSegment:
    """One part of the traffic with its own thresholds.

    Attributes:
        bands: One solved band per band of the policy.
        certified: Whether every promise could be certified, or its threshold stays all the same; the rows get the
            policy's fallback otherwise.
    """

    bands: tuple[SolvedBand, ...]
    certified: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {"bands": [band.to_dict() for band in self.bands], "certified": self.certified}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(tuple(SolvedBand.from_dict(band) for band in document["bands"]), document["certified"])


@dataclass(frozen=True)
class SolvedPolicy:
    """A policy with its thresholds and certificates, as a revision holds it.

    Attributes:
        policy: What the operator wants.
        version: Version of that policy.
        bands: One solved band per band of the policy; without thresholds where the policy has segments.
        review_all: Whether every row of no segment goes to review (with segments: to their fallback), because a promise
            could not be certified.
        segments: Solutions of the policy's segments, by value; empty without segments.
    """

    policy: Policy
    version: int
    bands: tuple[SolvedBand, ...]
    review_all: bool
    segments: Mapping[str, SolvedSegment] = field(default_factory=dict)

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """Action per index that `decide` returns: those of the bands, then "review" if no band has it."""
        actions = tuple(band.action for band in self.bands)
        return actions if REVIEW in actions else (*actions, REVIEW)

    @cached_property
    def parts(self) -> Mapping[str, SolvedPolicy]:
        """The solution of each segment, in a form that decides."""
        return {
            value: replace(self, bands=part.bands, review_all=not part.certified, segments={})
            for value, part in self.segments.items()
        }

    @cached_property
    def propensities(self) -> NDArray[np.float64]:
        """Probability that a row's label is sought, per index that `decide` returns."""
        return np.array([self.policy.propensity(action) for action in self.actions])

    @cached_property
    def cuts(self) -> tuple[tuple[float, float], ...]:
        """Threshold pairs of all bands but the last, as plain floats that hold float32 values."""
        return tuple(
            (band.threshold.probability, band.threshold.score) if band.threshold else (math.inf, math.inf)
            for band in self.bands[:-1]
        )

    @cached_property
    def certified(self) -> Mapping[str, Mapping[str, Any]]:
        """The document of each action's certificate, made once; of a policy with segments there are its parts'."""
        return {band.action: band.certificate.to_dict() for band in self.bands if band.certificate is not None}

    @cached_property
    def ties(self) -> tuple[float, ...]:
        """Probabilities at which the raw score decides."""
        parts = (self, *self.parts.values())
        return tuple({cut for part in parts for cut, tie in part.cuts if math.isfinite(tie)})

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], ...]:
        """The answer for one row, per index: read-only arrays of shape (1,), made once."""
        answers = tuple(np.array([index], dtype=np.intp) for index in range(len(self.actions)))
        for answer in answers:
            answer.flags.writeable = False
        return answers

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return {
            "policy": self.policy.to_dict(),
            "version": self.version,
            "bands": [band.to_dict() for band in self.bands],
            "review_all": self.review_all,
        } | ({"segments": {value: part.to_dict() for value, part in self.segments.items()}} if self.segments else {})

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            Policy.from_dict(document["policy"]),
            document["version"],
            tuple(SolvedBand.from_dict(band) for band in document["bands"]),
            document["review_all"],
            {value: SolvedSegment.from_dict(part) for value, part in document.get("segments", {}).items()},
        )
