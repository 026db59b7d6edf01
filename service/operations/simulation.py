"""What a policy would have done with the newest predictions, before it is activated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from candor.contract import simulation as contract
from candor.contract.backtests import BacktestedOutcome
from candor.contract.certificates import SolvedBand, Threshold
from service.decisions.backtest import Judged, days_of, outcome, seen_by_people
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import certificates, warnings
from service.decisions.decide import decide
from service.decisions.revision import Revision
from service.decisions.rows import Rows
from service.decisions.simulate import simulate
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError
from service.operations.policies import in_force, propose
from service.operations.principal import Principal
from service.operations.windows import recent_rows, window_of
from service.places import in_body
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served

_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows by probability.

    Attributes:
        edges: Probabilities between which the B bins lie, B + 1 of them, even in log-odds.
        positive: Positive rows, of those whose label was sought and has come, in each bin.
        negative: The others of these.
        unknown: All other rows.
    """

    edges: list[float]
    positive: list[int]
    negative: list[int]
    unknown: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A policy in force, beside itself with thresholds moved.

    Attributes:
        before: The policy in force.
        after: The same with the moved thresholds; nothing of it is certified.
        found: What would have happened.
        window: Times of the oldest and the newest row; None without rows.
        spread: Rows by probability, see `spread`; None without rows.
        outcomes: What both do, in rows and money; None without rows. The rows are those that one looks at.
    """

    before: SolvedPolicy
    after: SolvedPolicy
    found: contract.SimulatedDecisions
    window: tuple[str, str] | None
    spread: Spread | None
    outcomes: tuple[BacktestedOutcome, BacktestedOutcome] | None


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
    window = window_of(served, request.since, request.until, where=in_body("since"))
    # Before anything is solved: a look whose result is never shown would be wasted.
    before = in_force(served, request.against or policy) if request.against or policy in served.policies else None
    if request.document is None:
        revision, after = served.revision.id, in_force(served, policy)
    else:
        proposed = propose(runtime, model, policy, request.document, where=in_body("document"), by=by)
        revision, after = proposed.id, proposed.policies[policy]
    seen = _calibrated(served, recent_rows(runtime, served, window, request.rows))
    found = simulate_on(seen, after, before, most_flips=request.flips, seed=_seed(runtime))
    return contract.Simulation.model_validate(
        {
            "model": model.name,
            "revision": revision,
            "policy": f"{policy}@{after.version}",
            "against": None if before is None else f"{before.policy.id}@{before.version}",
            "window": seen.rows.window(),
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
    recent = _calibrated(served, recent_rows(runtime, served, window_of(served, None, None, where=in_body()), rows))
    found = simulate_on(recent, after, before, most_flips=0, seed=_seed(runtime))
    counts = spread(recent, after, bins=bins) if len(recent.rows) else None
    outcomes = (_outcome(recent, before), _outcome(recent, after)) if len(recent.rows) else None
    return Trial(before, after, found, recent.rows.window(), counts, outcomes)


def _outcome(seen: Calibrated, solved: SolvedPolicy) -> BacktestedOutcome:
    rows = seen.scored(solved.policy)
    decided = decide(solved, rows.probability, rows.score, rows.segment, rows.amount)
    actions = np.array(solved.actions, dtype=np.object_)[decided]
    policy, judged = solved.policy, Judged(rows, solved.policy.amount_when_missing or 0.0)
    days = days_of(seen.rows.predicted_at)
    return outcome(
        judged, actions, policy.bands[-1].action, policy.costs, seen_by_people(policy, judged, actions, days)
    )


def _calibrated(served: Served, rows: Rows) -> Calibrated:
    return Calibrated.of(served.calibrator, served.labels, rows)


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


def spread(seen: Calibrated, solved: SolvedPolicy, *, bins: int) -> Spread:
    """Count logged predictions by the probability that a policy goes by, in bins that are even in its log-odds.

    Args:
        seen: Newest predictions of the model in service, with its calibrator; at least one.
        solved: The policy.
        bins: How many.
    """
    rows = seen.scored(solved.policy)
    odds = scipy.special.logit(np.clip(rows.probability.astype(np.float64), _LEAST, 1 - _LEAST))
    low, high = odds.min(), max(odds.max(), odds.min() + 1.0)
    index = np.minimum(((odds - low) / (high - low) * bins).astype(np.intp), bins - 1)
    known = rows.known()
    kinds = {"positive": known & rows.positive, "negative": known & ~rows.positive, "unknown": ~known}
    return Spread(
        scipy.special.expit(np.linspace(low, high, bins + 1)).tolist(),
        **{name: np.bincount(index[which], minlength=bins).tolist() for name, which in kinds.items()},
    )


def propose_thresholds(
    runtime: Runtime, model: Model, policy: str, thresholds: Mapping[int, float], *, by: Principal
) -> Revision:
    """Propose a policy in force with fixed thresholds for some of its bands, in place of what they asked for.

    Raises:
        InputValueError: There is no such band, or none is named.
        UnknownPolicyError: The active revision has no such policy.
        PolicyError: The policy promises something that cannot be certified and must be.
    """
    before = in_force(model.served, policy)
    if not thresholds:
        raise InputValueError("No threshold was moved.", where="band", expected="a band with another threshold")
    moved(before, thresholds)  # refuses unknown bands
    document = before.policy.to_dict()
    for index, threshold in thresholds.items():
        document["bands"][index]["when"] = {"min_probability": threshold}
    return propose(runtime, model, policy, document, where=in_body(), by=by)
