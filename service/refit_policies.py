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
from service.decisions.solved import SolvedPolicy, SolvedSegment
from service.refit_rows import Division, Rows, fit_weights
from service.revision import Basis
from service.same_rows import OrderLostError, same_rows
from service.solve import scored, solve_on_reference


@dataclass(frozen=True, slots=True, eq=False)
class Refitted:
    """A policy after a refit, and what there is to say about it."""

    solved: SolvedPolicy
    notes: tuple[str, ...] = ()

    def report(self) -> dict[str, Any]:
        """Return what a refit's report shows: certificates, and in words what was kept and what is not certified."""
        return {**certificates(self.solved), "notes": list(self.notes), "warnings": warnings(self.solved)}


def basis_of(policy: Policy, names: tuple[str, ...], certifying: Rows) -> Basis:
    """Return which rows certify: traffic once it could certify the policy's promises, the reference rows before.

    Reference rows are of no segment, so that only traffic can certify one.

    Args:
        policy: What is promised.
        names: The model's labels.
        certifying: Labelled rows of the traffic that may certify.
    """
    if policy.segments is not None:
        return "traffic"
    level = policy.certify.delta / max(policy.claims, 1) / 2
    for index, when in policy.promises():
        rows = len(certifying)
        if when.metric in ("recall", "false_positive_rate") and policy.positive != TOP:
            of_class = certifying.labels == names.index(policy.positive)
            rows = int((of_class if when.metric == "recall" else ~of_class).sum())
        if rows < labels_needed(0, 0, policy.tolerance(index), level):
            return "reference"
    return "traffic"


def refit_policies(
    policies: Mapping[str, SolvedPolicy],
    bundle: Bundle,
    active: Calibrator,
    candidate: Calibrator,
    rows: Division,
    *,
    bases: Mapping[str, Basis],
    looks: Mapping[str, int],
    window: tuple[str, str],
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
        window: First and last time of the rows of the traffic that certify (ISO 8601).
        seed: Of the draws; fixed before any label is seen.

    Raises:
        PolicyError: A policy that must be certified or fail cannot be certified.
    """
    names = bundle.manifest.labels
    refitted = {}
    for key, old in policies.items():
        wanted, look = old.policy, looks[key]
        stays = wanted.on_calibrator_change == "keep_threshold"
        unchanged = active.to_dict() == candidate.to_dict()
        if stays and unchanged and all(not part.review_all for part in _parts(old)):
            refitted[key] = Refitted(old)  # nothing has changed for it
            continue
        keep = old if stays and not unchanged else None
        if bases[key] == "reference":
            new = solve_on_reference(
                wanted, version=old.version, bundle=bundle, calibrator=candidate, look=look, keep=keep
            )
        else:
            alike = [
                looks[other]
                for other, policy in policies.items()
                if policy.policy.positive == wanted.positive and bases[other] == "traffic"
            ]
            new = solve(
                wanted,
                version=old.version,
                fit=_scored(wanted, names, candidate, rows.fit, weight=fit_weights(rows.fit.propensity)),
                certify=_scored(wanted, names, candidate, rows.certify),
                look=look,
                basis="traffic",
                window=window,
                seed=seed,
                keep=keep,
                # All policies of a refit are solved before anybody sees an answer; the first look says what was before.
                fresh=min(alike) == 1,
            )
        if stays and unchanged:
            refitted[key] = Refitted(_with_what_decides(old, new))
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


def _parts(solved: SolvedPolicy) -> tuple[SolvedPolicy, ...]:
    return tuple(solved.parts.values()) or (solved,)


def _with_what_decides(old: SolvedPolicy, new: SolvedPolicy) -> SolvedPolicy:
    """Put the segments back that decide already; a policy without segments does not, or nothing would be solved."""
    return replace(new, segments={**new.segments, **{k: part for k, part in old.segments.items() if part.certified}})


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
