"""What a policy would have done with the newest predictions, before it is activated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from candor.contract import simulation as contract
from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import certificates, warnings
from service.decisions.rows import Rows
from service.decisions.simulate import simulate
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.policies import in_force, propose
from service.operations.principal import Principal
from service.operations.windows import recent_rows, window_of
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served
from service.times import iso


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A policy in force, beside itself with thresholds moved.

    Attributes:
        before: The policy in force.
        after: The same with the moved thresholds; nothing of it is certified.
        found: What would have happened.
        window: Times of the oldest and the newest row; None without rows.
        spread: Rows by probability, see `spread`; None without rows.
    """

    before: SolvedPolicy
    after: SolvedPolicy
    found: contract.SimulatedDecisions
    window: tuple[str, str] | None
    spread: dict[str, list[int]] | None


def simulate_policy(
    runtime: Runtime, model: Model, policy: str, request: contract.SimulationRequest, *, by: Principal
) -> contract.Simulation:
    """Tell what a policy would have done on recent predictions: changed decisions, volumes, forecasts.

    A document is solved as a proposal, so that the look at labelled rows that it costs is used once.

    Raises:
        InputValueError: The window is empty, or the document has another id.
        UnknownPolicyError: The active revision has no such policy, and the request has no document.
        PolicyError: The document cannot be used.
    """
    served = model.served
    window = window_of(served, request.since, request.until, where="/since")
    # Before anything is solved: a look whose result is never shown would be wasted.
    before = in_force(served, request.against or policy) if request.against or policy in served.policies else None
    if request.document is None:
        revision, after = served.revision.id, in_force(served, policy)
    else:
        proposed = propose(runtime, model, policy, request.document, where="/document", by=by)
        revision, after = proposed.id, proposed.policies[policy]
    seen = _calibrated(served, recent_rows(runtime, served, window, request.rows))
    found = simulate_on(seen, after, before, most_flips=request.flips, seed=_seed(runtime))
    return contract.Simulation.model_validate(
        {
            "model": model.name,
            "revision": revision,
            "policy": f"{policy}@{after.version}",
            "against": None if before is None else f"{before.policy.id}@{before.version}",
            "window": _window(seen.rows),
            **certificates(after),
            "warnings": warnings(after),
            **dict(found),
        }
    )


def try_thresholds(
    runtime: Runtime, model: Model, policy: str, thresholds: Mapping[int, float], *, rows: int, bins: int
) -> Trial:
    """Tell what moved thresholds of a policy in force would have done on recent predictions; no look is used.

    Args:
        runtime: The running service.
        model: The model.
        policy: Policy in force.
        thresholds: See `moved`.
        rows: Maximum number of predictions, newest first.
        bins: Number of bins of `Trial.spread`.

    Raises:
        InputValueError: The policy has no such band to move.
        UnknownPolicyError: The active revision has no such policy.
    """
    served = model.served
    before = in_force(served, policy)
    after = moved(before, thresholds)
    recent = _calibrated(served, recent_rows(runtime, served, window_of(served, None, None, where=""), rows))
    found = simulate_on(recent, after, before, most_flips=0, seed=_seed(runtime))
    counts = spread(recent, after, bins=bins) if len(recent.rows) else None
    return Trial(before, after, found, _window(recent.rows), counts)


def _calibrated(served: Served, rows: Rows) -> Calibrated:
    return Calibrated.of(served.calibrator, served.labels, rows)


def _window(rows: Rows) -> tuple[str, str] | None:
    return (iso(int(rows.predicted_at[0])), iso(int(rows.predicted_at[-1]))) if len(rows) else None


def _seed(runtime: Runtime) -> int:
    return int.from_bytes(runtime.database.secret[:8], "little")


def simulate_on(
    seen: Calibrated, after: SolvedPolicy, before: SolvedPolicy | None, *, most_flips: int, seed: int
) -> contract.SimulatedDecisions:
    """Try a solved policy on logged predictions.

    Args:
        seen: Newest predictions of the model in service, with its calibrator.
        after: The policy that is tried.
        before: The policy that it is compared with; None for none.
        most_flips: Names of changed rows that are returned, at most.
        seed: Of every draw; fixed before any label is seen.
    """
    return simulate(
        after,
        seen.scored(after.policy),
        before=None if before is None else (before, seen.scored(before.policy)),
        most_flips=most_flips,
        seed=seed,
    )


def moved(solved: SolvedPolicy, thresholds: Mapping[int, float]) -> SolvedPolicy:
    """Return a policy as if thresholds lay elsewhere: nothing is solved, and nothing is certified.

    Args:
        solved: The policy; without thresholds to move it comes back as it is.
        thresholds: Probability in [0, 1] from which on a band takes rows, by the band's index; the same for every
            segment. Bands that are not named keep theirs.

    Raises:
        InputValueError: The policy has no such band, or it is the last one, which takes what is left.
    """
    if not thresholds:
        return solved
    if not thresholds.keys() <= set(range(len(solved.bands) - 1)):
        raise InputValueError(
            "Unknown band.",
            where="band",
            found=sorted(thresholds),
            expected=f"from 0 to {len(solved.bands) - 2}",
        )
    bands = tuple(
        SolvedBand(
            action=band.action,
            threshold=Threshold.at(float(np.float32(thresholds[index])), float("-inf")),
            certificate=None,
        )
        if index in thresholds
        else band.model_copy(update={"certificate": None})
        for index, band in enumerate(solved.bands)
    )
    return SolvedPolicy(solved.policy.model_copy(update={"segments": None}), solved.version, bands, review_all=False)


def spread(seen: Calibrated, solved: SolvedPolicy, *, bins: int) -> dict[str, list[int]]:
    """Count logged predictions by the probability that a policy goes by, in bins of equal width from 0 to 1.

    Args:
        seen: Newest predictions of the model in service, with its calibrator.
        solved: The policy.
        bins: How many.

    Returns:
        `positive` and `negative`, of the rows whose label was sought and has come, and `unknown`, all others.
    """
    rows = seen.scored(solved.policy)
    index = np.minimum((rows.probability * bins).astype(np.intp), bins - 1)
    known = rows.known()
    kinds = {"positive": known & rows.positive, "negative": known & ~rows.positive, "unknown": ~known}
    return {name: np.bincount(index[which], minlength=bins).tolist() for name, which in kinds.items()}
