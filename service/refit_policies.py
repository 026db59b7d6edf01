"""What a refit makes of each policy: solved anew, with thresholds that stay, or with the rows that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle
from calibrators import Calibrator
from service.decisions.binomial import labels_needed
from service.decisions.certificates import certificates, lost, objections, warnings
from service.decisions.certify import solve
from service.decisions.policy import TOP, Policy
from service.decisions.rows import ScoredRows
from service.decisions.solved import SolvedBand, SolvedPolicy, SolvedSegment
from service.decisions.voided import broken
from service.refit_rows import Division, Rows, fit_weights
from service.revision import Basis
from service.same_rows import OrderLostError, same_rows
from service.solve import scored, solve_on_reference


@dataclass(frozen=True, slots=True, eq=False)
class Refitted:
    """A policy after a refit, and what there is to say about it."""

    solved: SolvedPolicy
    notes: tuple[str, ...] = ()

    def report(self, before: SolvedPolicy) -> dict[str, Any]:
        """Return what a refit's report shows: certificates, thresholds before and after, and words about both.

        Args:
            before: The policy as it is in force.
        """
        return {
            **certificates(self.solved),
            "before": _thresholds(before),
            "after": _thresholds(self.solved),
            "lost": list(lost(before, self.solved)),
            "notes": list(self.notes),
            "warnings": warnings(self.solved),
        }


def basis_of(policy: Policy, names: tuple[str, ...], certifying: Rows, own: Basis = "traffic") -> Basis:
    """Return which rows certify: the refit's own once they could certify what is promised, the reference rows before.

    Reference rows are of no segment, so that only the refit's own can certify one.

    Args:
        policy: What is promised.
        names: The model's labels.
        certifying: Labelled rows of the refit that may certify.
        own: What these are; "reference" where they may certify nothing.
    """
    if policy.segments is not None or own == "reference":
        return own
    level = policy.certify.delta / max(policy.claims, 1) / 2
    for index, when in policy.promises():
        rows = len(certifying)
        if when.metric in ("recall", "false_positive_rate") and policy.positive != TOP:
            of_class = certifying.labels == names.index(policy.positive)
            rows = int((of_class if when.metric == "recall" else ~of_class).sum())
        if rows < labels_needed(0, 0, policy.tolerance(index), level):
            return "reference"
    return own


def first_shown(policy: Policy, certify: Rows) -> int:
    """Return the time since which a look may have shown something of these rows that certifies the policy.

    A label says nothing before it comes, but whether a row is flagged is known as soon as it is predicted.

    Args:
        policy: What is promised.
        certify: All rows of the traffic that may certify, labelled ones among them.
    """
    if any(when.metric == "flag_rate" for _, when in policy.promises()):
        return int(certify.predicted_at.min())
    return int(certify.labelled_at[certify.tested].min())


def refit_policies(
    policies: Mapping[str, SolvedPolicy],
    bundle: Bundle,
    active: Calibrator,
    candidate: Calibrator,
    rows: Division,
    *,
    bases: Mapping[str, Basis],
    looks: Mapping[str, int],
    window: tuple[str, str] | None,
    seed: int,
) -> dict[str, Refitted]:
    """Solve the policies that are in force with another calibrator.

    Args:
        policies: As they are in force, by id.
        bundle: Its reference rows certify where the traffic has too few.
        active: The calibrator in service.
        candidate: The one that the refit has fitted.
        rows: Of the traffic.
        bases: Which rows certify each policy.
        looks: Numbers of these looks, by policy.
        window: First and last time of the refit's own rows that certify (ISO 8601); None where they have no times.
        seed: Of the draws; fixed before any label is seen.

    Raises:
        PolicyError: A policy that must be certified or fail cannot be certified.
    """
    names = bundle.manifest.labels
    unchanged = active.to_dict() == candidate.to_dict()
    refitted = {}
    for key, old in policies.items():
        wanted, look = old.policy, looks[key]
        stays = wanted.on_calibrator_change == "keep_threshold"
        if stays and unchanged and all(_holds(part) for part in _parts(old)):
            refitted[key] = Refitted(old)  # nothing has changed for it
            continue
        keep = old if stays else None
        if bases[key] == "reference":
            new = solve_on_reference(
                wanted,
                version=old.version,
                bundle=bundle,
                calibrator=candidate,
                look=look,
                keep=keep,
                broken=broken(old),
            )
        else:
            alike = [
                other
                for other, policy in policies.items()
                if policy.policy.positive == wanted.positive and bases[other] == bases[key]
            ]
            new = solve(
                wanted,
                version=old.version,
                fit=_scored(wanted, names, candidate, rows.fit, weight=fit_weights(rows.fit.propensity)),
                certify=_scored(wanted, names, candidate, rows.certify),
                look=look,
                basis=bases[key],
                window=window,
                seed=seed,
                keep=keep,
                # All policies of a refit are solved before anybody sees an answer: looks of this one show nothing yet.
                fresh=look <= 1 + alike.index(key),
            )
        if stays and unchanged:
            refitted[key] = Refitted(_with_what_holds(old, new))
        else:
            refitted[key] = _with_previous(old, new, names, active, candidate, rows)
    return refitted


def _scored(
    policy: Policy,
    names: tuple[str, ...],
    calibrator: Calibrator,
    rows: Rows,
    weight: npt.NDArray[np.float64] | None = None,
) -> ScoredRows:
    return scored(
        policy,
        names,
        calibrator,
        rows.logits,
        rows.labels,
        weight=weight,
        group=rows.cluster,
        propensity=rows.propensity,
        labelled=rows.tested,
        sought=rows.sought,
        segment=rows.segment,
    )


def _thresholds(solved: SolvedPolicy) -> dict[str, Any]:
    return {key: value for key, value in solved.to_dict().items() if key != "policy"}


def _parts(solved: SolvedPolicy) -> tuple[SolvedPolicy, ...]:
    return tuple(solved.parts.values()) or (solved,)


def _holds(part: SolvedPolicy) -> bool:
    """Return whether a policy or a segment decides, with every promise certified."""
    return not part.review_all and all(band.stands for band in part.bands)


def _with_what_holds(old: SolvedPolicy, new: SolvedPolicy) -> SolvedPolicy:
    """Put back what is certified: the calibrator has stayed, and nothing has touched it.

    Args:
        old: The policy as it is in force.
        new: What decides tested again, as thresholds that stay; what does not solved anew.
    """
    segments = {
        value: replace(part, bands=_standing(old.segments[value].bands, part.bands))
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
) -> Refitted:
    """Put the rows that a policy has back where the refit could not certify others, if it keeps their order."""
    if old.policy.on_uncertifiable != "keep_previous":
        return Refitted(new)
    positive = TOP if old.policy.positive == TOP else names.index(old.policy.positive)
    logits = np.concatenate([part.logits for part in (rows.fit, rows.certify, rows.judged)])
    segments, notes = dict(new.segments), []
    for value in lost(old, new):
        before, after = (solved if value is None else solved.parts[value] for solved in (old, new))
        of = "" if value is None else f" of the segment {value!r}"
        try:
            bands = same_rows(before.bands, positive, active, candidate, logits)
        except OrderLostError as error:
            notes.append(f"keep_previous cannot keep the rows{of}: {error}.")
            continue
        notes += [
            f"keep_previous keeps the rows{of} and what was certified; {action} is not certified anew: {reason}."
            for action, reason in objections(after)
        ]
        if value is None:
            return Refitted(replace(new, bands=bands, review_all=False), tuple(notes))
        segments[value] = SolvedSegment(bands, certified=True)
    return Refitted(replace(new, segments=segments), tuple(notes))
