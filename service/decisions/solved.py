"""A policy with its thresholds and certificates, as a revision contains it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import SolvedBand, SolvedSegment, SolvedSet
from candor.contract.conditions import REVIEW
from candor.contract.policies import Policy
from service.decisions.amounts import TakenByCost, TakenByLoss, rule_of
from service.decisions.policy import parse_policy


@dataclass(frozen=True)
class SolvedPolicy:
    """A policy with its thresholds and certificates, as a revision holds it.

    Attributes:
        policy: The policy.
        version: Version of the policy.
        bands: One solved band for each band of the policy; without thresholds if the policy has segments.
        review_all: Whether rows without a segment go to review (with segments: to the fallback), because a promise
            could not be certified.
        segments: Solved segments by value; empty without segments.
        sets: Prediction sets by segment, "" for all rows; empty without any.
    """

    policy: Policy
    version: int
    bands: tuple[SolvedBand, ...]
    review_all: bool
    segments: Mapping[str, SolvedSegment] = field(default_factory=dict)
    sets: Mapping[str, SolvedSet] = field(default_factory=dict)

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """Action of each index that `decide` returns: the bands' actions, and "review" if no band has it."""
        actions = tuple(band.action for band in self.bands)
        return actions if REVIEW in actions else (*actions, REVIEW)

    @cached_property
    def parts(self) -> Mapping[str, SolvedPolicy]:
        """Each segment as a solved policy."""
        return {
            value: replace(self, bands=part.bands, review_all=not part.certified, segments={})
            for value, part in self.segments.items()
        }

    @cached_property
    def propensities(self) -> NDArray[np.float64]:
        """Propensity for each index that `decide` returns."""
        return np.array([self.policy.propensity(action) for action in self.actions])

    @cached_property
    def arising(self) -> frozenset[str]:
        """Actions whose labels arise by themselves."""
        return frozenset(filter(self.policy.arises, self.actions))

    @cached_property
    def selects_reviews(self) -> bool:
        """Whether only some of the rows sent to review become cases; the log decides which."""
        return self.policy.review is not None and self.policy.review.max_per_day is not None

    @cached_property
    def cuts(self) -> tuple[tuple[float, float], ...]:
        """Threshold pairs of all bands but the last, as Python floats with float32 values."""
        return tuple(band.threshold.pair if band.threshold else (math.inf, math.inf) for band in self.bands[:-1])

    @cached_property
    def by_amount(self) -> Mapping[int, TakenByCost | TakenByLoss]:
        """Rules of the bands that take rows by their amounts, by index; usually none."""
        rules = {index: rule_of(band) for index, band in enumerate(self.policy.bands)}
        return {index: rule for index, rule in rules.items() if rule is not None}

    @cached_property
    def certified(self) -> Mapping[str, Mapping[str, Any]]:
        """Certificate documents by action, made once; with segments, see `parts`."""
        return {
            band.action: band.certificate.model_dump(mode="json") for band in self.bands if band.certificate is not None
        }

    @cached_property
    def certified_sets(self) -> Mapping[str, Mapping[str, Any]]:
        """Certificates of the prediction sets by segment, made once."""
        return {value: one.model_dump(mode="json", exclude={"thresholds"}) for value, one in self.sets.items()}

    @cached_property
    def rows_per_day(self) -> int | None:
        """Rows of a day that its promises in rows per day rest on; None without such a promise."""
        certificates = (band.certificate for band in self.bands if band.certificate is not None)
        return next((one.rows_per_day for one in certificates if one.rows_per_day is not None), None)

    @cached_property
    def ties(self) -> tuple[float, ...]:
        """Probabilities at which the raw score breaks ties."""
        parts = (self, *self.parts.values())
        return tuple({cut for part in parts for cut, tie in part.cuts if math.isfinite(tie)})

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], ...]:
        """Decision of one row for each index: read-only arrays of shape (1,), made once."""
        answers = tuple(np.array([index], dtype=np.intp) for index in range(len(self.actions)))
        for answer in answers:
            answer.flags.writeable = False
        return answers

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return (
            {
                "policy": self.policy.to_dict(),
                "version": self.version,
                "bands": [band.model_dump(mode="json") for band in self.bands],
                "review_all": self.review_all,
            }
            | (
                {"segments": {value: part.model_dump(mode="json") for value, part in self.segments.items()}}
                if self.segments
                else {}
            )
            | ({"sets": {value: one.model_dump(mode="json") for value, one in self.sets.items()}} if self.sets else {})
        )

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            parse_policy(document["policy"]),
            document["version"],
            tuple(SolvedBand.model_validate(band) for band in document["bands"]),
            document["review_all"],
            {value: SolvedSegment.model_validate(part) for value, part in document.get("segments", {}).items()},
            {value: SolvedSet.model_validate(one) for value, one in document.get("sets", {}).items()},
        )
