"""Solve policies for a recalibration: anew, with fixed thresholds, or with the same decided rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from bundle import Bundle
from calibrators import Calibrator
from candor.contract.certificates import Basis, SolvedBand, SolvedSegment, SolvedSet
from candor.contract.conditions import Metric
from candor.contract.policies import TOP, Policy
from service.decisions.binomial import labels_needed
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import certificates, lost, lost_bands, objections, warnings
from service.decisions.certify import solve
from service.decisions.claims import Shown
from service.decisions.rows import Rows
from service.decisions.same_rows import OrderLostError, same_rows
from service.decisions.sets import solve_sets
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.decisions.wrong_labels import WrongLabels
from service.recalibration.rows import Division


@dataclass(frozen=True, slots=True, eq=False)
class Refitted:
    """A policy after a recalibration, with its notes."""

    solved: SolvedPolicy
    notes: tuple[str, ...] = ()

    def report(self, before: SolvedPolicy) -> dict[str, Any]:
        """Return the policy's part of the report: certificates, thresholds before and after, and notes.

        Args:
            before: The active policy.
        """
        return {
            **certificates(self.solved),
            "before": _thresholds(before),
            "after": _thresholds(self.solved),
            "lost": list(lost(before, self.solved)),
            "notes": list(self.notes),
            "warnings": warnings(self.solved),
        }


def basis_of(policy: Policy, names: tuple[str, ...], certifying: Rows, own: Basis) -> Basis:
    """Return which rows certify: the recalibration's own if there are enough for the promises, else reference rows.

    A segment is certified by the recalibration's own rows only.

    Args:
        policy: The policy, with the rows of a day where it needs them.
        names: The model's labels.
        certifying: Labelled rows of the recalibration that may certify.
        own: Basis of these rows; "reference" if they must not certify.
    """
    if policy.segments is not None or own == "reference":
        return own
    level = policy.certify.delta / max(policy.claims, 1) / 2
    wrong = WrongLabels(policy.certify.wrong_labels or 0.0)
    for index, when in policy.promises():
        rows = len(certifying)
        if when.metric in ("recall", "false_positive_rate") and policy.positive != TOP:
            of_class = certifying.label == names.index(policy.positive)
            rows = int((of_class if when.metric == "recall" else ~of_class).sum())
        if when.metric is not None and rows < wrong.needed(when.metric, 0, 0, policy.tolerance(index), level):
            return "reference"
    if policy.set is not None:
        each = np.bincount(certifying.label, minlength=len(names)) if policy.set.per_class else [len(certifying)]
        if min(each) < labels_needed(0, 0, 1.0 - policy.set.coverage, level / len(each)):
            return "reference"
    return own


def first_shown(policy: Policy, certify: Rows) -> int:
    """Return the earliest time at which a look could have used these rows for the policy's certificates.

    A label counts from its arrival, but whether a row is flagged is known from its prediction.

    Args:
        policy: The policy.
        certify: All rows of the traffic that may certify, labelled or not.
    """
    if counts_every_row(policy):
        return int(certify.predicted_at.min())
    return int(certify.labelled_at[certify.known()].min())


def counts_every_row(policy: Policy) -> bool:
    """Return whether a policy's certificates are about all rows, labelled or not."""
    return any(when.metric == "flag_rate" for _, when in policy.promises())


def refit_policies(
    policies: Mapping[str, SolvedPolicy],
    bundle: Bundle,
    active: Calibrator,
    candidate: Calibrator,
    rows: Division,
    *,
    shown: Mapping[str, Shown],
    seeds: Mapping[str, int],
    read: Mapping[str, Refitted] = MappingProxyType({}),
    rows_per_day: int | None = None,
    broken: Mapping[str, Mapping[Metric, str]] = MappingProxyType({}),
) -> dict[str, Refitted]:
    """Solve the active policies with another calibrator.

    Args:
        policies: The active policies, by id.
        bundle: The bundle, whose reference rows certify if the traffic has too few.
        active: The active calibrator.
        candidate: The recalibrated one.
        rows: Rows of the traffic.
        shown: The rows that certify each policy, and how often they were looked at. They are fresh if they were new to
            the policy, but for looks of this recalibration.
        seeds: Seeds of each policy's draws; fixed before any label is seen.
        read: Policies whose certificates grow, solved already; `shown` and `seeds` lack them.
        rows_per_day: Rows of a busy day in the traffic; None if unknown: those that a policy rests on so far.
        broken: Metrics that reference rows do not certify, since the traffic has broken a promise, by positive class.

    Raises:
        PolicyError: A policy that must be certified or fail cannot be certified.
    """
    names = bundle.manifest.labels
    unchanged = active.to_dict() == candidate.to_dict()
    fit, certify = (Calibrated.of(candidate, names, part) for part in (rows.fit, rows.certify))
    refitted = {}
    for key, old in policies.items():
        if key in read:
            refitted[key] = read[key]
            continue
        wanted, one, seed = old.policy, shown[key], seeds[key]
        stays = wanted.on_calibrator_change == "keep_threshold"
        if stays and unchanged and all(_holds(part) for part in _parts(old)):
            refitted[key] = Refitted(old)  # unchanged
            continue
        keep = old if stays else None
        day = rows_per_day or old.rows_per_day
        if one.basis == "reference":
            new = solve_on_reference(
                wanted,
                version=old.version,
                bundle=bundle,
                calibrator=candidate,
                look=one.look,
                seed=seed,
                keep=keep,
                broken=broken.get(wanted.positive, {}),
                spent=one.spent,
                rows_per_day=day,
            )
        else:
            new = solve(
                wanted,
                version=old.version,
                fit=fit.scored(wanted),
                certify=certify.scored(wanted),
                look=one.look,
                basis=one.basis,
                window=one.window,
                seed=seed,
                keep=keep,
                windows=one.windows,
                spent=one.spent,
                fresh=one.fresh,
                rows_per_day=day,
            )
            new = replace(new, sets=solve_sets(wanted, certify, one, seed))
        if unchanged:
            new = replace(new, sets={value: _better(old.sets.get(value), found) for value, found in new.sets.items()})
        if stays and unchanged:
            refitted[key] = Refitted(_with_what_holds(old, new))
        else:
            refitted[key] = _with_previous(old, new, names, active, candidate, rows, unchanged=unchanged)
    return refitted


def _better(old: SolvedSet | None, new: SolvedSet) -> SolvedSet:
    """Return the sets to keep under an unchanged calibrator: what was certified stays."""
    return new if old is None or new.valid or not old.valid else old


def _thresholds(solved: SolvedPolicy) -> dict[str, Any]:
    return {key: value for key, value in solved.to_dict().items() if key != "policy"}


def _parts(solved: SolvedPolicy) -> tuple[SolvedPolicy, ...]:
    return tuple(solved.parts.values()) or (solved,)


def _holds(part: SolvedPolicy) -> bool:
    """Return whether a policy or a segment decides and all its promises are certified."""
    return not part.review_all and all(band.stands for band in part.bands)


def _with_what_holds(old: SolvedPolicy, new: SolvedPolicy) -> SolvedPolicy:
    """Restore valid certificates, which an unchanged calibrator leaves valid.

    Args:
        old: The active policy.
        new: Its deciding parts tested again with fixed thresholds, the others solved anew.
    """
    segments = {
        value: part.model_copy(update={"bands": _standing(old.segments[value].bands, part.bands)})
        if old.segments[value].certified
        else part
        for value, part in new.segments.items()
    }
    return replace(new, bands=new.bands if old.review_all else _standing(old.bands, new.bands), segments=segments)


def _standing(old: tuple[SolvedBand, ...], new: tuple[SolvedBand, ...]) -> tuple[SolvedBand, ...]:
    return tuple(was if was.stands else now for was, now in zip(old, new, strict=True))


def _with_previous(
    old: SolvedPolicy,
    new: SolvedPolicy,
    names: tuple[str, ...],
    active: Calibrator,
    candidate: Calibrator,
    rows: Division,
    *,
    unchanged: bool,
) -> Refitted:
    """Keep a policy's decided rows if no others could be certified and the new calibrator keeps their order.

    An unchanged calibrator keeps the rows themselves, so what was certified stays certified, whatever the policy says.
    """
    if old.policy.on_uncertifiable != "keep_previous" and not unchanged:
        return Refitted(new)
    why = "The unchanged calibrator" if unchanged else "keep_previous"
    positive = TOP if old.policy.positive == TOP else names.index(old.policy.positive)
    logits = np.concatenate([part.logits for part in (rows.fit, rows.certify, rows.judged)])
    segments, notes = dict(new.segments), []
    for value in lost_bands(old, new):
        before, after = (solved if value is None else solved.parts[value] for solved in (old, new))
        of = "" if value is None else f" of the segment {value!r}"
        try:
            bands = same_rows(before.bands, positive, active, candidate, logits)
        except OrderLostError as error:
            notes.append(f"{why} cannot keep the same rows{of}: {error}.")
            continue
        notes += [
            f"{why} keeps the same rows{of} and their certificates; {action} has no new certificate: {reason}."
            for action, reason in objections(after)
        ]
        if value is None:
            return Refitted(replace(new, bands=bands, review_all=before.review_all), tuple(notes))
        segments[value] = SolvedSegment(bands=bands, certified=not before.review_all)
    return Refitted(replace(new, segments=segments), tuple(notes))
