"""What the service answers of a policy that is tried on recent predictions, typed and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.client.answers import AppliedSegment, Certificate, Document


@dataclass(frozen=True, slots=True)
class Flip:
    """A row whose action a policy changes, by its prediction's id."""

    id: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """How many rows go from one action to another."""

    before: str
    after: str
    rows: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows whose action changes: how many `of` all (None with nothing to compare with), from what to what, which."""

    flipped: int | None
    of: int
    changes: tuple[Change, ...]
    flips: tuple[Flip, ...]


@dataclass(frozen=True, slots=True)
class Volume:
    """Rows with an action, before (None with nothing to compare with) and after."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a policy would have done with recent predictions.

    Attributes:
        model: Name of the model.
        revision: What puts the policy into force when it is activated.
        policy: Its id and version, such as `auto-read@3`.
        against: Id and version of what it is compared with; None where nothing is in force.
        window: Times of the oldest and the newest row; None where there was no row.
        rows: Rows that were tried.
        labelled: Those of them that have a label that was sought.
        decisions: What changes.
        actions: Rows by action.
        expected: What each band but the last would keep, with intervals.
        certified: Certificates by action.
        review_all: Whether every row would go to review for want of a certificate.
        warnings: Where nothing is certified, and how many labels are missing.
        segments: Of a policy with segments, what is certified of each.
    """

    model: str
    revision: str
    policy: str
    against: str | None
    window: tuple[str, ...] | None
    rows: int
    labelled: int
    decisions: Changes
    actions: Mapping[str, Volume]
    expected: tuple[Document, ...]
    certified: Mapping[str, Certificate]
    review_all: bool
    warnings: tuple[str, ...] = ()
    segments: Mapping[str, AppliedSegment] = field(default_factory=dict)
    document: Document = field(repr=False, compare=False, kw_only=True)
