"""What a policy would have done with the newest predictions, before it is activated."""

from __future__ import annotations

import numpy as np

from service.decisions.decide import decide
from service.decisions.rows import ScoredRows
from service.decisions.simulate import Simulation, simulate
from service.decisions.solved import SolvedPolicy
from service.plane import Served
from service.solve import scored
from service.state.recent import NO_LABEL, RecentRows


def simulate_on(
    rows: RecentRows, served: Served, after: SolvedPolicy, before: SolvedPolicy | None, *, most_flips: int, seed: int
) -> Simulation:
    """Try a solved policy on logged predictions, with the calibrator in service.

    Args:
        rows: Newest predictions of the model in service.
        served: The revision in service.
        after: The policy that is tried.
        before: The policy that it is compared with; None for none.
        most_flips: Names of changed rows that are returned, at most.
        seed: Of every draw; fixed before any label is seen.
    """
    theirs = None if before is None else _scored(rows, served, before)
    own = _scored(rows, served, after)
    return simulate(
        after,
        decide(after, own.probability, own.score, own.segment),
        own,
        rows.ids,
        before=None
        if before is None or theirs is None
        else np.array(before.actions)[decide(before, theirs.probability, theirs.score, theirs.segment)],
        most_flips=most_flips,
        seed=seed,
    )


def _scored(rows: RecentRows, served: Served, solved: SolvedPolicy) -> ScoredRows:
    return scored(
        solved.policy,
        served.labels,
        served.calibrator,
        rows.logits,
        rows.labels,
        group=rows.cluster,
        propensity=rows.propensity,
        # Of labels that came unasked nobody knows why they came: they are left out, as in a refit.
        labelled=rows.sought & (rows.propensity > 0) & (rows.labels != NO_LABEL),
        sought=rows.sought,
        segment=rows.segment,
    )
